"""Replaces primaries that lost their data, where no election does. Pure.

A primary that merely does not answer is replaced by the nodes' own election, once a majority finds that it has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from operators.redis.client.commands import FailOver
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import TAKING_OVER
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import Step
from shared.status.health import listed


def replace_failed(seen: Assessment) -> Iterator[Step]:
    """Promote the replica that has most data of each primary that lost its data."""
    for primary in seen.view.primaries:
        if seen.lost(primary.id) and (failover_candidates := _failover_candidates(seen, primary)):
            yield _replace(seen, primary, failover_candidates[0])


def _failover_candidates(seen: Assessment, primary: Seen) -> Sequence[Seen]:
    """Return replicas that were connected to the primary until it ended, and whose pods stay; the most advanced first.

    One that started since waits for a user's consent (data_loss_recovery.py).
    """
    return [
        candidate
        for candidate in seen.view.failover_candidates(primary.id)
        if seen.may_replace(candidate.id, primary.id)
        and not seen.may_be_outdated(candidate.id, primary.id, seen.now)
        and not seen.reachable[candidate.id].leaving
    ]


def _replace(seen: Assessment, primary: Seen, candidate: Seen) -> Step:
    """Let the candidate take over, once every replica that may have more data has reported."""
    view = seen.view
    loss = f"{primary.name}, which owns {len(view.slots_of(primary.id))} slots, lost its data"
    if awaited := [copy for copy in view.replicas_of(primary.id) if not copy.answers and may_answer(seen, copy)]:
        names = ", ".join(copy.name for copy in awaited)
        message = f"{loss}. Waiting for the replication offset of {names} before a replica takes over."
        return Step.wait(TAKING_OVER, message, warning=True, requeue=GOSSIP_SECONDS)
    if candidate.report is None or not candidate.report.finds_failed(primary.id):
        message = f"{loss}. Waiting for {candidate.name} to notice the failure before it takes over."
        return Step.wait(TAKING_OVER, message, warning=True, requeue=GOSSIP_SECONDS)
    call = take_over_from_lost(seen, candidate.id)
    if why := unelectable(seen, call):
        return Step.wait(TAKING_OVER, f"{loss}. {why}", warning=True, requeue=BLOCKED_SECONDS)
    message = f"{loss}; {candidate.name} is taking over."
    return Step.wait(TAKING_OVER, message, call, warning=True, requeue=FAILOVER_SECONDS)


def take_over_from_lost(seen: Assessment, node_id: str) -> FailOver:
    """Return the call that lets a replica take over from a primary that lost its data.

    With a majority left, primaries vote, so nothing happens that they do not agree on. Without one, by evidence no
    primary is left that could vote otherwise.
    """
    view = seen.view
    left = len(view.primaries) - len(seen.lost_primaries)
    return take_over(seen, node_id, "FORCE" if left >= view.majority else "TAKEOVER")


def unelectable(seen: Assessment, call: FailOver) -> str:
    """Return why the primaries cannot elect the node of a forced failover; empty if they can, or need not.

    Each request of a node without a majority increases its epoch, and delays the next election.
    """
    candidate = seen.view.nodes[call.id]
    missing = candidate.report.missing_voters if candidate.report else ()
    if call.mode != "FORCE" or not missing:
        return ""
    names = listed(tuple(seen.name_of(node.id) for node in missing if not seen.lost(node.id)))
    return (
        f"{candidate.name} is to take over, but does not reach {names}: without them no majority of the primaries can "
        "elect it. Check the network between these pods."
    )


def take_over(
    seen: Assessment, node_id: str, mode: Literal["", "FORCE", "TAKEOVER"] = "", *, resumed: bool = False
) -> FailOver:
    """Return the call that lets a replica take over from its primary (CLUSTER FAILOVER).

    Args:
        resumed: see `FailOver`.
    """
    NODE.after(seen.node_state(node_id), NodeEvent.FAIL_OVER)
    node = seen.view.nodes[node_id]
    return FailOver(seen.secrets.access, seen.at(node_id), node_id, node.primary, mode, node.primary_at, resumed)


def may_answer(seen: Assessment, copy: Seen) -> bool:
    """Return whether an unreachable replica is about to respond: its pod starts without problems."""
    instance = seen.instance_of(copy.id)
    if instance is None or instance.pod is None or seen.lost(copy.id):
        return False
    return not instance.leaving and not instance.pod.problem
