"""Records the cluster id and the volumes of members in the status before anything depends on them. Pure."""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.layout import recorded_disk
from operators.etcd.membership.volume_record import lost_records
from operators.etcd.objects.bootstrap import successor
from operators.etcd.reasons import ANOTHER_CLUSTER, JOINING, RECORDING
from operators.etcd.steps.adoption import is_adopting
from shared.runtime.plan import PASS, Step


def record_cluster(seen: Assessment) -> Step:
    """Record the id of the cluster, and the volume of each member.

    With the id recorded, no seed ever bootstraps another cluster. With the volumes recorded, a member that lost its
    data is distinguished from one that is only unreachable. The status itself is written from the same facts
    (report/status.py).
    """
    return _restore_status(seen) or _record_id(seen) or _refuse_another_cluster(seen) or _record_disks(seen) or PASS


def _restore_status(seen: Assessment) -> Step | None:
    """Record what the volume claims have of a lost status, while no list of members replaces it."""
    if is_adopting(seen) or not (found := lost_records(seen.resource, seen)):
        return None
    names = ", ".join(record.name for record in found)
    message = f"The status was lost: recording what the volume claims of {names} have of the members."
    return Step.wait(RECORDING, message, requeue=0)


def _record_id(seen: Assessment) -> Step | None:
    """Record the id of a new cluster, or of the one that a recovery created."""
    known, found = seen.resource.recorded_cluster_id, seen.cluster_id
    if found and not known and any(instance.member for instance in seen.instances):
        return Step.wait(RECORDING, f"The cluster has started: recording its id {found:016x} in status.", requeue=0)
    if found and found not in (known, 0) and found == successor(seen.resource):
        message = f"The recovery created a new cluster: recording its id {found:016x} in status."
        return Step.wait(RECORDING, message, requeue=0)
    return None


def is_another_cluster(seen: Assessment) -> bool:
    """Whether the members report the id of another cluster than the recorded one, and no recovery created it."""
    known = seen.resource.recorded_cluster_id
    return bool(known) and seen.cluster_id not in (0, known, successor(seen.resource))


def _refuse_another_cluster(seen: Assessment) -> Step | None:
    """Block if the members report the id of another cluster."""
    if not is_another_cluster(seen):
        return None
    return Step.blocked(
        ANOTHER_CLUSTER,
        f"Members report cluster id {seen.cluster_id:016x}, but this is cluster "
        f"{seen.resource.recorded_cluster_id:016x}. Nothing was changed. A new cluster was created instead of this "
        "one: restore a backup, or bring back the volumes of the former members.",
    )


def _record_disks(seen: Assessment) -> Step | None:
    """Record a member's volume that is not in the status yet."""
    moved = [each for each in seen.instances if each.member and recorded_disk(seen, each) != each.recorded]
    if not moved or not seen.cluster_id:
        return None
    names = ", ".join(instance.name for instance in moved)
    if [instance.member for instance in moved] == [seen.learner]:
        return Step.wait(JOINING, f"{names} is joining: recording its volume in status.", requeue=0)
    return Step.wait(RECORDING, f"Recording the volume of {names} in status.", requeue=0)
