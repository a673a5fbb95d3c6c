"""How a cluster begins: once ever, of nodes that hold nothing. Pure.

Who is to own which slots is written into the status before the first command, so that whoever goes on after a crash
goes on with the same. Then every step asks the nodes how far it is:

1. a configuration epoch of its own for each master, while it knows nobody: a node at epoch 0 would lose its slots to
   whatever is gossiped of them (valkey-operator #197);
2. all meet;
3. each master takes its slots, which nobody owns yet;
4. when all agree who owns what, `status.formed` says so, for ever: from then on no slot is ever given to a node that
   does not hold its keys, unless a person allows just that (recovery.py). Replicas follow as at any other time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import FormingNode, RecordedNode
from operators.redis.client.commands import AddSlots, Forget, Meet, SetEpoch
from operators.redis.client.responses import NodeReport
from operators.redis.instance import Instance, endpoint
from operators.redis.observe import Observed
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.placement import choose_masters
from operators.redis.slots.slot_planner import shares
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

SOON = 0.5
"""Seconds until nodes are asked again about what moves among them alone: no watch tells of that."""

CREATING = "Creating"


def form(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A new cluster begins: of empty nodes, or not at all."""
    if resource.formed:
        return PASS
    if formed(resource, seen):
        return Step.wait(CREATING, "Every slot has its owner: that the cluster has begun is written down.", requeue=0)
    if awaited := _awaited(resource, seen):
        troubled = any(place.pod and place.pod.trouble for place in _expected(resource, seen))
        return Step((), Progress.WAITING, CREATING, awaited, warning=troubled, requeue=SOON)
    if occupied := _occupied(resource, seen):
        return Step.blocked(
            "NotEmpty",
            f"A cluster begins with empty nodes, and {occupied}. Nothing was changed. If nobody needs what is there, "
            "delete this resource and its volume claims, and create it anew.",
        )
    if gone := _gone(resource, seen):
        message = f"{gone[0].name} is another node than before, and empty: the others forget the former one."
        others = tuple(endpoint(resource, place) for place in _expected(resource, seen))
        return Step.wait(CREATING, message, Forget(seen.secrets.access, gone[0].node_id, others), requeue=SOON)
    plan = planned(resource, seen)
    if resource.forming != plan or not _recorded(resource, seen):
        message = "All nodes are there, and empty: who is to own which slots is written down."
        return Step.wait(CREATING, message, requeue=0)
    return _begin(resource, seen, plan)


def formed(resource: RedisCluster, seen: Observed) -> bool:
    """Whether there is a cluster: once that was written down, for ever.

    Before, there is one when every slot has an owner among our nodes, and all agree on that; so a resource whose status
    was lost knows its cluster again.
    """
    if resource.formed:
        return True
    view = seen.view
    return not view.uncovered and not view.settled and seen.reachable.keys() >= set(view.owners.values())


def planned(resource: RedisCluster, seen: Observed) -> tuple[FormingNode, ...]:
    """Who is to own which slots; what was written down before stays, but for nodes that are gone.

    Empty while it cannot be told, for not all nodes are there.
    """
    if formed(resource, seen):
        return ()
    if _awaited(resource, seen) or _occupied(resource, seen):
        return resource.forming
    places = {place.name: place for place in _expected(resource, seen)}
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
    """The same for the nodes that are there now; who is new outbids what may be gossiped of who was before."""
    highest, plan = max(node.epoch for node in before), []
    for node in before:
        if node.node_id != places[node.name].id:
            highest += 1
            node = FormingNode(name=node.name, node_id=places[node.name].id, epoch=highest, slots=node.slots)
        plan.append(node)
    return tuple(plan)


def _expected(resource: RedisCluster, seen: Observed) -> list[Instance]:
    """The places of a cluster that begins."""
    return [place for place in seen.places if place.number < resource.spec.replicas]


def _awaited(resource: RedisCluster, seen: Observed) -> str:
    """Who of the nodes is not there yet, and why; empty if all are."""
    expected = _expected(resource, seen)
    missing = [place for place in expected if place.said is None]
    if not missing and len(expected) == resource.spec.replicas:
        return ""
    there = len(expected) - len(missing)
    return " ".join([f"{there} of {resource.spec.replicas} nodes are there.", *map(why_away, missing)])


