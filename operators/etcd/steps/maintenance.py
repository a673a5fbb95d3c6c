"""Disk space: relieves an exhausted space quota, and defragments on a schedule. Pure.

etcd keeps every revision of every key until it is compacted, and its file does not shrink until it is defragmented.
Once the file of a member reaches the quota, etcd raises the alarm NOSPACE for the whole cluster and accepts only
deletions. The remedy is the one that etcd documents: compact, defragment every member, disarm the alarm.

A member does not answer while it is defragmented. So members are defragmented one at a time, the leader last, and only
while every other voter is healthy.

Source: https://etcd.io/docs/v3.6/op-guide/maintenance/ (space quota, defragmentation)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from operators.etcd.api.catalogue import Hazard
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import Compact, Defragment, Disarm
from operators.etcd.client.server import NOSPACE
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership import quorum
from operators.etcd.objects.command_line import QUOTA, number_given
from operators.etcd.reasons import OUT_OF_SPACE, QUOTA_EXCEEDED, RAISING_QUOTA, UNSAFE_VERSION
from operators.etcd.state.observed import Instance, Observed, endpoint
from shared.api.schedule import last_due
from shared.kubernetes.accessors import condition, rfc3339
from shared.runtime.plan import PASS, Step, announced
from shared.status.conditions import READY
from shared.status.reasons import Reason
from shared.status.verdict import Progress

MAX_FULL_SHARE = 0.9
"""Share of the quota that no member's file may exceed when writes are allowed again.

