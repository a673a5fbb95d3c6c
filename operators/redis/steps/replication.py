"""Gives each primary its replicas. Pure."""

from __future__ import annotations

from operators.redis.client.commands import Replicate
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import NODE_NOT_EMPTY, PAIRING, PAIRING_BLOCKED
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step


def pair_empty_nodes(seen: Assessment) -> Step:
    """Let empty nodes replicate their planned primaries."""
    if not seen.resource.formed:
        return PASS
    blank = {node_id: primary for node_id, primary in seen.changed_pairs.items() if seen.reachable[node_id].is_blank}
    if not blank:
        return PASS
    changed = ", ".join(
        f"{seen.name_of(node_id)} to replicate {seen.name_of(primary)}" for node_id, primary in blank.items()
    )
    calls = (_replicate(seen, *each) for each in blank.items())
    return Step.wait(PAIRING, f"Configuring {changed}.", *calls, requeue=GOSSIP_SECONDS)


def pair_replicas(seen: Assessment) -> Step:
    """Let a replica change to its planned primary. It has no data until it is synced: so one at a time."""
    if not seen.resource.formed:
        return PASS
    return next((change_primary(seen, *each) for each in seen.changed_pairs.items()), PASS)


def change_primary(seen: Assessment, node_id: str, primary: str) -> Step:
    """Let a replica change its primary: only while all others are in sync, and never the only copy."""
    node = seen.view.nodes[node_id]
    change = f"{node.name} to replicate {seen.name_of(primary)}"
    if trims := seen.reachable[node_id].trims:
        message = f"Waiting before configuring {change}: {node.name} {trims}."
        return Step.progressing(PAIRING, message, requeue=SYNC_SECONDS)
    if node.is_primary:
        keys = node.report.keys if node.report else 0
        message = (
            f"Cannot configure {change}: it holds {keys} keys of slots that it does not own, and was not changed. If "
            "the keys are not needed, delete its volume claim and its pod: the operator recreates both."
        )
        return Step.progressing(NODE_NOT_EMPTY, message, warning=True, requeue=BLOCKED_SECONDS)
    if seen.unsynced:
        message = f"Waiting for {', '.join(seen.unsynced)} to sync before configuring {change}."
        return Step.progressing(PAIRING, message, requeue=SYNC_SECONDS)
    if seen.is_needed(node_id):
        message = (
            f"Waiting for {seen.name_of(node.primary)}, which is unreachable, before configuring {change}: until then "
            "it may hold the only copy of its data."
        )
        return Step.progressing(PAIRING_BLOCKED, message, warning=True, requeue=BLOCKED_SECONDS)
    return Step.wait(PAIRING, f"Configuring {change}.", _replicate(seen, node_id, primary), requeue=GOSSIP_SECONDS)


def _replicate(seen: Assessment, node_id: str, primary: str) -> Replicate:
    NODE.after(seen.node_state(node_id), NodeEvent.REPLICATE)
    return Replicate(seen.secrets.access, seen.at(node_id), node_id, primary)
