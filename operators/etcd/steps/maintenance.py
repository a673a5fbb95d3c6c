"""Room on disk: what is done when the space quota is used up, and defragmentation by the clock. Pure.

etcd keeps every revision of every key until it is compacted away, and its file never shrinks until it is defragmented.
Once a member's file reaches the quota, the alarm NOSPACE holds for the whole cluster, and nothing but deletions is
taken. What to do then is etcd's own advice: compact, defragment every member, disarm.

A member that is being defragmented answers nobody. So it is one at a time, the leader last, and only while every other
voter takes part.

Source: https://etcd.io/docs/v3.6/op-guide/maintenance/ (space quota, defragmentation)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.client.commands import Compact, Defragment, Disarm
from operators.etcd.client.server import NOSPACE
from operators.etcd.membership import quorum
from operators.etcd.objects.command_line import QUOTA, number_given
from operators.etcd.observe import Instance, Observed, endpoint
from operators.etcd.reasons import OUT_OF_SPACE, QUOTA_EXCEEDED, RAISING_QUOTA
from shared.api.schedule import last_due
from shared.kubernetes.accessors import condition
from shared.runtime.plan import PASS, Step, announced
from shared.status.conditions import READY
from shared.status.reasons import Reason
from shared.status.verdict import Progress

MAX_FULL_SHARE = 0.9
"""Part of the quota below which every member's file must be before writes are let in again: the alarm would be back at
once, and each time round costs history and a pause of every member."""

MIN_GAIN_SHARE = 0.05
"""Part of a file that another member's shows not to be in use, from which on its own must be free, too."""

COMPACT_BYTES, COMPACT_SHARE = 64 * 2**10, 0.001
"""What is free in a file that was just defragmented: 16 KiB were, of 66 MiB."""

RETRY_SECONDS = 30.0
"""Time until members are observed again while something else must happen first."""


def relieve_full_disk(resource: EtcdCluster, seen: Assessment, _now: datetime) -> Step:
    """A used-up quota is relieved: forget history, give back what that frees, let writes in again.

    Compaction forgets former revisions of keys, which nobody asked to be forgotten. It is done all the same: a cluster
    that takes no writes is down for most who use it; etcd's documentation gives no other way; and no watcher misses
    anything that it was not behind already, for nothing is written meanwhile. It is said before it is done (an event
    with the revision), and not done at all where a raised quota is enough.

    What no defragmentation can give back is said, and nothing is tried again and again: `QuotaExceeded`. It does not
    block the chain, for raising the quota replaces pods; what must not happen meanwhile asks `seen.is_full`.
    """
    if not seen.is_full or seen.is_corrupt or seen.members is None:  # a corrupt cluster refuses compaction, too
        return PASS
    crowded = [
        instance for instance in _measured(seen) if instance.db_size > MAX_FULL_SHARE * quota(resource, instance)
    ]
    if not crowded:
        calls = [Disarm(seen.endpoints, seen.secrets.access, alarm) for alarm in seen.alarms if alarm.kind == NOSPACE]
        return Step.wait(OUT_OF_SPACE, "There is room again in every member: writes are let in.", *calls)
    if all(instance.db_size <= MAX_FULL_SHARE * resource.spec.quota for instance in crowded):
        names = ", ".join(instance.name for instance in crowded)
        message = (
            f"{names}: still with the former quota, {_mib(quota(resource, crowded[0]))}, which is used up. The new"
        )
        return _report(
            RAISING_QUOTA, f"{message} one counts once their pods are replaced; writes are let in afterwards."
        )
    leader = seen.leader
    if leader is None or leader.status is None:
        return PASS
    if not seen.compacted:
        revision = leader.status.revision
        message = (
            f"{_fullest(resource, crowded)}: etcd takes no writes. To make room, history before revision {revision} is "
            "forgotten (compaction), and members are defragmented one by one."
        )
        call = Compact(seen.endpoints, seen.secrets.access, revision)
        return announced(resource.obj, Step.wait(OUT_OF_SPACE, message, call))
    return _free_space(resource, seen, crowded)


