"""Slots on their way: which move next, what was promised to whom, and what people are told of it. Pure.

Who is to own how many follows from the masters that there are to be (`scaling.masters`). Only where somebody gave the
slots by hand (AssignReceive) must it be written down before the first moves: afterwards nobody could tell which of them
a new master got because it was promised them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import Endpoint
from operators.redis.instance import endpoint
from operators.redis.migration.commands import CloseSlots, MoveSlots
from operators.redis.observe import Observed
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import (
    CannotAssign,
    CannotMove,
    Move,
    assigned,
    balanced,
    drained,
    moved,
)
from operators.redis.steps.bootstrap import SOON, why_away
from operators.redis.steps.membership_repair import HELD
from operators.redis.steps.scaling import SCALING, SYNCING, awaited, changed_pairs, masters, promised, successor
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

BUDGET = 5.0
"""Seconds that one call moves slots for; then all is looked at anew."""

FULL = 0.95
"""Part of maxmemory that a node may have in use after a move; above it, it would take no write, or give keys up."""


def wanted(resource: RedisCluster, seen: Observed) -> tuple[Move, ...]:
    """The moves that are left until every slot is where it is to be.

    Raises:
        CannotAssign: what the spec says of new masters cannot be followed to the letter.
        CannotMove: a slot has no owner, or two.
    """
    owned, leading = seen.view.owned, masters(resource, seen)
    if resource.spec.update_strategy.type == "AutoReceive":
        return balanced(owned, leading)
    given = assignment(resource, seen)
    return (*given, *drained(moved(owned, given), leading))


def assignment(resource: RedisCluster, seen: Observed) -> tuple[Move, ...]:
    """What new masters have yet to get because the spec says so: what was written down, and what is new.

    What has been done is not told any more, so that what a master gives later is not given back to it.

    Raises:
        CannotAssign: what the spec says cannot be followed to the letter.
    """
    if resource.spec.update_strategy.type == "AutoReceive":
        return ()
    before = promised(resource, seen)
    if awaited(resource, seen):  # somebody else may yet be a better master, and who is promised slots stays one
        return before
    owned = moved(seen.view.owned, before)
    new = [node_id for node_id in masters(resource, seen) if not owned.get(node_id)]
    return (*before, *(assigned(owned, resource.spec.update_strategy.strategies, new) if new else ()))


def mend_open_slots(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A slot that was left on its way arrives, from who owns it now to who has its keys in part.

    It is never given to a node by a word alone: the engine moves what is left of its keys first (migration/).
    """
    if not resource.formed or not seen.view.open:
        return PASS
    view, onward, back = seen.view, dict[tuple[str, str], Slots](), dict[tuple[str, str], Slots]()
    waiting: list[str] = []
    for slot in view.open:
        target = successor(seen, slot.target)
        if not slot.owner or not view.nodes[slot.owner].answers:
            waiting.append(f"slot {slot.slot} of {seen.name_of(slot.source)}")
        elif target == slot.owner or not target:
            back[slot.source, slot.target] = back.get((slot.source, slot.target), Slots()) | Slots.of(slot.slot)
        elif view.nodes[target].answers:
            onward[slot.owner, target] = onward.get((slot.owner, target), Slots()) | Slots.of(slot.slot)
        else:
            waiting.append(f"slot {slot.slot} on its way to {seen.name_of(target)}")
    told = f"{brief(Slots.of(*(slot.slot for slot in view.open)))} were left on their way"
    calls = [
        CloseSlots(seen.secrets.access, source, target, slots, _nodes(resource, seen))
        for (source, target), slots in back.items()
    ]
    if onward:
        moves = tuple(Move(source, target, slots) for (source, target), slots in onward.items())
        return Step.wait("MendingSlots", f"{told}, and arrive.", *calls, _call(resource, seen, moves), requeue=SOON)
    if calls:
        return Step.wait("MendingSlots", f"{told}, and have arrived: they are closed.", *calls, requeue=SOON)
    message = f"{told}; an end of them does not answer: {', '.join(waiting[:3])}."
    return Step((), Progress.WAITING, "SlotsOpen", message, warning=True, requeue=HELD)