Above it the alarm would return at once, and each cycle costs history and a pause of every member.
"""

MIN_GAIN_SHARE = 0.05
"""Share of a file that must be unused, compared with the other members, for a defragmentation to be worthwhile."""

COMPACT_BYTES, COMPACT_SHARE = 64 * 2**10, 0.001
"""Free space in a file that was just defragmented: 16 KiB of 66 MiB were measured."""

RETRY_SECONDS = 30.0
"""Time until members are observed again while something else must happen first."""


def relieve_full_disk(seen: Assessment) -> Step:
    """Relieve an exhausted quota: compact the history, defragment the members, allow writes again.

    Compaction deletes former revisions of keys, which no user requested. The operator does it nevertheless. A cluster
    that accepts no writes is down for most clients, and etcd documents no other way. No watcher misses more events than
    it already had, because nothing is written during that time. An event announces the revision first, and a raised
    quota makes compaction unnecessary.

    If defragmentation cannot free enough space, the operator reports `QuotaExceeded` and does not retry. The step does
    not block the chain, because raising the quota replaces pods; steps that must not run in the meantime check
    `seen.is_full`.
    """
    resource = seen.resource
    if not seen.is_full or seen.is_corrupt or seen.members is None:  # a corrupt cluster rejects compaction as well
        return PASS
    crowded = [each for each in _measured(seen) if each.db_size > MAX_FULL_SHARE * quota(resource, each)]
    if not crowded and (unmeasured := _unmeasured(seen)):
        names = ", ".join(instance.name for instance in unmeasured)
        return _report(
            OUT_OF_SPACE,
            f"{names} raised the NOSPACE alarm, runs and does not answer the operator: it is unknown whether its quota "
            "is still used up. The alarm is disarmed once the member answers, or does not run any more.",
        )
    if not crowded:
        calls = [Disarm(seen.endpoints, seen.secrets.access, alarm) for alarm in seen.alarms if alarm.kind == NOSPACE]
        return Step.wait(
            OUT_OF_SPACE, "Every member has free space again: disarming the NOSPACE alarm to allow writes.", *calls
        )
    if all(instance.db_size <= MAX_FULL_SHARE * resource.spec.quota for instance in crowded):
        names = ", ".join(instance.name for instance in crowded)
        former, raised = _mib(quota(resource, crowded[0])), _mib(resource.spec.quota)
        message = (
            f"{names}: the former quota of {former} is used up. The quota of {raised} takes effect when the pods are "
            "recreated; writes are allowed afterwards."
        )
        return _report(RAISING_QUOTA, message)
    leader = seen.leader
    if leader is None or leader.status is None:
        return PASS
    if not seen.compacted:
        revision = leader.status.revision
        message = (
            f"{_fullest(resource, crowded)}: etcd accepts no writes. Compacting the history before revision "
            f"{revision}; then each member is defragmented in turn."
        )
        call = Compact(seen.endpoints, seen.secrets.access, revision)
        return announced(resource.obj, Step.wait(OUT_OF_SPACE, message, call))
    return _free_space(seen, crowded)


def _free_space(seen: Assessment, crowded: list[Instance]) -> Step:
    """Defragment the next member for which it helps; the history is already compacted.

    The size in use that members report may be too high for a long time: pages that compaction freed count as free only
    some commits later, and a full cluster commits almost nothing. All members have the same keys, so the lowest value
    is closest to the truth. A member that was just defragmented reports the true value.
    """
    resource = seen.resource
    fullest = f"{_fullest(resource, crowded)}: etcd accepts no writes."
    if unsafe := next((found for instance in crowded if (found := instance.bug(Hazard.DEFRAGMENTING))), None):
        message = (
            f"{fullest} The members are not defragmented: with {unsafe}, {unsafe.effect} ({unsafe.source}). Set "
            f"spec.version to {unsafe.fixed} or later; the operator defragments the members then."
        )
        return Step((), Progress.PROGRESSING, UNSAFE_VERSION, message, warning=True, requeue=RETRY_SECONDS)
    voters = [instance for instance in crowded if instance in seen.healthy_voters]
    if not voters:
        return _report(OUT_OF_SPACE, f"{fullest} It can be defragmented once it is a healthy voter.")
    least = min(instance.db_size - instance.db_free for instance in seen.healthy_voters)
    known = any(map(_is_compact, seen.healthy_voters)) or condition(resource.obj, READY).get("reason") == QUOTA_EXCEEDED
    helped = [instance for instance in voters if _helps(resource, instance, least, known=known)]
    if helped:
        instance = _next(seen, helped)
        if instance.member is None or not seen.others_healthy(instance.member):
            message = (
                f"{fullest} A member does not answer while it is defragmented, so the next defragmentation waits for "
                f"{quorum.member_names(seen, seen.down)}, which is down."
            )
            return _report(OUT_OF_SPACE, message)
        message = f"{fullest} Defragmenting {instance.name}."
        return Step.wait(OUT_OF_SPACE, message, Defragment((endpoint(resource, instance),), seen.secrets.access))
    instance = min(voters, key=lambda instance: quota(resource, instance))
    return _report(
        QUOTA_EXCEEDED,
        f"{instance.name} uses {_mib(least)} of its quota of {_mib(quota(resource, instance))}. The history is "
        "compacted, and defragmentation frees no more space: etcd accepts only deletions. Delete keys, or raise "
        f"spec.quotaBackendBytes (now {resource.spec.quota}).",
    )


def _helps(resource: EtcdCluster, instance: Instance, least: int, *, known: bool) -> bool:
    """Whether a member may have free space once it is defragmented.

    Args:
        least: lowest size in use that a member reports, in bytes.
        known: whether `least` is accurate, so that no defragmentation is needed to find out.
    """
    if least > MAX_FULL_SHARE * quota(resource, instance):
        return not known
    return not _is_compact(instance) or instance.db_size - least >= MIN_GAIN_SHARE * instance.db_size


def _is_compact(instance: Instance) -> bool:
    """Whether a file has almost no free pages, as after a defragmentation; measured with 3.4 to 3.7."""
    return instance.db_free <= max(COMPACT_BYTES, COMPACT_SHARE * instance.db_size)


def defragment(seen: Assessment) -> Step:
    """Defragment, on schedule, one member whose file has much free space; the next one follows after an observation.

    The step waits while the cluster has any problem; a due time that passes in the meantime is handled once afterwards.
    """
    if _due(seen.resource, seen.now) is None or not _is_stable(seen):
        return PASS
    if not seen.fragmented_voters:
        return PASS
    instance = _next(seen, seen.fragmented_voters)
    return Step.do(Defragment((endpoint(seen.resource, instance),), seen.secrets.access))


def last_defragmentation(seen: Assessment) -> str | None:
    """Return status.lastDefragmentation: the time up to which the schedule was followed; None if there is none.

    The first value is the time at which the schedule was first observed, so that a new schedule waits for its first due
    time. It advances to a due time once no member is left to be defragmented for it.
    """
    resource = seen.resource
    recorded: str | None = resource.reported.get("lastDefragmentation")
    if resource.spec.defragmentation is None:
        return recorded
    if recorded is None:
        return rfc3339(seen.now)
    due = _due(resource, seen.now)
    handled = due is not None and _is_stable(seen) and not seen.fragmented_voters
    return rfc3339(due) if due is not None and handled else recorded


def quota(resource: EtcdCluster, instance: Instance) -> int:
    """Return the quota in bytes that a member runs with: that of its pod, which may be older than the spec."""
    return number_given(instance.pod_obj, QUOTA) or resource.spec.quota


def _due(resource: EtcdCluster, now: datetime) -> datetime | None:
    desired, recorded = resource.spec.defragmentation, resource.reported.get("lastDefragmentation")
    if desired is None or recorded is None:
        return None
    return last_due(desired.schedule, datetime.fromisoformat(recorded), now)


def _is_stable(seen: Observed) -> bool:
    """Whether every member is a healthy voter, and no alarm is raised."""
    return bool(seen.members) and not (seen.alarms or seen.learner or seen.down)


def _next(seen: Observed, instances: Sequence[Instance]) -> Instance:
    return min(instances, key=lambda instance: (instance is seen.leader, instance.number))


def _measured(seen: Observed) -> list[Instance]:
    """Return the instances of members, voters or not, that reported the size of their file."""
    return [instance for instance in seen.instances if instance.member is not None and instance.status is not None]


def _unmeasured(seen: Observed) -> list[Instance]:
    """Return the instances of members that raised the alarm and run, and do not report the size of their file."""
    raised = {alarm.member_id for alarm in seen.alarms if alarm.kind == NOSPACE}
    members = [each for each in seen.instances if each.member and each.member.id in raised]
    return [each for each in members if each.runs and each.status is None]


def _fullest(resource: EtcdCluster, instances: list[Instance]) -> str:
    instance = max(instances, key=lambda instance: instance.db_size)
    limit, size = _mib(quota(resource, instance)), _mib(instance.db_size)
    return f"{instance.name} has used up its quota of {limit} with a file of {size}"


def _report(reason: Reason, message: str) -> Step:
    """Report why writes are blocked, without blocking the rest of the chain, which may resolve it."""
    return Step((), Progress.PROGRESSING, reason, message, warning=True, requeue=RETRY_SECONDS)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