def _free_space(resource: EtcdCluster, seen: Assessment, crowded: list[Instance]) -> Step:
    """Defragment the next member for which it helps; history is compacted by now.

    What members say to be in use is no less than what is, but may be more for long: pages that compaction freed count
    as free only some commits later, and a full cluster commits next to nothing. All hold the same keys, so the least
    that anybody says is nearest to the truth; and whoever has just been defragmented tells it.
    """
    fullest = f"{_fullest(resource, crowded)}: etcd takes no writes."
    voters = [instance for instance in crowded if instance in seen.healthy_voters]
    if not voters:
        return _report(OUT_OF_SPACE, f"{fullest} It can be defragmented once it takes part and has a vote.")
    least = min(instance.db_size - instance.db_free for instance in seen.healthy_voters)
    known = any(map(_is_compact, seen.healthy_voters)) or condition(resource.obj, READY).get("reason") == QUOTA_EXCEEDED
    helped = [instance for instance in voters if _helps(resource, instance, least, known=known)]
    if helped:
        instance = _next(seen, helped)
        if instance.member is None or not seen.others_healthy(instance.member):
            message = f"{fullest} Defragmentation, for which a member answers nobody, waits for"
            return _report(OUT_OF_SPACE, f"{message} {quorum.member_names(seen, seen.down)}, which is down.")
        message = f"{fullest} {instance.name} is being defragmented."
        return Step.wait(OUT_OF_SPACE, message, Defragment((endpoint(resource, instance),), seen.secrets.access))
    instance = min(voters, key=lambda instance: quota(resource, instance))
    return _report(
        QUOTA_EXCEEDED,
        f"{instance.name} has {_mib(least)} in use of its quota of {_mib(quota(resource, instance))}; history is "
        "compacted, and defragmentation gives back no more: etcd takes nothing but deletions. Delete keys, or raise "
        f"spec.quotaBackendBytes (now {resource.spec.quota}).",
    )


def _helps(resource: EtcdCluster, instance: Instance, least: int, *, known: bool) -> bool:
    """Whether a member may have room once it is defragmented.

    Args:
        least: bytes that anybody says to be in use.
        known: whether these are really in use, so that nobody need be defragmented to find out.
    """
    if least > MAX_FULL_SHARE * quota(resource, instance):
        return not known
    return not _is_compact(instance) or instance.db_size - least >= MIN_GAIN_SHARE * instance.db_size


def _is_compact(instance: Instance) -> bool:
    """Whether a file holds nothing but what is in use, as after a defragmentation; tried with 3.4 to 3.7."""
    return instance.db_free <= max(COMPACT_BYTES, COMPACT_SHARE * instance.db_size)


def defragment(resource: EtcdCluster, seen: Assessment, now: datetime) -> Step:
    """When the schedule says so, members of whose file much is free give it back: one, then all are looked at again.

    It waits while anything is the matter with the cluster; a moment that passes meanwhile is made up for, once.
    """
    if _due(resource, now) is None or not _is_stable(seen):
        return PASS
    if not seen.fragmented_voters:
        return PASS
    instance = _next(seen, seen.fragmented_voters)
    return Step.do(Defragment((endpoint(resource, instance),), seen.secrets.access))


def last_defragmentation(resource: EtcdCluster, seen: Assessment, now: datetime) -> str | None:
    """status.lastDefragmentation: up to which moment the schedule was followed; None if there is nothing to say.

    It begins with the time at which the schedule was first seen, so that a new one waits for its first moment; and
    it moves to a moment that was due once no member is left to be defragmented for it.
    """
    recorded: str | None = resource.reported.get("lastDefragmentation")
    if resource.spec.defragmentation is None:
        return recorded
    if recorded is None:
        return _rfc3339(now)
    due = _due(resource, now)
    handled = due is not None and _is_stable(seen) and not seen.fragmented_voters
    return _rfc3339(due) if due is not None and handled else recorded


def quota(resource: EtcdCluster, instance: Instance) -> int:
    """The quota in bytes that a member runs with: its pod's, which may be older than the spec's."""
    return number_given(instance.pod_obj, QUOTA) or resource.spec.quota


def _due(resource: EtcdCluster, now: datetime) -> datetime | None:
    desired, recorded = resource.spec.defragmentation, resource.reported.get("lastDefragmentation")
    if desired is None or recorded is None:
        return None
    return last_due(desired.schedule, datetime.fromisoformat(recorded), now)


def _is_stable(seen: Observed) -> bool:
    """Whether every member is a voter that takes part, and none complains."""
    return bool(seen.members) and not (seen.alarms or seen.learner or seen.down)


def _next(seen: Observed, instances: Sequence[Instance]) -> Instance:
    return min(instances, key=lambda instance: (instance is seen.leader, instance.number))


def _measured(seen: Observed) -> list[Instance]:
    """Places of members, voters or not, that said how large their file is."""
    return [instance for instance in seen.instances if instance.member is not None and instance.status is not None]


def _fullest(resource: EtcdCluster, instances: list[Instance]) -> str:
    instance = max(instances, key=lambda instance: instance.db_size)
    return f"{instance.name} has used up its quota of {_mib(quota(resource, instance))} with a file of {_mib(instance.db_size)}"


def _report(reason: Reason, message: str) -> Step:
    """What keeps writes out, and is not mended here: the rest of the chain may mend it."""
    return Step((), Progress.PROGRESSING, reason, message, warning=True, requeue=RETRY_SECONDS)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
