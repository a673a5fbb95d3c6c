"""Checks that the targets of slot moves replicate what they receive. Pure.

MIGRATE deletes the source's copy at once. So from then on the key depends on the target, and without a replica on one
process.
"""

from __future__ import annotations

from collections.abc import Iterable

from operators.redis.client.responses import NodeReport, own_followers
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import TARGET_NOT_REPLICATING
from operators.redis.slots.slot_planner import Move
from operators.redis.steps.waiting import SYNC_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import Step

MAX_LAG_BYTES = 32 * 2**20
"""Maximum number of bytes that a replica may lag behind a target. Replicas acknowledge once a second, so that the
lag of a healthy one is what the target receives in that time."""


def await_replicas(seen: Assessment, moves: Iterable[Move]) -> Step | None:
    """Wait until each target has a replica that is online and nearly up to date (waitForReplicas)."""
    if not seen.acknowledges_moves:
        return None
    for target in dict.fromkeys(move.target for move in moves if not _keeps_copies(seen, move)):
        if why := _why_not_replicating(seen, target):
            message = (
                f"Migration paused: {seen.name_of(target)} is to receive slots, and no replica of it is online and up "
                f"to date: {why}. If it failed, keys that just moved would be lost. Bring the replica back; for a "
                "cache, set spec.updateStrategy.waitForReplicas to false."
            )
            return Step.wait(TARGET_NOT_REPLICATING, message, warning=True, requeue=SYNC_SECONDS)
    return None


def _keeps_copies(seen: Assessment, move: Move) -> bool:
    """Whether neither end has a replica, nor will the target have one: after the move there are as many copies.

    Such a source is a primary that is to be emptied, and then becomes the missing replica.
    """
    view = seen.view
    unpaired = move.target not in seen.pairs.values() and not view.replicas_of(move.target)
    return unpaired and not view.replicas_of(move.source)


def _why_not_replicating(seen: Assessment, target: str) -> str:
    """Return what is wrong with the replicas of a node; empty if one of them follows it closely."""
    report = seen.view.nodes[target].report
    if report is None:
        return "it is unreachable"
    followers = own_followers(report, report.replicas)
    if any(each.online and report.offset - each.offset <= MAX_LAG_BYTES for each in followers):
        return ""
    replicas = seen.view.replicas_of(target)
    return "; ".join(_state(replica, report) for replica in replicas) or "it has no replica"


def _state(replica: Seen, primary: NodeReport) -> str:
    at = replica.line.address, replica.line.port
    link = next((each for each in primary.replicas if (each.address, each.port) == at), None)
    if link is not None and link.online:
        return f"{replica.name} is {primary.offset - link.offset:,} bytes behind"
    if link is not None:
        return f"{replica.name} is syncing"
    return f"{replica.name} is {'not connected to it' if replica.answers else 'unreachable'}"
