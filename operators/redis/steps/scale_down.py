"""Places that the spec does not ask for any more: when their pods may end, and their volumes go. Pure.

A place is let go from the highest number down, and only when its node holds nothing that counts: no slot, by its own
word and everybody else's, no key that nobody else surely has, no replica that stays. First its slots have gone
(moving.py) and its replicas follow others (scaling.py); then its pod ends; then all forget it (healing.py); then its
volume goes. Wherever that is taken back, the place is simply one that the spec asks for again.
"""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.instance import Instance
from operators.redis.observe import Observed
from operators.redis.steps.membership_repair import agreement, forgotten, needed
from operators.redis.steps.scaling import SCALING, SYNCING, changed_pairs, is_blank, masters, staying
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import PASS, Step
from shared.steps import volumes


def replicas(resource: RedisCluster, seen: Observed, now: datetime) -> int:
    """How many places the StatefulSet must have: what the spec asks for, and below the last one that cannot go yet."""
    wanted, stateful_set = resource.spec.replicas, seen.stateful_set
    if stateful_set is None:
        known = [place.number for place in seen.places if place.volume or place.recorded] if resource.formed else []
        return max([wanted, *(number + 1 for number in known)])
    there = int(stateful_set["spec"]["replicas"])
    for number in range(there - 1, wanted - 1, -1):
        if not _may_go(resource, seen, number, now):
            return number + 1
    return wanted


def _may_go(resource: RedisCluster, seen: Observed, number: int, now: datetime) -> bool:
    """Whether the pod at a place that the spec does not ask for may end: nothing that counts is there.

    By a view on which all agree, in which every slot has its owner, every master answers, and each that stays has its
    replicas in step.
    """
    place = next((place for place in seen.places if place.number == number), None)
    if place is None:
        return True
    if not resource.formed:
        return place.name not in {node.name for node in resource.forming}
    view = agreement(resource, seen)
    if (
        view.settled
        or view.unserved
        or view.open
        or seen.unknown_nodes
        or not all(node.answers for node in view.masters)
    ):
        return False
    if set(view.owned) - set(masters(resource, seen)):  # somebody has slots to give away yet
        return False
    if place.is_asked(now):
        return False
    ids = {place.id, place.recorded.node_id if place.recorded else ""} - {""}
    return all(_is_needless(resource, seen, place, node_id) for node_id in ids)


def _is_needless(resource: RedisCluster, seen: Observed, place: Instance, node_id: str) -> bool:
    view = seen.view
    node = view.nodes.get(node_id)
    if node is None or node_id not in view.cluster:
        return place.said is None or place.id != node_id or is_blank(place)
    followers = [other for other in view.replicas_of(node_id) if _number(seen, other) < resource.spec.replicas]
    if view.slots_of(node_id) or followers:
        return False
    if node.is_replica:
        return not needed(view, node_id) and not changed_pairs(resource, seen) and not _lagging(resource, seen)
    return node.said is None or not node.said.keys


def _lagging(resource: RedisCluster, seen: Observed) -> bool:
    """Whether a replica that stays has yet to get what another has that goes; or is away, and may come back."""
    ids = {place.id or (place.recorded.node_id if place.recorded else "") for place in staying(resource, seen)}
    return any(node.is_replica and not node.synced for node in seen.view.members if node.id in ids)


def _number(seen: Observed, node: Seen) -> int:
    place = seen.place_of(node.id)
    return place.number if place else -1


def drop_volumes(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """The volume of a place that was let go goes too, once no member knows its node: a later one begins empty."""
    if not resource.formed or seen.stateful_set is None:
        return PASS
    least = max(resource.spec.replicas, int(seen.stateful_set["spec"]["replicas"]))
    for place in seen.places:
        if place.number < least or place.volume is None or place.pod_obj is not None:
            continue
        if place.volume["metadata"].get("deletionTimestamp"):
            continue
        if place.recorded is None or forgotten(resource, seen, place.recorded.node_id):
            message = f"{place.name} was let go, and held nothing that counts: its volume goes."
            owns = bool(place.recorded and seen.view.slots_of(place.recorded.node_id))
            return Step.wait(SCALING, message, volumes.delete(place.volume, in_use=owns))
    leaving = [place.name for place in seen.places if place.number >= least and (place.pod_obj or place.volume)]
    return (
        Step.progressing(SCALING, f"{', '.join(leaving)}: let go, on the way out.", requeue=SYNCING)
        if leaving
        else PASS
    )
