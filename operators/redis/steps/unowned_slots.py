"""Assigns slots that no node owns to the node that has their keys. Pure.

Each node takes another one for the owner, so that clients are redirected in a circle. This state follows from commands
in another order than that of the operator, from a node that stopped before it had saved its table, and from a defect of
some versions (migration/claim_renewal.py). Slots of which no node has a key are left to `recover_lost_slots`.
"""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.migration.commands import AssignSlots
from operators.redis.reasons import REPAIRING_SLOTS, SLOTS_UNSERVED
from operators.redis.slots.hash_slots import Slots
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.runtime.plan import PASS, Step


def assign_unowned_slots(seen: Assessment) -> Step:
    """Let the only node that has keys of a slot without an owner own it.

    Only while every member is a recorded node and reachable, because any other one may have newer keys, or claim the
    slot.
    """
    holders_of = _holders(seen)
    if not holders_of or seen.detached or seen.unknown_nodes or seen.recorded.keys() - seen.reachable.keys():
        return PASS
    contested = Slots.of(*(slot for slot, holders in holders_of.items() if len(holders) > 1))
    if contested:
        slot = next(iter(contested))
        names = " and ".join(f"{seen.name_of(node_id)} ({node_id})" for node_id in holders_of[slot])
        message = (
            f"No node owns {brief(contested)}, and several have keys: slot {slot} at {names}. Nothing was changed. "
            "Compare the keys (CLUSTER GETKEYSINSLOT, DUMP). On the node with the current ones, run CLUSTER BUMPEPOCH "
            "and then CLUSTER SETSLOT … NODE with its own id."
        )
        return Step.wait(SLOTS_UNSERVED, message, warning=True, requeue=BLOCKED_SECONDS)
    found: dict[str, Slots] = {}
    for slot, (holder,) in holders_of.items():
        found[holder] = found.get(holder, Slots()) | Slots.of(slot)
    nodes = seen.primary_endpoints
    calls = [AssignSlots(seen.secrets.access, node_id, slots, nodes) for node_id, slots in sorted(found.items())]
    names = ", ".join(map(seen.name_of, sorted(found)))
    message = f"No node owns {brief(Slots.of(*holders_of))}: assigning them to {names}, where their keys are."
    return Step.wait(REPAIRING_SLOTS, message, *calls, requeue=GOSSIP_SECONDS)


def _holders(seen: Assessment) -> dict[int, list[str]]:
    """Return the primaries that have keys of each slot without an owner, except keys that are recorded as foreign."""
    found: dict[int, list[str]] = {}
    if not seen.resource.formed or not (unowned := seen.view.uncovered):
        return found
    for node in seen.view.reachable_nodes:
        if node.is_primary and node.report:
            stray = Slots.of(*node.report.strays) & unowned
            for slot in stray - seen.resource.recorded_foreign.get(node.id, Slots()):
                found.setdefault(slot, []).append(node.id)
    return found
