"""More nodes and fewer: who joins, who is a master, which slots move, who replicates whom, who is let go. Pure.

What is to be follows from the spec and from who is there; what is, from the nodes. The difference is planned anew each
time, so that a crash at any moment, and any change of the spec, only leaves another difference. Masters are made and
unmade because the spec asks for another number of them, and for no other reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import FailOver, Meet, Replicate
from operators.redis.instance import Instance, endpoint
from operators.redis.observe import Observed
from operators.redis.slots.placement import choose_masters, pair
from operators.redis.slots.slot_planner import Move, remaining
from operators.redis.steps.bootstrap import SOON, why_away
from operators.redis.steps.membership_repair import HELD, TURNING, dismissed, needed
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress
from shared.steps import volumes

SCALING = "Scaling"

SYNCING = 2.0
"""Seconds until replicas are asked again whether they have got everything."""


def staying(resource: RedisCluster, seen: Observed) -> tuple[Instance, ...]:
    """The places that the spec asks for."""
    return tuple(place for place in seen.places if place.number < resource.spec.replicas)


def members(resource: RedisCluster, seen: Observed) -> Mapping[str, Instance]:
    """Nodes of the cluster that answer, at places that stay, by id."""
    return {place.id: place for place in staying(resource, seen) if place.said and place.id in seen.view.cluster}


def awaited(resource: RedisCluster, seen: Observed) -> tuple[Instance, ...]:
    """Places that stay, and where no node of the cluster answers."""
    there = members(resource, seen)
    return tuple(place for place in staying(resource, seen) if place.id not in there)


def is_blank(place: Instance) -> bool:
    """Whether a node that answers holds nothing: no key, no slot; and it follows nobody."""
    said = place.said
    return said is not None and not said.keys and not said.me.slots and not said.me.master


def promised(resource: RedisCluster, seen: Observed) -> tuple[Move, ...]:
    """What is left of the moves that were written down; who took the place of a master meanwhile gets its slots."""
    if resource.spec.update_strategy.type == "AutoReceive":
        return ()
    known = [(move, successor(seen, move.target)) for move in resource.recorded_assigned]
    return remaining([Move(move.source, heir, move.slots) for move, heir in known if heir], seen.view.owned)


def successor(seen: Observed, node_id: str) -> str:
    """The master that a node is, or that took its place; empty if nobody did."""
    view = seen.view
    node = view.nodes.get(node_id)
    if node is not None and node.answers:
        return node.master or node_id
    followed = [known for known, place in seen.recorded.items() if place.recorded and place.recorded.master == node_id]
    heirs = [
        heir for heir in followed if heir in view.nodes and view.nodes[heir].answers and view.nodes[heir].is_master
    ]
    return heirs[0] if heirs else (node_id if node is not None and not seen.lost(node_id) else "")


def masters(resource: RedisCluster, seen: Observed) -> tuple[str, ...]:
    """Ids of the nodes that are to be masters, as many as the spec asks for, if there are as many that can be.

    Those that own slots, or were promised some, as long as they stay; where one goes, a replica of it that stays takes
    over; and for those that are lacking, nodes that hold nothing. A master that does not answer is still one.
    """
    view, there = seen.view, members(resource, seen)
    stay = {place.recorded.node_id for place in staying(resource, seen) if place.recorded} | there.keys()
    owners = {node.id: view.slots_of(node.id) for node in view.masters}
    for move in promised(resource, seen):  # to another one they would be promised once more
        if move.target in stay and view.nodes[move.target].is_master:
            owners[move.target] = view.slots_of(move.target) | move.slots
    leaving = owners.keys() - stay
    candidates = [
        node_id
        for node_id in (*there, *sorted(stay & owners.keys() - there.keys()))
        if node_id in owners or view.nodes[node_id].master in leaving or is_blank(there[node_id])
    ]
    hosts = {node_id: place.host for node_id in candidates if (place := seen.place_of(node_id))}
    current = {node_id: view.nodes[node_id].master for node_id in candidates}
    return choose_masters(candidates, resource.masters, hosts, owners, current)


def join_nodes(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A new node that holds nothing becomes a member; which one it is was written down before (`record_nodes`)."""
    if not resource.formed or not seen.view.masters:
        return PASS
    view = seen.view
    new = [place for place in staying(resource, seen) if place.said and place.id not in view.cluster]
    known = [place for place in new if place.recorded and place.recorded.node_id == place.id and not place.leaving]
    if full := [place for place in known if not is_blank(place)]:
        said = full[0].said
        assert said is not None
        return Step(
            (),
            Progress.WAITING,
            "NodeNotEmpty",
            f"{full[0].name} is no member of the cluster, and holds {said.keys} keys: it is neither joined nor "
            "emptied. If nobody needs them, delete its volume claim and its pod: an empty one takes its place.",
            warning=True,
            requeue=HELD,
        )
    if not known:
        return PASS
    via = tuple(endpoint(resource, seen.reachable[voice.id]) for voice in view.reachable_nodes)
    met = {address for _, address in view.being_met}
    calls = [
        Meet(seen.secrets.access, endpoint(resource, place), id=place.id, via=via)
        for place in known
        if place.pod and place.pod.address not in met
    ]
    names = ", ".join(place.name for place in known)
    return Step.wait("Joining", f"New nodes join, which are empty: {names}.", *calls, requeue=SOON)


