"""Moves slots to their planned owners: the minimum number of moves, disjoint pairs of nodes in parallel. Pure.

The number of slots of each node follows from the desired primaries. Two things are recorded in the status: manual
assignments (AssignReceive) before the first slot moves, because afterwards nothing would show which slots a primary
received by assignment; and each slot right before it is opened, because an open slot does not show which client opened
it (migration/journal.py, open_slots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from operators.redis.facts import migration_status
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import ASSIGN_REFUSED, MOVING_BLOCKED, TARGET_FULL
from operators.redis.slots.slot_planner import CannotAssign, CannotMove
from operators.redis.steps.open_slots import move_call
from operators.redis.steps.replication_lag import await_replicas
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.phases import SCALING

MAX_MEMORY_SHARE = 0.95
"""Fraction of maxmemory that a node may use after a move; above it, the node would reject writes or evict keys."""


def move_slots(seen: Assessment) -> Step:
    """Move the slots of the plan, once all preconditions are met."""
    if not seen.resource.formed:
        return PASS
    plan = seen.slot_plan
    if plan.refusal is not None:
        return _refuse(plan.refusal)
    if not plan.moves:
        return PASS
    return next(filter(None, (check(seen) for check in _CHECKS)), None) or _start(seen)


def _refuse(refusal: CannotAssign | CannotMove) -> Step:
    if isinstance(refusal, CannotAssign):
        return Step.blocked(ASSIGN_REFUSED, f"{refusal} Nothing was changed.")
    return Step.wait(MOVING_BLOCKED, str(refusal), warning=True, requeue=BLOCKED_SECONDS)


def _await_owners(seen: Assessment) -> Step | None:
    """Wait until every owner of slots is reachable."""
    unreachable = [primary for primary in seen.view.primaries if not primary.answers]
    if not unreachable:
        return None
    message = f"Migration paused: primary {unreachable[0].name} is unreachable."
    return Step.wait(MOVING_BLOCKED, message, warning=True, requeue=SYNC_SECONDS)


def _record_assignments(seen: Assessment) -> Step | None:
    """Wait until the assignments are recorded; the status of this reconcile does it (`migration_status.assigned`)."""
    if seen.slot_plan.assignments == seen.pending_assignments:
        return None
    return Step.wait(SCALING, "Recording the slot assignment of new primaries in status.", requeue=0)


def _await_instances(seen: Assessment) -> Step | None:
    """Wait until all instances are reachable before a node becomes a primary: another one may be the better choice."""
    new = [target for target in _targets(seen) if not seen.view.slots_of(target)]
    if not new or not seen.awaited:
        return None
    goal = f"Waiting for all nodes to be reachable before moving slots to {', '.join(map(seen.name_of, new))}."
    return Step.wait(SCALING, f"{goal} {seen.why_away(seen.awaited)}", poll=SYNC_SECONDS)


def _await_sync(seen: Assessment) -> Step | None:
    """Wait until every replica has its planned primary, and the replicas of targets are in sync."""
    targets = _targets(seen)
    lagging = [node.id for node in seen.view.reachable_nodes if node.primary in targets and not node.synced]
    if not (behind := [*seen.changed_pairs, *lagging]):
        return None
    message = f"Waiting for replica {seen.name_of(behind[0])} to sync before moving slots to its primary."
    return Step.wait(SCALING, message, requeue=SYNC_SECONDS)


def _await_commands(seen: Assessment) -> Step | None:
    """Wait until every target accepts commands. A primary refuses them for 2 s after its start."""
    refusing = [node.id for node in seen.view.refusing if node.id in _targets(seen)]
    if not refusing:
        return None
    message = (
        f"Waiting for {seen.name_of(refusing[0])} to accept commands (cluster_state:fail) before moving slots to it."
    )
    return Step.wait(SCALING, message, requeue=GOSSIP_SECONDS)


def _require_memory(seen: Assessment) -> Step | None:
    """Require memory on every target for the slots that it receives, estimated from the average slot of the owner."""
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
                f"Migration paused: with the slots that it is to receive, {seen.name_of(node_id)} would use "
                f"{int(report.memory + more):,} of {report.max_memory:,} bytes (maxmemory). Raise maxmemory, or add "
                "primaries."
            )
            return Step.wait(TARGET_FULL, message, warning=True, requeue=BLOCKED_SECONDS)
    return None


_CHECKS: Sequence[Callable[[Assessment], Step | None]] = (
    _await_owners,
    _record_assignments,
    _await_instances,
    _await_sync,
    _await_commands,
    lambda seen: await_replicas(seen, seen.slot_plan.moves),
    _require_memory,
)


def _targets(seen: Assessment) -> set[str]:
    return {move.target for move in seen.slot_plan.moves}


def _start(seen: Assessment) -> Step:
    moves, progress = seen.slot_plan.moves, migration_status.progress(seen) or {}
    for move in moves:
        NODE.after(seen.node_state(move.target), NodeEvent.RECEIVE_SLOTS)
    total, moved = progress.get("slots", 0), progress.get("moved", 0)
    described = ", ".join(
        f"{len(move.slots)} from {seen.name_of(move.source)} to {seen.name_of(move.target)}" for move in moves
    )
    count = len(seen.primaries)
    message = f"Rebalancing {total} slots over {count} primaries ({moved} moved); remaining: {described}."
    if progress.get("primaries") != count:
        message = f"Scaling to {count} primaries: moving {total} slots ({moved} moved); remaining: {described}."
    return Step.wait(SCALING, message, move_call(seen, moves), requeue=GOSSIP_SECONDS)
