"""Which nodes of a new cluster are to own which slots, and what keeps it from beginning. Pure.

The plan is recorded in the status before the first command, so that after a crash the operator goes on with the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.redis.api.status import FormingNode, RecordedNode
from operators.redis.assessment import Assessment
from operators.redis.instance import Instance
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.placement import choose_masters
from operators.redis.slots.slot_planner import shares


def planned(seen: Assessment) -> tuple[FormingNode, ...]:
    """Return which node is to own which slots. What is recorded stays, except for nodes that were replaced.

    Empty while not all nodes are there.
    """
    resource = seen.resource
    if seen.has_formed:
        return ()
    if why_incomplete(seen) or why_occupied(seen):
        return resource.forming
    places = {place.name: place for place in seen.staying}
    if resource.forming and all(node.name in places for node in resource.forming):
        return _renewed(resource.forming, places)
    ids = {place.id: place for place in places.values()}
    masters = choose_masters(list(ids), resource.masters, {node_id: place.host for node_id, place in ids.items()}, {})
    plan, start = [], 0
    for epoch, (node_id, share) in enumerate(shares({}, masters).items(), start=1):
        slots = Slots.of(range(start, start + share))
        plan.append(FormingNode(name=ids[node_id].name, node_id=node_id, epoch=epoch, slots=str(slots)))
        start += share
    return tuple(plan)


def _renewed(before: Sequence[FormingNode], places: Mapping[str, Instance]) -> tuple[FormingNode, ...]:
    """The same plan for the nodes that are there now; a new one gets a higher epoch than gossip may know of the old."""
    highest, plan = max(node.epoch for node in before), []
    for node in before:
        if node.node_id != places[node.name].id:
            highest += 1
            node = FormingNode(name=node.name, node_id=places[node.name].id, epoch=highest, slots=node.slots)
        plan.append(node)
    return tuple(plan)


def why_incomplete(seen: Assessment) -> str:
    """Which nodes are not there yet, and why; empty if all are."""
    wanted = seen.resource.spec.replicas
    missing = [place for place in seen.staying if place.said is None]
    if not missing and len(seen.staying) == wanted:
        return ""
    there = len(seen.staying) - len(missing)
    return " ".join([f"{there} of {wanted} nodes are there.", *(place.why_away for place in missing)])


def why_occupied(seen: Assessment) -> str:
    """What a node holds that no node of a new cluster holds; empty if nothing."""
    forming = seen.resource.forming
    given = {node.node_id: Slots.parse(node.slots) for node in forming}
    known = {*given, *(place.id for place in seen.staying), *(node.node_id for node in seen.resource.recorded_nodes)}
    renewed = any(node.node_id not in seen.reachable for node in forming)
    for place in seen.staying:
        if (said := place.said) is None:
            continue
        if said.keys and (renewed or not said.me.slots):
            return f"{place.name} holds {said.keys} keys"
        if beyond := said.me.slots - given.get(said.id, Slots()):
            return f"{place.name} owns slots {beyond}"
        if foreign := [node.id for node in said.nodes if not node.handshake and node.id not in known]:
            return f"{place.name} knows node {foreign[0]}, which is of no pod of this cluster"
    return ""


def replaced_node(seen: Assessment) -> RecordedNode | None:
    """A recorded node whose instance has another node now, and which a node still knows."""
    told = {node.id for place in seen.places if place.said for node in place.said.nodes}
    known = (place.recorded for place in seen.staying if place.recorded)
    return next((node for node in known if node.node_id in told - seen.reachable.keys()), None)
