"""Moves slots to where they are to be: the fewest that must, between disjoint pairs of nodes in parallel. Pure.

How many slots each node is to own follows from the primaries that there are to be. Only what the spec assigns by hand
(AssignReceive) is recorded before the first slot moves: afterwards nothing would tell which slots a primary received
because of its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.lifecycles import NODE, NodeEvent
from operators.redis.migration.commands import MoveSlots
from operators.redis.reasons import ASSIGN_REFUSED, MOVING_HELD, TARGET_FULL
from operators.redis.slots.slot_planner import CannotAssign, CannotMove, Move
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.phases import SCALING

MAX_MEMORY_SHARE = 0.95
"""Part of maxmemory that a node may use after a move; above it, it would refuse writes or evict keys."""


def move_slots(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Move the slots of the plan, once nothing speaks against it."""
    if not resource.formed:
        return PASS
    plan = seen.slot_plan
    if plan.refusal is not None:
        return _refuse(plan.refusal)
    if not plan.moves:
        return PASS
    return next(filter(None, (check(seen) for check in _CHECKS)), None) or _start(resource, seen)


def _refuse(refusal: CannotAssign | CannotMove) -> Step:
    if isinstance(refusal, CannotAssign):
        return Step.blocked(ASSIGN_REFUSED, f"{refusal} Nothing was changed.")
    return Step.wait(MOVING_HELD, str(refusal), warning=True, requeue=BLOCKED_SECONDS)


def _await_owners(seen: Assessment) -> Step | None:
    """Does every owner of slots answer?"""
    unreachable = [primary for primary in seen.view.primaries if not primary.answers]
    if not unreachable:
        return None
    message = f"Slots are to move, and {unreachable[0].name}, which owns some, does not answer: it is waited for."
    return Step.wait(MOVING_HELD, message, warning=True, requeue=SYNC_SECONDS)


def _record_assignments(seen: Assessment) -> Step | None:
    """Are the assignments recorded? The status of this round does it (`migration_status.assigned`)."""
    if seen.slot_plan.assignments == seen.pending_assignments:
        return None
    return Step.wait(SCALING, "Who gives which slots to new masters is written down.", requeue=0)


def _await_instances(seen: Assessment) -> Step | None:
    """Are all instances there, before a node becomes a primary? Another one may be better."""
    new = [target for target in _targets(seen) if not seen.view.slots_of(target)]
    if not new or not seen.awaited:
        return None
    told = f"Slots move to {', '.join(map(seen.name_of, new))} once all nodes are there."
    return Step.wait(SCALING, " ".join([told, *(instance.why_away for instance in seen.awaited)]), requeue=SYNC_SECONDS)


def _await_sync(seen: Assessment) -> Step | None:
    """Is every replica where it is to be, and those of targets in sync?"""
    targets = _targets(seen)
    lagging = [node.id for node in seen.view.reachable_nodes if node.primary in targets and not node.synced]
    if not (behind := [*seen.changed_pairs, *lagging]):
        return None
    message = f"Slots move once {seen.name_of(behind[0])} is in step with its master, which gets some."
    return Step.wait(SCALING, message, requeue=SYNC_SECONDS)


def _await_commands(seen: Assessment) -> Step | None:
    """Does every target take commands? A primary refuses them for 2 s after its start."""
    refusing = [node.id for node in seen.view.refusing if node.id in _targets(seen)]
    if not refusing:
        return None
    message = f"Slots move once {seen.name_of(refusing[0])} takes commands: it says cluster_state:fail."
    return Step.wait(SCALING, message, requeue=GOSSIP_SECONDS)


def _require_memory(seen: Assessment) -> Step | None:
    """Does every target have memory for what it is to receive? A slot counts as its owner's slots on average."""
    coming: dict[str, float] = {}
    for move in seen.slot_plan.moves:
        report = seen.view.nodes[move.source].report
        share = len(move.slots) / max(len(seen.view.slots_of(move.source)), 1)
        more = share * (report.memory if report and report.keys else 0)
        coming[move.target] = coming.get(move.target, 0.0) + more
    for node_id, more in coming.items():
        report = seen.view.nodes[node_id].report
        if report and report.max_memory and report.memory + more > MAX_MEMORY_SHARE * report.max_memory:
            message = (
                f"{seen.name_of(node_id)} would have {int(report.memory + more):,} of {report.max_memory:,} bytes "
                "(maxmemory) in use with the slots that are to move to it: none does. Raise maxmemory, or add a master."
            )
            return Step.wait(TARGET_FULL, message, warning=True, requeue=BLOCKED_SECONDS)
    return None


_CHECKS: Sequence[Callable[[Assessment], Step | None]] = (
    _await_owners,
    _record_assignments,
    _await_instances,
    _await_sync,
    _await_commands,
    _require_memory,
)


def _targets(seen: Assessment) -> set[str]:
    return {move.target for move in seen.slot_plan.moves}


def _start(resource: RedisCluster, seen: Assessment) -> Step:
    moves = seen.slot_plan.moves
    for move in moves:
        NODE.after(seen.node_state(move.target), NodeEvent.RECEIVE_SLOTS)
    told = ", ".join(_described(seen, move) for move in moves)
    message = f"{sum(len(move.slots) for move in moves)} slots are to move: {told}."
    keys = resource.spec.update_strategy.keys_at_once
    call = MoveSlots(seen.secrets.access, moves, seen.primary_endpoints, keys)
    return Step.wait(SCALING, message, call, requeue=GOSSIP_SECONDS)


def _described(seen: Assessment, move: Move) -> str:
    return f"{len(move.slots)} from {seen.name_of(move.source)} to {seen.name_of(move.target)}"