def pairs(resource: RedisCluster, seen: Observed) -> Mapping[str, str]:
    """The master that each replica is to have, by id: hosts apart, evenly, with the fewest changes.

    Who does not answer and may come back counts where it is: a restart is no reason to give anybody another master.
    """
    view, there, leading = seen.view, members(resource, seen), masters(resource, seen)
    away = [
        node.id
        for node in view.members
        if not node.answers and node.is_replica and not seen.lost(node.id) and not dismissed(resource, seen, node.id)
    ]
    following = [node_id for node_id in (*there, *away) if node_id not in leading and not view.slots_of(node_id)]
    hosts = {node_id: place.host for node_id in (*leading, *following) if (place := seen.place_of(node_id))}
    current = {node_id: view.nodes[node_id].master for node_id in following if view.nodes[node_id].master}
    # Who takes over from a master that goes follows that one until then.
    heads = {view.nodes[master].master or master: master for master in leading}
    current = {node_id: heads.get(master, master) for node_id, master in current.items()}
    return pair(leading, following, hosts, current)


def changed_pairs(resource: RedisCluster, seen: Observed) -> Mapping[str, str]:
    """Replicas that answer and are to have another master than now, by id."""
    view = seen.view
    heads = {view.nodes[master].master or master: master for master in masters(resource, seen)}
    return {
        node_id: master
        for node_id, master in pairs(resource, seen).items()
        if node_id in seen.reachable
        and view.nodes[master].answers
        and heads.get(view.nodes[node_id].master, view.nodes[node_id].master) != master
    }


