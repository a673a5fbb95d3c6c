"""Finishes and closes open slots that the operator opened, and closes others where that is safe. Pure.

`Assessment.provenance` sorts them; only moves that the status records are the operator's own.
"""

from __future__ import annotations

import dataclasses

from operators.redis.client.commands import CancelImport
from operators.redis.facts.assessment import Assessment
from operators.redis.migration.commands import CloseSlots, MoveSlots, ReleaseSlots, ReopenSlots
from operators.redis.reasons import REPAIRING_SLOTS, SLOTS_OPEN
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from operators.redis.steps.replication_lag import await_replicas
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

MAX_LISTED_ITEMS = 3


def reopen_slots(seen: Assessment) -> Step:
    """Open slots again that a failover closed at one end, before anything else that may take long.

    Redis does not replicate the marks. Without the migrating mark, a promoted source answers that moved keys do not
    exist, and clients create them again. Without the importing mark, a promoted target redirects clients back.
    """
    if not seen.resource.formed or not (reopened := seen.provenance.reopened):
        return PASS
    access, nodes = seen.secrets.access, seen.primary_endpoints
    calls = tuple(ReopenSlots(access, *ends, slots, nodes) for ends, slots in reopened.items())
    open_slots = brief(Slots.union(reopened.values()))
    message = f"Opening {open_slots} again after a failover, so that clients find the keys that have moved."
    # Other healing continues: it must not depend on these nodes.
    return Step(calls, Progress.PROGRESSING, REPAIRING_SLOTS, message, requeue=GOSSIP_SECONDS)


def release_slots(seen: Assessment) -> Step:
    """Close slots that are open at one end alone, and that the operator did not open. No key is moved or deleted.

    A node that imports a slot ignores claims of other nodes to it, so that it would never agree after a failover of the
    owner. Foreign keys are recorded first, because nothing but the mark shows them.
    """
    found = seen.provenance
    if not seen.resource.formed or not (found.unexplained or found.left):
        return PASS
    recorded = seen.resource.recorded_foreign
    if new := Slots.union(slots - recorded.get(node_id, Slots()) for node_id, slots in seen.foreign.items()):
        message = f"Recording in status that nodes hold keys of {brief(new)} without owning them."
        return Step.wait(REPAIRING_SLOTS, message, requeue=0)
    access, nodes = seen.secrets.access, seen.primary_endpoints
    cancelled = (CancelImport(access, seen.at(node_id), node_id, slots) for node_id, slots in found.unexplained.items())
    released = (
        ReleaseSlots(access, *ends, slots, nodes)
        for ends, slots in found.left.items()
        if ends[1] in seen.reachable or not seen.successor(ends[1])  # an unreachable node may have keys
    )
    return Step((*cancelled, *released), requeue=BLOCKED_SECONDS)


def repair_open_slots(seen: Assessment) -> Step:
    """Finish the migration of each slot that the operator opened, from its present owner to the recorded target.

    A slot is never merely assigned to a node: the rest of its keys is moved first (migration/).
    """
    found = seen.provenance
    if not seen.resource.formed or not found.own:
        return PASS
    open_slots, access, nodes = brief(found.own), seen.secrets.access, seen.primary_endpoints
    moves = tuple(Move(*ends, slots) for ends, slots in found.onward.items())
    calls = [CloseSlots(access, *ends, slots, nodes) for ends, slots in found.arrived.items()]
    behind = await_replicas(seen, moves)
    if moves and not behind:
        call = move_call(seen, moves)
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
    if behind:  # a node may have to be configured as the replica that is missing
        return dataclasses.replace(behind, progress=Progress.PROGRESSING) if seen.changed_pairs else behind
    waiting = ", ".join(
        f"{brief(slots)} of {seen.name_of(ends[0])}, moving to {seen.name_of(ends[1])}"
        for ends, slots in [*found.waiting.items()][:MAX_LISTED_ITEMS]
    )
    message = f"The migration of {open_slots} was interrupted, and nodes are unreachable: {waiting}."
    requeue = GOSSIP_SECONDS if seen.view.awaiting_election else BLOCKED_SECONDS
    return Step.wait(SLOTS_OPEN, message, warning=True, requeue=requeue)


def move_call(seen: Assessment, moves: tuple[Move, ...]) -> MoveSlots:
    """Return the call that moves recorded slots."""
    resource = seen.resource
    strategy = resource.spec.update_strategy
    promoted = Slots.union(
        [seen.provenance.promoted, *(move.slots for move in seen.recorded_moves if move.promoted)]
    ) & Slots.union(move.slots for move in moves)
    return MoveSlots(
        seen.secrets.access,
        moves,
        seen.primary_endpoints,
        strategy.keys_at_once,
        promoted=promoted,
        acknowledge=seen.acknowledges_moves,
        recorded=seen.begun_moves,
        written=resource.recorded_moves,
        jobs=frozenset(resource.recorded_jobs),
    )
