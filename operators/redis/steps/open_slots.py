"""Finishes migrations of slots that were interrupted, and closes slots that need not move. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.migration.commands import CloseSlots, MoveSlots
from operators.redis.reasons import MENDING_SLOTS, SLOTS_OPEN
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.runtime.plan import PASS, Step

MAX_LISTED_ITEMS = 3


@dataclass(slots=True)
class _Sorted:
    """Open slots by what is to become of them, with their two ends.

    Attributes:
        onward: from their owner to the node that has some of their keys.
        arrived: of source and target; their owner already is the target, or no target is left.
        waiting: in words, those of which an end does not answer.
    """

    onward: dict[tuple[str, str], Slots] = field(default_factory=dict)
    arrived: dict[tuple[str, str], Slots] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)


def repair_open_slots(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Let each open slot arrive, from its present owner at the node that has some of its keys.

    A slot is never merely assigned to a node: the engine moves the rest of its keys first (migration/).
    """
    if not resource.formed or not seen.view.open:
        return PASS
    access, nodes, found = seen.secrets.access, seen.primary_endpoints, _sort(seen)
    told = f"{brief(Slots.of(*(slot.slot for slot in seen.view.open)))} were left on their way"
    calls = [CloseSlots(access, *ends, slots, nodes) for ends, slots in found.arrived.items()]
    if found.onward:
        moves = tuple(Move(*ends, slots) for ends, slots in found.onward.items())
        call = MoveSlots(access, moves, nodes, resource.spec.update_strategy.keys_at_once)
        return Step.wait(MENDING_SLOTS, f"{told}, and arrive.", *calls, call, requeue=GOSSIP_SECONDS)
    if calls:
        message = f"{told}, and have arrived: they are closed."
        return Step.wait(MENDING_SLOTS, message, *calls, requeue=GOSSIP_SECONDS)
    message = f"{told}; an end of them does not answer: {', '.join(found.waiting[:MAX_LISTED_ITEMS])}."
    return Step.wait(SLOTS_OPEN, message, warning=True, requeue=BLOCKED_SECONDS)


def _sort(seen: Assessment) -> _Sorted:
    view, found = seen.view, _Sorted()
    for slot in view.open:
        target = seen.successor(slot.target)
        if not slot.owner or not view.nodes[slot.owner].answers:
            found.waiting.append(f"slot {slot.slot} of {seen.name_of(slot.source)}")
        elif target == slot.owner or not target:
            ends = slot.source, slot.target
            found.arrived[ends] = found.arrived.get(ends, Slots()) | Slots.of(slot.slot)
        elif view.nodes[target].answers:
            ends = slot.owner, target
            found.onward[ends] = found.onward.get(ends, Slots()) | Slots.of(slot.slot)
        else:
            found.waiting.append(f"slot {slot.slot} on its way to {seen.name_of(target)}")
    return found
