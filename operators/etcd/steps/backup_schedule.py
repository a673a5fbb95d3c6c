"""Scheduled snapshots: creates an EtcdBackup for each due time, and keeps as many as spec.backup.retention. Pure.

The name of an EtcdBackup contains its due time, so that each due time gets exactly one. The status records the next due
time. If the operator was down at that time, it catches up on the latest missed one. The EtcdBackups outlive the
cluster, as their files do, because a new cluster may be restored from them. Files beyond the retention are removed by
the pod that takes the next snapshot (work.prune).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from operators.etcd.api.backup import API, COMPLETE, FAILED, RETRY_UNTIL, SCHEDULED, EtcdBackup, has_current_snapshot
from operators.etcd.api.backup import RUNNING as TAKING
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import Destination
from operators.etcd.backup.outcome import time
from operators.etcd.backup.snapshot import Record, beyond_retention, due_of, scheduled_name
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.corruption import differed, suspected
from operators.etcd.objects import names
from operators.etcd.reasons import NOT_CURRENT, RUNNING
from operators.etcd.state.observed import Observed
from shared.api.schedule import last_due, next_due
from shared.api.spec import InvalidSpec, as_object
from shared.kubernetes import accessors
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Apply, Delete, Step
from shared.status import conditions
from shared.steps.hibernation import is_stopped

MAX_FAILED_KEPT = 3
"""Failed EtcdBackups of the schedule that are kept for inspection."""

_COMPONENT = "backup"
_SECOND = timedelta(seconds=1)


def schedule_backups(seen: Assessment) -> Step:
    """Create the EtcdBackup that is due, unless another is in progress; delete those beyond the retention.

    One that waits for the destination of an earlier spec is deleted; one that is being stored there ends by itself, and
    delays no other one. As long as it is due, another one is created.
    """
    resource = seen.resource
    desired = resource.spec.backup
    if desired is None or not resource.recorded_cluster_id or is_stopped(seen):  # then the latest is taken afterwards
        return PASS
    scheduled = seen.backup.scheduled
    actions: list[Apply | Delete] = [Delete(API.kind, obj) for obj in _surplus(seen, desired.retention)]
    outdated = [obj for obj in scheduled if _waits(obj) and not _stores_in(obj, desired.destination)]
    actions += [Delete(API.kind, obj, unchanged=True) for obj in outdated]
    due, following = _timetable(resource, desired.schedule, seen.now)
    if due is not None and not _is_made(seen, due):
        if any(not _is_over(obj) and _stores_in(obj, desired.destination) for obj in scheduled):
            return Step(tuple(actions))  # its end is an event; then the latest due time is handled
        own = names.owner(resource, seen.settings.operator)
        made: Obj = own.object(
            API.kind,
            scheduled_name(resource.name, due),
            component=_COMPONENT,
            spec={"clusterName": resource.name, "destination": as_object(desired.destination)},
        )
        del made["metadata"]["ownerReferences"]
        made["metadata"]["labels"][SCHEDULED] = resource.uid
        if (until := next_due(desired.schedule, due)) is not None:
            made["metadata"]["annotations"] = {RETRY_UNTIL: rfc3339(until)}
        actions.append(Apply(API.kind, made, unchanged=True))  # a stale status must not recreate a finished one
    left = None if following is None else (following - seen.now).total_seconds()
    return Step(tuple(actions), requeue=left)


def backup_status(seen: Assessment) -> Obj | None:
    """Return status.backup: the last complete snapshot that was current, and the next due time.

    A due time stays until there is one, so that a snapshot that is missing, fails or may be stale is seen to be late.
    """
    resource = seen.resource
    desired = resource.spec.backup
    if desired is None:
        return None
    before: dict[str, Any] = resource.reported.get("backup") or {}
    found = {name: before.get(name) for name in ("lastTime", "lastName")}
    if current := [obj for obj in _by_name(seen.backup.scheduled, COMPLETE) if has_current_snapshot(obj)]:
        last = current[-1]
        found = {"lastTime": last["status"].get("completedAt"), "lastName": last["metadata"]["name"]}
    due, following = _timetable(resource, desired.schedule, seen.now)
    announced, taken = time(before.get("nextTime")), due_of(resource.name, str(found["lastName"]))
    is_taken = announced is not None and taken is not None and taken >= announced
    is_owed = due is not None and not (_is_made(seen, due) and is_taken)
    if is_owed:
        found["nextTime"] = before.get("nextTime")
    elif following is not None:
        found["nextTime"] = rfc3339(following)
    return {name: value for name, value in found.items() if value is not None}


def why_unfinished(seen: Observed) -> str:
    """Return that a scheduled snapshot has not ended, which needs a member; empty if all have."""
    return next((f"EtcdBackup {_name(obj)} is not complete." for obj in seen.backup.scheduled if not _is_over(obj)), "")


def failing(seen: Observed) -> str:
    """Describe the last scheduled snapshot if it failed, may be stale or cannot be taken; empty otherwise."""
    last = max(seen.backup.scheduled, key=_name, default=None)
    ready = accessors.condition(last, conditions.READY) if last else {}
    message = ready.get("message")
    if last is None or not message:
        return ""
    if _is_over(last):
        what = "failed" if _phase(last) == FAILED else "may lack changes" if ready["reason"] == NOT_CURRENT else ""
        return what and f"Backup {_name(last)} {what}: {message}"
    return f"Backup {_name(last)} is waiting: {message}" if ready.get("reason") != RUNNING else ""


def _timetable(resource: EtcdCluster, schedule: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the due time that is pending, if any, and the next one after `now`.

    Nothing is due before a time was announced in the status: a schedule begins when the operator first observes it. A
    time that another schedule announced does not count.
    """
    following = next_due(schedule, now)
    announced = time((resource.reported.get("backup") or {}).get("nextTime"))
    if announced is None or announced > now or last_due(schedule, announced - _SECOND, announced) is None:
        return None, following
    return last_due(schedule, announced - _SECOND, now), following


