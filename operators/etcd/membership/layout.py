"""What the StatefulSet is to be, and which disk is recorded: both follow from etcd's list of members. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.bootstrap import Closed, Joining, New, Start
from operators.etcd.observe import Instance, Observed


@dataclass(frozen=True, slots=True)
class Layout:
    """What the StatefulSet is to be.

    Attributes:
        replicas: how many places there are, from 0 on.
        start: what a pod with an empty disk may do.
    """

    replicas: int
    start: Start


def layout(resource: EtcdCluster, seen: Observed) -> Layout:
    """The StatefulSet that follows from the list of members.

    Every member has its place, and so has a learner that has yet to start. Where nobody tells the list, nothing that
    exists is taken away, and nobody may begin or join.
    """
    if seen.members is not None:
        numbers = [instance.number for instance in seen.instances if instance.member]
        learner = seen.learner
        instance = seen.instance_of(learner) if learner and not learner.name else None
        begins = Closed() if instance is None else Joining(instance.number, seen.members)
        return Layout(1 + max(numbers, default=-1) or _replicas(seen), begins)
    if seen.stateful_set is not None:
        return Layout(_replicas(seen), Closed() if begun(resource, seen) else _beginning(resource))
    if not begun(resource, seen):
        return Layout(1, _beginning(resource))
    known = [
        number for member in resource.recorded_members if (number := names.number_of(resource, member.name)) is not None
    ]
    return Layout(
        1 + max([*known, *(instance.number for instance in seen.instances if instance.volume)], default=0), Closed()
    )


def begun(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether there ever was a cluster: if so, none must ever begin in its place.

    The recorded id tells it. Should the status be lost, a StatefulSet that lets nobody begin tells it, or the volume of
    a second member.
    """
    if resource.recorded_cluster_id or seen.cluster_id:
        return True
    if seen.stateful_set is not None and bootstrap.of(seen.stateful_set["spec"]["template"])[0] != "new":
        return resource.spec.restore is None
    return any(instance.volume and instance.number > 0 for instance in seen.instances)


def _beginning(resource: EtcdCluster) -> Start:
    """A cluster that begins with a snapshot finds its data; without them it must not begin, for it would be empty."""
    return New() if resource.spec.restore is None and not resource.is_restored else Closed()


def _replicas(seen: Observed) -> int:
    return int(seen.stateful_set["spec"]["replicas"]) if seen.stateful_set else 1


def recorded_disk(seen: Observed, instance: Instance) -> str:
    """UID of the disk to write down for a place: on it, and on no other, its member's data is.

    It is what a member was last seen healthy on; of a learner that has yet to start, what it will start on. So a disk
    that may hold data is always written down, and that of a former member stays so until it is gone.
    """
    if instance.member is None:
        return instance.recorded if instance.vacated else ""
    awaited = instance.member.learner and not instance.member.name
    return (instance.disk if awaited or seen.healthy(instance) else "") or instance.recorded