def move_slots(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Slots move to where they are to be, the fewest that must; disjoint pairs of nodes at once."""
    if not resource.formed:
        return PASS
    view = seen.view
    try:
        moves, given = wanted(resource, seen), assignment(resource, seen)
    except CannotAssign as error:
        return Step.blocked("AssignRefused", f"{error} Nothing was changed.")
    except CannotMove as error:
        return Step((), Progress.WAITING, "MovingHeld", str(error), warning=True, requeue=HELD)
    if not moves:
        return PASS
    if silent := [master for master in view.masters if not master.answers]:
        message = f"Slots are to move, and {silent[0].name}, which owns some, does not answer: it is waited for."
        return Step((), Progress.WAITING, "MovingHeld", message, warning=True, requeue=SYNCING)
    if given != promised(resource, seen):
        return Step.wait(SCALING, "Who gives which slots to new masters is written down.", requeue=0)
    targets = {move.target for move in moves}
    new = [target for target in targets if not view.slots_of(target)]
    if new and (away := awaited(resource, seen)):
        told = f"Slots move to {', '.join(map(seen.name_of, new))} once all nodes are there."
        return Step.wait(SCALING, " ".join([told, *map(why_away, away)]), requeue=SYNCING)
    behind = [node.id for node in view.reachable_nodes if node.master in targets and not node.synced]
    if behind := [*changed_pairs(resource, seen), *behind]:
        message = f"Slots move once {seen.name_of(behind[0])} is in step with its master, which gets some."
        return Step.wait(SCALING, message, requeue=SYNCING)
    if refusing := [node.id for node in view.refusing if node.id in targets]:
        message = f"Slots move once {seen.name_of(refusing[0])} takes commands: it says cluster_state:fail."
        return Step.wait(SCALING, message, requeue=SOON)  # as a master does for 2 s after its start
    if full := _full(seen, moves):
        return Step((), Progress.WAITING, "TargetFull", full, warning=True, requeue=HELD)
    told = ", ".join(
        f"{len(move.slots)} from {seen.name_of(move.source)} to {seen.name_of(move.target)}" for move in moves
    )
    return Step.wait(
        SCALING,
        f"{sum(len(move.slots) for move in moves)} slots are to move: {told}.",
        _call(resource, seen, moves),
        requeue=SOON,
    )


def _call(resource: RedisCluster, seen: Observed, moves: tuple[Move, ...]) -> MoveSlots:
    keys = resource.spec.update_strategy.keys_at_once
    return MoveSlots(seen.secrets.access, moves, _nodes(resource, seen), keys, BUDGET)


def _nodes(resource: RedisCluster, seen: Observed) -> Mapping[str, Endpoint]:
    """Where masters are asked, by id."""
    return {
        node.id: endpoint(resource, seen.reachable[node.id]) for node in seen.view.reachable_nodes if node.is_master
    }


def _full(seen: Observed, moves: Sequence[Move]) -> str:
    """Which node has no room for what it would get; empty if all have.

    What a slot takes is what its owner's slots take on average.
    """
    coming: dict[str, float] = {}
    for move in moves:
        source = seen.view.nodes[move.source]
        share = len(move.slots) / max(len(seen.view.slots_of(move.source)), 1)
        coming[move.target] = coming.get(move.target, 0.0) + share * (
            source.said.memory if source.said and source.said.keys else 0
        )
    for node_id, more in coming.items():
        said = seen.view.nodes[node_id].said
        if said and said.max_memory and said.memory + more > FULL * said.max_memory:
            return (
                f"{seen.name_of(node_id)} would have {int(said.memory + more):,} of {said.max_memory:,} bytes "
                "(maxmemory) in use with the slots that are to move to it: none does. Raise maxmemory, or add a master."
            )
    return ""


def assigned_status(resource: RedisCluster, seen: Observed) -> list[Obj]:
    """status.assigned: what new masters have yet to get."""
    if not resource.formed:
        return []
    try:
        moves = assignment(resource, seen)
    except (CannotAssign, CannotMove):
        moves = promised(resource, seen)
    return [{"from": move.source, "to": move.target, "slots": str(move.slots)} for move in moves]


def is_moving(resource: RedisCluster, seen: Observed) -> bool:
    """Whether slots have yet to move."""
    return bool(_left(resource, seen))


def _left(resource: RedisCluster, seen: Observed) -> tuple[Move, ...]:
    try:
        return wanted(resource, seen) if resource.formed else ()
    except (CannotAssign, CannotMove):
        return ()


def migration_status(resource: RedisCluster, seen: Observed, now: datetime) -> Obj | None:
    """status.migration: how many slots have moved of those that had to when it began; None if none has to."""
    moves = _left(resource, seen)
    if not moves:
        return None
    left, before = sum(len(move.slots) for move in moves), resource.reported.get("migration") or {}
    total = before.get("slots", 0)
    if left > total - before.get("moved", 0):  # more than were left: the plan is another one
        before, total = {}, left
    givers = {seen.name_of(move.source) for move in moves} | set(filter(None, before.get("from", "").split(",")))
    takers = {seen.name_of(move.target) for move in moves} | set(filter(None, before.get("to", "").split(",")))
    held = sum(place.said.keys for place in seen.places if place.said and place.name in takers)
    told = {"from": ",".join(sorted(givers)), "to": ",".join(sorted(takers)), "slots": total, "moved": total - left}
    begun = {"since": f"{now:%Y-%m-%dT%H:%M:%SZ}", "keys": held}
    told |= {key: before.get(key, value) for key, value in begun.items()}
    pace = before.get("keysPerSecond")
    if total - left != before.get("moved", 0):
        seconds = max((now - datetime.fromisoformat(told["since"])).total_seconds(), 1.0)
        pace = max(int((held - told["keys"]) / seconds), 0)
    return told if pace is None else told | {"keysPerSecond": pace}
