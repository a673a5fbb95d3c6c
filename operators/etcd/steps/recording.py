"""What must never be forgotten is recorded in the status before anything else happens. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.membership.layout import recorded_disk
from operators.etcd.objects.bootstrap import successor
from operators.etcd.reasons import ANOTHER_CLUSTER, JOINING, RECORDING
from shared.runtime.plan import PASS, Step


def record_cluster(resource: EtcdCluster, facts: Assessment, _now: datetime) -> Step:
    """Record which cluster this is, and where each member's data is.

    With the id recorded, no seed ever begins another cluster. With the disks recorded, a member that lost its data is
    known from one that is only away. The status itself is written from the same facts (status.py).
    """
    return _record_id(resource, facts) or _refuse_another_cluster(resource, facts) or _record_disks(facts) or PASS


def _record_id(resource: EtcdCluster, facts: Assessment) -> Step | None:
    """Is this the first answer of a new cluster, or of the one that a recovery made?"""
    known, found = resource.recorded_cluster_id, facts.cluster_id
    if found and not known and any(instance.member for instance in facts.instances):
        return Step.wait(RECORDING, f"Cluster {found:016x} has begun: its id is written down.", requeue=0)
    if found and found not in (known, 0) and found == successor(resource):
        return Step.wait(RECORDING, f"The recovery made cluster {found:016x}: its id is written down.", requeue=0)
    return None


def _refuse_another_cluster(resource: EtcdCluster, facts: Assessment) -> Step | None:
    """Do the members answer as a cluster that is not ours?"""
    known, found = resource.recorded_cluster_id, facts.cluster_id
    if not known or found in (0, known):
        return None
    return Step.blocked(
        ANOTHER_CLUSTER,
        f"Members answer as cluster {found:016x}, and this is cluster {known:016x}. Nothing was changed. Somebody "
        "began a new cluster in its place: restore a backup, or bring the volumes of the former members back.",
    )


def _record_disks(facts: Assessment) -> Step | None:
    """Is a member's data on a disk that is not recorded yet?"""
    moved = [
        instance
        for instance in facts.instances
        if instance.member and recorded_disk(facts, instance) != instance.recorded
    ]
    if not moved or not facts.cluster_id:
        return None
    names = ", ".join(instance.name for instance in moved)
    if [instance.member for instance in moved] == [facts.learner]:
        return Step.wait(JOINING, f"{names} joins: where its data will be is written down.", requeue=0)
    return Step.wait(RECORDING, f"Where the data of {names} is, is written down.", requeue=0)
