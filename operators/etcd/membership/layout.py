"""Desired layout of the StatefulSet, and the volumes to record: both follow from etcd's list of members. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.spec import MAX_SIZE
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.bootstrap import Closed, Joining, New, Start
from operators.etcd.objects.names import SERVES
from operators.etcd.state.observed import Instance, Observed
from shared.kubernetes import ordinals
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj


@dataclass(frozen=True, slots=True)
class Layout:
    """Desired layout of the StatefulSet.

    Attributes:
        replicas: number of pods, numbered from 0.
        start: permission of a pod with an empty volume.
        serves: whether a new pod receives clients at once: not while a member is a learner, which rejects them, or a
            recovery keeps a volume, on whose data a pod may belong to the former cluster.
    """

    replicas: int
    start: Start
    serves: bool = True


def layout(resource: EtcdCluster, seen: Observed) -> Layout:
    """Return the layout that follows from the list of members.

    Every member has a pod, and so has a learner that has not started yet. Without a list, nothing that exists is
    deleted, and no pod may bootstrap or join.
    """
    kept = any(instance.kept_by for instance in seen.instances)
    if seen.members is not None:
        numbers = [instance.number for instance in seen.instances if instance.member]
        learner = seen.learner
        instance = seen.instance_of(learner) if learner and not learner.name else None
        begins = Closed() if instance is None else Joining(instance.number, seen.members)
        if seen.unknown_members:  # one of them may be the member of a pod that would be deleted
            numbers.append(_replicas(seen) - 1)
        return Layout(1 + max(numbers, default=-1) or _replicas(seen), begins, serves=learner is None and not kept)
    if seen.stateful_set is not None:
        start = Closed() if begun(resource, seen) else _beginning(resource)
        return Layout(_replicas(seen), start, serves=_serves(seen.stateful_set) and not kept)
    if not begun(resource, seen):
        return Layout(1, _beginning(resource))
    recorded, present = resource.recorded_members, (instance.name for instance in seen.instances if instance.volume)
    known = (names.number_of(resource, name) for name in (*(member.name for member in recorded), *present))
    return Layout(1 + max((number for number in known if number is not None), default=0), Closed())


def begun(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether the cluster ever existed: if so, no other may be bootstrapped instead.

    The recorded id shows it, or an adoption of volumes. If the status is lost, a StatefulSet that forbids bootstrapping
    shows it, or a volume that records its cluster, or the volume of a second member.
    """
    if resource.recorded_cluster_id or seen.cluster_id or resource.adopted_from:
        return True
    if seen.stateful_set is None and resource.adopts_from:
        return True
    if any(annotation(instance.volume, names.CLUSTER_ID) for instance in seen.instances):
        return True
    if seen.stateful_set is not None and bootstrap.of(seen.stateful_set["spec"]["template"])[0] != "new":
        return resource.spec.restore is None
    return any(instance.volume and instance.number > 0 for instance in seen.instances)


def _beginning(resource: EtcdCluster) -> Start:
    """Return the permission of the seed: one with a restored snapshot must find its data, and never bootstrap empty."""
    return New() if resource.spec.restore is None and not resource.is_restored else Closed()


def _replicas(seen: Observed) -> int:
    return ordinals.replicas(seen.stateful_set, MAX_SIZE) if seen.stateful_set else 1


def _serves(stateful_set: Obj) -> bool:
    """Whether new pods receive clients, by the present template: without a list of members, that is kept."""
    template = stateful_set["spec"]["template"]
    return SERVES in template["metadata"]["labels"]


def recorded_disk(seen: Observed, instance: Instance) -> str:
    """Return the UID of the volume to record for an instance: the only one that has its member's data.

    For a member, it is the volume on which it was last healthy; for a learner that has not started, the one on which it
    will start. So a volume that may have data is always recorded, and that of a former member until it is deleted.
    """
    if instance.member is None:
        return instance.disk if instance.vacated or instance.kept_by else ""
    awaited = instance.member.learner and not instance.member.name
    return (instance.disk if awaited or seen.healthy(instance) else "") or instance.recorded