def _is_made(seen: Assessment, due: datetime) -> bool:
    return scheduled_name(seen.resource.name, due) in map(_name, seen.backup.scheduled)


def _waits(obj: Obj) -> bool:
    """Whether an EtcdBackup is not finished, and no pod takes its snapshot now."""
    return not _is_over(obj) and _phase(obj) != TAKING


def _stores_in(obj: Obj, destination: Destination) -> bool:
    try:
        return EtcdBackup.parse(obj).spec.destination == destination
    except InvalidSpec:
        return False


def _surplus(seen: Observed, retention: int) -> list[Obj]:
    """Return the EtcdBackups to delete, as their files are deleted: none while data may differ."""
    complete, failed = (_by_name(seen.backup.scheduled, phase) for phase in (COMPLETE, FAILED))
    is_known = seen.members is not None or bool(seen.answering)
    is_known = is_known and not suspected(seen) and not any(map(differed, seen.instances))
    removed = {each.backup for each in beyond_retention(((_record(obj), True) for obj in complete), retention)}
    found = [obj for obj in complete if is_known and _name(obj) in removed]
    return [*found, *failed[: max(0, len(failed) - MAX_FAILED_KEPT)]]


def _record(obj: Obj) -> Record:
    revision, member = int(obj["status"].get("revision") or 0), str(obj["status"].get("member") or "")
    return Record("", 0, "", revision, "", "", member, "", "", "", _name(obj), True, has_current_snapshot(obj))


def _by_name(scheduled: tuple[Obj, ...], phase: str) -> list[Obj]:
    """Return the finished EtcdBackups in a phase, oldest first: their names end with the time."""
    return sorted((obj for obj in scheduled if _is_over(obj) and _phase(obj) == phase), key=_name)


def _is_over(obj: Obj) -> bool:
    return bool((obj.get("status") or {}).get("completedAt"))


def _phase(obj: Obj) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])
