"""Finishes migrations of slots that were interrupted, and closes slots that need not move. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.migration.commands import CloseSlots, MoveSlots
from operators.redis.reasons import REPAIRING_SLOTS, SLOTS_OPEN
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.runtime.plan import PASS, Step

MAX_LISTED_ITEMS = 3


@dataclass(slots=True)
class _Sorted:
    """Open slots by what happens to them next, with both ends.

    Attributes:
        onward: slots to move from their owner to the node that has some of their keys.
        arrived: slots to close, by source and target: the target already owns them, or no longer exists.
        waiting: descriptions of slots of which an end is unreachable.
    """

    onward: dict[tuple[str, str], Slots] = field(default_factory=dict)
    arrived: dict[tuple[str, str], Slots] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)


def repair_open_slots(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Finish the migration of each open slot, from its present owner to the node that has some of its keys.

    A slot is never merely assigned to a node: the rest of its keys is moved first (migration/).
    """
    if not resource.formed or not seen.view.open:
        return PASS
    access, nodes, found = seen.secrets.access, seen.primary_endpoints, _sort(seen)
    open_slots = brief(Slots.of(*(slot.slot for slot in seen.view.open)))
    calls = [CloseSlots(access, *ends, slots, nodes) for ends, slots in found.arrived.items()]
    if found.onward:
        moves = tuple(Move(*ends, slots) for ends, slots in found.onward.items())
        call = MoveSlots(access, moves, nodes, resource.spec.update_strategy.keys_at_once)
        return Step.wait(
            REPAIRING_SLOTS,
            f"Finishing the interrupted migration of {open_slots}.",
            *calls,
            call,
            requeue=GOSSIP_SECONDS,
        )
    if calls:
        message = f"Closing {open_slots}, which have arrived after an interrupted migration."
        return Step.wait(REPAIRING_SLOTS, message, *calls, requeue=GOSSIP_SECONDS)
    waiting = ", ".join(found.waiting[:MAX_LISTED_ITEMS])
    message = f"The migration of {open_slots} was interrupted, and nodes are unreachable: {waiting}."
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
            found.waiting.append(f"slot {slot.slot}, moving to {seen.name_of(target)}")
    return found
