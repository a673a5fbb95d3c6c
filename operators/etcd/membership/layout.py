"""What follows from the list of members, and what must be known before anything follows. Pure.

etcd's own list is the truth; places, pods and what an empty disk may do are derived from it (`layout`). What the list
does not tell, and must never be forgotten, stands in the resource's status: which cluster this is, and where each
member's data is (`record_cluster`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership import bootstrap
from operators.etcd.membership.bootstrap import Closed, Joining, New, Start
from operators.etcd.objects import resources
from operators.etcd.objects.resources import CLUSTER_UID
from operators.etcd.observe import Instance, Observed
from operators.etcd.steps import quorum_recovery
from shared.runtime.plan import PASS, Step


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
        numbers = [place.number for place in seen.places if place.member]
        learner = seen.learner
        place = seen.place_of(learner) if learner and not learner.name else None
        begins = Closed() if place is None else Joining(place.number, seen.members)
        return Layout(1 + max(numbers, default=-1) or _replicas(seen), begins)
    if seen.stateful_set is not None:
        return Layout(_replicas(seen), Closed() if begun(resource, seen) else _beginning(resource))
    if not begun(resource, seen):
        return Layout(1, _beginning(resource))
    known = [
        number
        for member in resource.recorded_members
        if (number := resources.number_of(resource, member.name)) is not None
    ]
    return Layout(1 + max([*known, *(place.number for place in seen.places if place.volume)], default=0), Closed())


def begun(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether there ever was a cluster: if so, none must ever begin in its place.

    The recorded id tells it. Should the status be lost, a StatefulSet that lets nobody begin tells it, or the volume of
    a second member.
    """
    if resource.recorded_cluster_id or seen.cluster_id:
        return True
    if seen.stateful_set is not None and bootstrap.of(seen.stateful_set["spec"]["template"])[0] != "new":
        return resource.spec.restore is None
    return any(place.volume and place.number > 0 for place in seen.places)


def _beginning(resource: EtcdCluster) -> Start:
    """A cluster that begins with a snapshot finds its data; without them it must not begin, for it would be empty."""
    return New() if resource.spec.restore is None and not resource.is_restored else Closed()


def _replicas(seen: Observed) -> int:
    return int(seen.stateful_set["spec"]["replicas"]) if seen.stateful_set else 1


def recorded_disk(seen: Observed, place: Instance) -> str:
    """UID of the disk to write down for a place: on it, and on no other, its member's data is.

    It is what a member was last seen healthy on; of a learner that has yet to start, what it will start on. So a disk
    that may hold data is always written down, and that of a former member stays so until it is gone.
    """
    if place.member is None:
        return place.recorded if place.vacated else ""
    awaited = place.member.learner and not place.member.name
    return (place.disk if awaited or seen.healthy(place) else "") or place.recorded


def refuse_foreign_volumes(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A volume that another cluster wrote on is never taken, nor deleted."""
    for place in seen.places:
        labels = (place.volume or {"metadata": {}})["metadata"].get("labels") or {}
        if place.volume is None or labels.get(CLUSTER_UID) == resource.uid:
            continue
        whose = f"another cluster's (uid {labels[CLUSTER_UID]})" if CLUSTER_UID in labels else "not this cluster's"
        name = place.volume["metadata"]["name"]
        return Step.blocked(
            "VolumeInTheWay",
            f"PersistentVolumeClaim {name} exists, and its data is {whose}. It was left alone; nothing was changed. "
            "Rename this resource; or, if nobody needs that data, delete the claim. To go on with the data of a "
            "resource that was deleted, restore a backup of it (spec.restore).",
        )
    return PASS


def record_cluster(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """What must never be forgotten is written into the status before anything else happens.

    Which cluster it is: then no seed ever begins another. And where each member's data is: then a member that lost it
    is known from one that is merely away.
    """
    known, found = resource.recorded_cluster_id, seen.cluster_id
    if not found:
        return PASS
    if not known and any(place.member for place in seen.places):
        return Step.wait("Recording", f"Cluster {found:016x} has begun: its id is written down.", requeue=0)
    if known != found and found == quorum_recovery.successor(resource):
        return Step.wait("Recording", f"The recovery made cluster {found:016x}: its id is written down.", requeue=0)
    if known and known != found:
        return Step.blocked(
            "AnotherCluster",
            f"Members answer as cluster {found:016x}, and this is cluster {known:016x}. Nothing was changed. Somebody "
            "began a new cluster in its place: restore a backup, or bring the volumes of the former members back.",
        )
    if seen.members is None:
        return PASS
    moved = [place for place in seen.places if place.member and recorded_disk(seen, place) != place.recorded]
    if moved:
        names = ", ".join(place.name for place in moved)
        if [place.member for place in moved] == [seen.learner]:
            return Step.wait("Joining", f"{names} joins: where its data will be is written down.", requeue=0)
        return Step.wait("Recording", f"Where the data of {names} is, is written down.", requeue=0)
    return PASS
