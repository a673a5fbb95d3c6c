"""Status of an EtcdCluster. Pure.

The status of a healthy cluster does not change: sizes are updated only if they changed by a tenth, and the last known
values of an unreachable member are kept. Without a list of members, their last status is kept as well, because the
operator depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operators.etcd.api.resource import MAX_OUTSIDE_VOTERS
from operators.etcd.api.versions import Version
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership import catching_up, raft_log
from operators.etcd.membership.layout import recorded_disk
from operators.etcd.membership.volume_record import VolumeRecord, lost_records, recorded_members
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.names import COMPONENT
from operators.etcd.state import empty_directory
from operators.etcd.state.observed import Instance
from operators.etcd.steps import adoption, connection_secret, maintenance, quorum_recovery
from operators.etcd.steps.backup_schedule import backup_status
from operators.etcd.steps.data_loss import loss
from operators.etcd.steps.restore import restore_status
from operators.etcd.steps.rolling_update import outdated
from operators.etcd.steps.version_change import image
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import selector_text
from shared.status.progress import Work
from shared.steps import connection
from shared.steps.hibernation import is_stopped

MIN_CHANGE_SHARE = 0.1
"""Relative change of a size from which on it is updated in the status."""


def report(seen: Assessment, phase: str) -> Obj:
    """Return the whole status, except for its conditions."""
    resource = seen.resource
    cluster_id = _cluster_id(seen)
    own = names.owner(resource, seen.settings.operator)
    log = raft_log.runs_as(resource, seen, cluster_id)
    members = _members(seen, log)
    found: dict[str, Any] = {
        "phase": phase,
        "size": sum(1 for member in members if "id" in member),
        "readyMembers": sum(1 for member in members if _is_ready(seen, member)),
        "clusterID": cluster_id,
        "runsAs": log,
        "leader": _leader(seen),
        "version": _version(seen),
        "image": image(seen),
        "members": members,
        "outsideVoters": _outside_voters(seen),
        "endpoints": _endpoints(seen),
        "selector": selector_text(own.selector(COMPONENT)),
        "adoption": adoption.report(seen),
        "recovery": quorum_recovery.report(seen),
        "lastDefragmentation": maintenance.last_defragmentation(seen),
        "restore": restore_status(seen),
        "backup": backup_status(seen),
    }
    found["connectAs"] = connection_secret.connects_as(seen)
    present = connection_secret.connection(seen)
    found |= connection.status(own, COMPONENT, present, seen.connection, resource.reported)
    return {name: value for name, value in found.items() if value is not None}


def work(seen: Assessment) -> Iterator[Work]:
    """Yield the members that are no healthy voters yet, and the pods of an earlier template."""
    voters = [instance for instance in seen.instances if instance.member and not instance.member.learner]
    if seen.members is not None:
        yield Work("Members", sum(seen.healthy(each) and each.ready for each in voters), seen.resource.spec.size)
    pods = [instance for instance in seen.instances if instance.pod]
    yield Work("Pods", sum(not outdated(seen, each) for each in pods), len(pods))


def _is_ready(seen: Assessment, member: Obj) -> bool:
    """Whether a member is a healthy voter, or one that only the operator cannot reach: its probe needs a leader."""
    instance = seen.instance_named(member["name"])
    up = member.get("healthy") or ("id" in member and instance is not None and instance.is_out_of_reach)
    return bool(up) and member.get("role") != "learner"


def _leader(seen: Assessment) -> str | None:
    """Return the name of the leader; the operator may be unable to reach it, but another member names it."""
    leader = seen.leader or (seen.instance_of(seen.leader_id) if seen.leader_id else None)
    return leader.name if leader else None


def _endpoints(seen: Assessment) -> list[str]:
    """Return the client URLs of the ready voters.

    A URL stays while only the operator cannot reach the member: the kubelet reports it as ready, for which it needs a
    quorum. Without a list of members, all URLs stay but those of members that lost their data, by evidence.
    """
    resource = seen.resource
    before: list[str] = [] if is_stopped(seen) else resource.reported.get("endpoints") or []
    if seen.members is None and resource.recorded_cluster_id:
        without_quorum = loss(seen)
        lost = {names.client_url_of(resource, voter.name) for voter in without_quorum.lost} if without_quorum else ()
        return [url for url in before if url not in lost]
    voters = [instance for instance in seen.instances if instance.member and not instance.member.learner]
    return [
        url
        for instance in sorted(voters, key=lambda instance: instance.number)
        if instance.ready
        and (url := names.client_url_of(resource, instance.name))
        and (seen.healthy(instance) or (instance.status is None and url in before))
    ]


def _members(seen: Assessment, log: Obj | None) -> list[Obj]:
    """Return every member by number, and former members, without an id, while their volume exists or they are replaced.

    A replacement spans several changes: the entry shows at any time in between that the member is to be added.

    Args:
        log: status.runsAs.
    """
    before = {member["name"]: member for member in seen.resource.reported.get("members") or ()}
    if seen.members is None:
        before |= {member["name"]: member for member in recorded_members(_from_volumes(seen))}
        before |= {each.name: {"name": each.name} for each in seen.instances if each.empty and each.name not in before}
        return [_remembered(member, seen.instance_named(name)) for name, member in before.items()]
    return [
        _member(seen, instance, before.get(instance.name) or {}, log)
        for instance in sorted(seen.instances, key=lambda instance: instance.number)
        if instance.member or instance.vacated or instance.kept_by or instance.number in seen.replaced_numbers
    ]


def _outside_voters(seen: Assessment) -> list[str] | None:
    """Return the ids of voters without a pod: as a quorum lists them, or else as they were recorded."""
    found = {f"{member.id:016x}" for member in seen.unknown_members if not member.learner}
    if seen.members is None:
        written = (voter for record in _from_volumes(seen) for voter in record.outside)
        found = {*(seen.resource.reported.get("outsideVoters") or ()), *written}
    return sorted(found)[:MAX_OUTSIDE_VOTERS] or None


def _remembered(member: Obj, instance: Instance | None) -> Obj:
    """Return the last status of a member, with health from the kubelet, if no list of members is known."""
    role = "voter" if member.get("role") == "leader" else member.get("role")
    is_member = "id" in member or "healthy" in member
    healthy = instance is not None and instance.ready if is_member else None
    found = {"role": role, "healthy": healthy, "foundEmpty": _found_empty(instance, member)}
    kept = {key: value for key, value in member.items() if key != "foundEmpty"}
    return kept | {key: value for key, value in found.items() if value is not None}


def _member(seen: Assessment, instance: Instance, before: Obj, log: Obj | None) -> Obj:
    member, status = instance.member, instance.status
    if member is None:
        entry: Obj = {"volume": volume} if (volume := recorded_disk(seen, instance)) else {}
        replaced = instance.number in seen.replaced_numbers
        return {"name": instance.name} | entry | ({"healthy": False} if replaced else {})
    identity = f"{member.id:016x}"
    if before.get("id") != identity:
        before = {}
    role = "learner" if member.learner else "leader" if instance is seen.leader else "voter"
    found = {
        "name": instance.name,
        "id": identity,
        "role": role,
        "version": status.version if status else before.get("version"),
        "snapshottedAs": raft_log.snapshotted_as(seen.resource, instance, log),
        "dbSize": _size_to_report(status.db_size if status else None, before.get("dbSize")),
        "dbInUse": _size_to_report(status.db_in_use if status else None, before.get("dbInUse")),
        "healthy": seen.healthy(instance) and (member.learner or instance.ready),
        "alarms": sorted(alarm.kind for alarm in seen.alarms if alarm.member_id == member.id) or None,
        "volume": recorded_disk(seen, instance) or None,
        "foundEmpty": _found_empty(instance, before) if member.name else None,  # one that has yet to start has no data
        "progress": catching_up.progress(instance, before.get("progress"), seen.now) if member.learner else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _found_empty(instance: Instance | None, before: Obj) -> Obj | None:
    recorded = before.get("foundEmpty")
    if instance is None:
        return recorded
    answers = instance.status is not None or instance.progress is not None or instance.ready
    return empty_directory.to_record(instance.pod_obj, instance.empty, recorded, answers=answers)


def _size_to_report(size: int | None, before: int | None) -> int | None:
    if size is None or (before is not None and abs(size - before) <= MIN_CHANGE_SHARE * before):
        return before
    return size


def _from_volumes(seen: Assessment) -> tuple[VolumeRecord, ...]:
    """Return what volumes record if the status does not have it: they are to be adopted, or the status was lost."""
    return adoption.adopted(seen) or lost_records(seen.resource, seen)


def _cluster_id(seen: Assessment) -> str | None:
    """Return the recorded id, which never changes, or that of the cluster that a recovery created."""
    known, found = seen.resource.recorded_cluster_id, seen.cluster_id
    if not known and (volumes := _from_volumes(seen)):
        known = volumes[0].cluster_id
    if found and (not known or found == bootstrap.successor(seen.resource)):
        known = found
    return f"{known:016x}" if known else None


def _version(seen: Assessment) -> str | None:
    running = [
        Version.parse(instance.status.version) for instance in seen.instances if instance.status and instance.member
    ]
    if not running:
        written = [record.version for record in _from_volumes(seen) if record.version]
        recorded: str | None = seen.resource.reported.get("version")
        return str(min(written)) if written else recorded
    return str(min(running))