def why_away(place: Instance) -> str:
    """A sentence that says why nobody answers at a place."""
    if place.pod is None:
        return f"{place.name} has no pod."
    if place.pod.trouble:
        return f"{place.name} does not start: {place.pod.trouble}"
    if place.leaving:
        return f"{place.name} is on the way out."
    if place.error and place.ready:
        return f"{place.name} does not answer: {place.error.rstrip('.')}."
    return f"{place.name} starts."


def _occupied(resource: RedisCluster, seen: Observed) -> str:
    """What a node has that none has in a cluster that begins; empty if nothing."""
    expected = [place for place in _expected(resource, seen) if place.said]
    given = {node.node_id: Slots.parse(node.slots) for node in resource.forming}
    known = {*given, *(place.id for place in expected), *(former.node_id for former in resource.recorded_nodes)}
    renewed = any(node.node_id not in seen.reachable for node in resource.forming)
    for place in expected:
        said = place.said
        assert said is not None
        if said.keys and (renewed or not said.me.slots):
            return f"{place.name} holds {said.keys} keys"
        if beyond := said.me.slots - given.get(said.id, Slots()):
            return f"{place.name} owns slots {beyond}"
        if foreign := [node.id for node in said.nodes if not node.handshake and node.id not in known]:
            return f"{place.name} knows node {foreign[0]}, which is of no pod of this cluster"
    return ""


def _gone(resource: RedisCluster, seen: Observed) -> list[RecordedNode]:
    """Former nodes of places that have another one now, which somebody still knows."""
    told = {node.id for place in seen.places if place.said for node in place.said.nodes}
    return [
        place.recorded
        for place in _expected(resource, seen)
        if place.recorded and place.recorded.node_id in told - seen.reachable.keys()
    ]


def _recorded(resource: RedisCluster, seen: Observed) -> bool:
    """Whether the status says which node is on which disk."""
    return all(
        place.recorded and (place.recorded.node_id, place.recorded.disk) == (place.id, place.disk)
        for place in _expected(resource, seen)
    )


def _begin(resource: RedisCluster, seen: Observed, plan: Sequence[FormingNode]) -> Step:
    """The next commands; what is so already is not asked for again."""
    access = seen.secrets.access
    said = {place.id: place.said for place in _expected(resource, seen) if place.said}
    at = {node_id: endpoint(resource, seen.reachable[node_id]) for node_id in said}
    alone = [node for node in plan if said[node.node_id].me.epoch == 0 and len(said[node.node_id].nodes) == 1]
    if alone:
        calls = [SetEpoch(access, at[node.node_id], node.node_id, node.epoch) for node in alone]
        message = f"{', '.join(node.name for node in plan)} are to be masters: each gets an epoch of its own."
        return Step.wait(CREATING, message, *calls, requeue=SOON)
    first, *others = said
    strange = [node_id for node_id in others if not _acquainted(said, first, node_id)]
    if strange:
        met = {address for asker, address in seen.view.being_met if asker == first}
        meet = [
            Meet(access, at[node_id], id=node_id, via=(at[first],))
            for node_id in strange
            if at[node_id].address not in met
        ]
        return Step.wait(CREATING, f"{len(said)} nodes meet.", *meet, requeue=SOON)
    lacking = {node.node_id: Slots.parse(node.slots) - said[node.node_id].me.slots for node in plan}
    taken = [AddSlots(access, at[node_id], node_id, slots) for node_id, slots in lacking.items() if slots]
    if taken:
        return Step.wait(CREATING, f"{len(plan)} masters take their slots.", *taken, requeue=SOON)
    return Step.wait(CREATING, f"Nodes learn who owns which slots. {seen.view.settled}".strip(), requeue=SOON)


def _acquainted(said: Mapping[str, NodeReport], one: str, other: str) -> bool:
    """Whether two nodes know each other, in both directions."""
    return said[one].node(other) is not None and said[other].node(one) is not None