def pair_replicas(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Each master has its replicas, on other hosts where there are any.

    Nodes that hold nothing follow at once. Who follows somebody already gets everything anew, and has nothing until
    then: so one at a time, while all others are in step, and only if its present master surely has what it has.
    """
    if not resource.formed:
        return PASS
    view, changes = seen.view, changed_pairs(resource, seen)
    blank = {node_id: master for node_id, master in changes.items() if is_blank(seen.reachable[node_id])}
    if blank:
        told = "; ".join(
            f"{seen.name_of(node_id)} replicates {seen.name_of(master)}" for node_id, master in blank.items()
        )
        return Step.wait(
            "Pairing", f"{told}.", *(_replicate(resource, seen, *each) for each in blank.items()), requeue=SOON
        )
    for node_id, master in changes.items():
        node = view.nodes[node_id]
        told = f"{node.name} is to replicate {seen.name_of(master)}"
        if node.is_master:
            keys = node.said.keys if node.said else 0
            message = (
                f"{told}, and holds {keys} keys of slots that it does not own. It is left as it is. If nobody needs "
                "them, delete its volume claim and its pod: an empty one takes its place."
            )
            return Step((), Progress.PROGRESSING, "NodeNotEmpty", message, warning=True, requeue=HELD)
        if why := _unsynced(seen):
            return Step.progressing("Pairing", f"{told}, once all others are in step: {why}", requeue=SYNCING)
        if needed(view, node_id):
            message = f"{told}, and nobody else surely has what it has: {seen.name_of(node.master)} does not answer."
            return Step((), Progress.PROGRESSING, "PairingHeld", message, warning=True, requeue=HELD)
        return Step.wait("Pairing", f"{told}.", _replicate(resource, seen, node_id, master), requeue=SOON)
    return PASS


def _replicate(resource: RedisCluster, seen: Observed, node_id: str, master: str) -> Replicate:
    return Replicate(seen.secrets.access, endpoint(resource, seen.reachable[node_id]), node_id, master)


def _unsynced(seen: Observed) -> str:
    """Which replicas do not follow their masters at this time; empty if all do whose masters own slots.

    Who replicates a node that owns none copies nothing that counts, and may do so for ever: that one may be gone.
    """
    view = seen.view
    out = [
        node.name for node in view.members if view.slots_of(node.master) and not node.synced and not seen.lost(node.id)
    ]
    return f"{', '.join(out)} not yet." if out else ""


def hand_over(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A master at a place that goes leaves its slots to a replica that stays: no slot moves for it."""
    if not resource.formed:
        return PASS
    view = seen.view
    for node_id in masters(resource, seen):
        node = view.nodes[node_id]
        if not node.is_replica or view.slots_of(node_id):
            continue
        told = f"{seen.name_of(node.master)} goes, and {node.name} takes its place"
        if not node.synced or not view.nodes[node.master].answers:
            return Step.wait(SCALING, f"{told} once it has all of its data, and both are there.", requeue=SYNCING)
        call = FailOver(seen.secrets.access, endpoint(resource, seen.reachable[node_id]), node_id, "")
        return Step.wait(SCALING, f"{told}.", call, requeue=TURNING)
    return PASS


def make_room_for_masters(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Where more masters are asked for than nodes hold nothing, a replica too many begins anew with an empty disk.

    There is no command that empties a node and keeps everybody safe from it: its disk goes, which loses the copy of
    what its master has.
    """
    if not resource.formed:
        return PASS
    leading = masters(resource, seen)
    lacking = resource.masters - len(leading)
    if lacking <= 0:
        return PASS
    told = f"{len(leading)} of {resource.masters} masters are there"
    if resource.spec.template.volumes is not None:
        message = f"{told}, and no node holds nothing: raise spec.replicas by {lacking}; new nodes become masters."
        return Step((), Progress.WAITING, SCALING, message, warning=True, requeue=HELD)
    if away := [place for place in staying(resource, seen) if place.id not in members(resource, seen)]:
        return Step.wait(SCALING, f"{told}. {' '.join(map(why_away, away))}", requeue=SYNCING)
    if why := _unsynced(seen):
        return Step.wait(SCALING, f"{told}. A replica becomes one, once all are in step: {why}", requeue=SYNCING)
    view = seen.view
    following = [place for place in members(resource, seen).values() if view.nodes[place.id].synced]
    spare = [place for place in following if not needed(view, place.id)]
    if not spare:
        return Step((), Progress.WAITING, SCALING, f"{told}, and no replica can be spared.", warning=True, requeue=HELD)
    place = max(spare, key=lambda place: (len(view.replicas_of(view.nodes[place.id].master)), place.number))
    message = f"{told}: {place.name} begins anew with an empty disk, for it is to be one; its master has what it has."
    return Step.wait(SCALING, message, *volumes.replace_disk(place, in_use=bool(view.slots_of(place.id))))
