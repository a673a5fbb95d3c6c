"""Removes instances that the spec does not ask for any more: when their pods may end, and their volumes go. Pure.

An instance is removed from the highest number down, and only when its node holds nothing that counts: no slot, by its
own report and everyone else's, no key that no other node surely has, no replica that stays. First its slots move
(rebalance.py) and its replicas follow others (replication.py); then its pod ends; then all nodes forget it
(membership_repair.py); then its volume goes. Where the spec is taken back meanwhile, it simply stays.
"""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.instance import Instance
from operators.redis.steps.waiting import SYNC_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import PASS, Step
from shared.status.phases import SCALING
from shared.steps import volumes


def replicas(resource: RedisCluster, seen: Assessment, now: datetime) -> int:
    """Return the replicas of the StatefulSet: those of the spec, and all up to the last that cannot go yet."""
    wanted, stateful_set = resource.spec.replicas, seen.stateful_set
    if stateful_set is None:
        known = [place.number for place in seen.places if place.volume or place.recorded] if resource.formed else []
        return max([wanted, *(number + 1 for number in known)])
    there = int(stateful_set["spec"]["replicas"])
    staying = (number for number in range(there - 1, wanted - 1, -1) if not _may_go(resource, seen, number, now))
    return next(staying, wanted - 1) + 1


def _may_go(resource: RedisCluster, seen: Assessment, number: int, now: datetime) -> bool:
    """Whether the pod of an instance that the spec does not ask for may end: nothing that counts is there."""
    place = next((place for place in seen.places if place.number == number), None)
    if place is None:
        return True
    if not resource.formed:
        return place.name not in {node.name for node in resource.forming}
    if not _is_healthy(seen) or place.is_asked(now):
        return False
    if set(seen.agreement.owned) - set(seen.primaries):  # a node has slots to give away yet
        return False
    ids = {place.id, place.recorded.node_id if place.recorded else ""} - {""}
    return all(_is_needless(seen, place, node_id) for node_id in ids)


def _is_healthy(seen: Assessment) -> bool:
    """Whether all nodes agree, every slot has its owner and is closed, and every primary answers."""
    view = seen.agreement
    impaired = view.settled or view.unserved or view.open or seen.unknown_nodes
    return not impaired and all(node.answers for node in view.masters)


def _is_needless(seen: Assessment, place: Instance, node_id: str) -> bool:
    view = seen.view
    node = view.nodes.get(node_id)
    if node is None or node_id not in view.cluster:
        return place.said is None or place.id != node_id or place.is_blank
    followers = [other for other in view.replicas_of(node_id) if _number(seen, other) < seen.resource.spec.replicas]
    if view.slots_of(node_id) or followers:
        return False
    if node.is_replica:
        return not seen.is_needed(node_id) and not seen.changed_pairs and not _lagging(seen)
    return node.said is None or not node.said.keys


def _lagging(seen: Assessment) -> bool:
    """Whether a replica that stays has yet to get what another has that goes; or is away, and may come back."""
    ids = {place.id or (place.recorded.node_id if place.recorded else "") for place in seen.staying}
    return any(node.is_replica and not node.synced for node in seen.view.members if node.id in ids)


def _number(seen: Assessment, node: Seen) -> int:
    place = seen.place_of(node.id)
    return place.number if place else -1


def drop_volumes(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Delete the volume of a removed instance, once no member knows its node: a later instance begins empty."""
    if not resource.formed or seen.stateful_set is None:
        return PASS
    least = max(resource.spec.replicas, int(seen.stateful_set["spec"]["replicas"]))
    removed = [place for place in seen.places if place.number >= least and (place.pod_obj or place.volume)]
    for place in removed:
        if place.volume is None or place.pod_obj is not None or place.volume["metadata"].get("deletionTimestamp"):
            continue
        if place.recorded is None or seen.is_forgotten(place.recorded.node_id):
            owns = bool(place.recorded and seen.view.slots_of(place.recorded.node_id))
            message = f"{place.name} was let go, and held nothing that counts: its volume goes."
            return Step.wait(SCALING, message, volumes.delete(place.volume, in_use=owns))
    if not removed:
        return PASS
    names = ", ".join(place.name for place in removed)
    return Step.progressing(SCALING, f"{names}: let go, on the way out.", requeue=SYNC_SECONDS)
