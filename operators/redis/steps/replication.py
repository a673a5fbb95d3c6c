"""Gives each primary its replicas, on other hosts where there are any. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.commands import Replicate
from operators.redis.lifecycles import NODE, NodeEvent
from operators.redis.reasons import NODE_NOT_EMPTY, PAIRING, PAIRING_HELD
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step


def pair_replicas(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Let nodes replicate the primaries that they are to have.

    Empty nodes follow at once. A replica that changes its primary holds nothing until it is synced: so one at a time.
    """
    if not resource.formed:
        return PASS
    changes = seen.changed_pairs
    blank = {node_id: primary for node_id, primary in changes.items() if seen.reachable[node_id].is_blank}
    if blank:
        told = "; ".join(
            f"{seen.name_of(node_id)} replicates {seen.name_of(primary)}" for node_id, primary in blank.items()
        )
        calls = (_replicate(seen, *each) for each in blank.items())
        return Step.wait(PAIRING, f"{told}.", *calls, requeue=GOSSIP_SECONDS)
    return next((_change_primary(seen, *each) for each in changes.items()), PASS)


def _change_primary(seen: Assessment, node_id: str, primary: str) -> Step:
    """Let a node replicate another primary: only a replica, while all others are in sync, and never the only copy."""
    node = seen.view.nodes[node_id]
    told = f"{node.name} is to replicate {seen.name_of(primary)}"
    if node.is_primary:
        keys = node.report.keys if node.report else 0
        message = (
            f"{told}, and holds {keys} keys of slots that it does not own. It is left as it is. If nobody needs "
            "them, delete its volume claim and its pod: an empty one takes its place."
        )
        return Step.progressing(NODE_NOT_EMPTY, message, warning=True, requeue=BLOCKED_SECONDS)
    if seen.unsynced:
        message = f"{told}, once all others are in step: {', '.join(seen.unsynced)} not yet."
        return Step.progressing(PAIRING, message, requeue=SYNC_SECONDS)
    if seen.is_needed(node_id):
        message = f"{told}, and nobody else surely has what it has: {seen.name_of(node.primary)} does not answer."
        return Step.progressing(PAIRING_HELD, message, warning=True, requeue=BLOCKED_SECONDS)
    return Step.wait(PAIRING, f"{told}.", _replicate(seen, node_id, primary), requeue=GOSSIP_SECONDS)


def _replicate(seen: Assessment, node_id: str, primary: str) -> Replicate:
    NODE.after(seen.node_state(node_id), NodeEvent.REPLICATE)
    return Replicate(seen.secrets.access, seen.at(node_id), node_id, primary)
