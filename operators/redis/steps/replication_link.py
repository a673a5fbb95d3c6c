"""Connects replicas to the present address of their primary. Pure.

A node has the address of its primary twice: in its cluster view, and as the end of its replication link. Gossip from
other nodes changes the first one only. So the link may stay at a former address, where any server may be by now: the
replica copies it, because no server checks the identity of its primary. The link is proven only by the replica's own
INFO and by the primary, which answers the operator at its address with its node id.

CLUSTER REPLICATE connects again in Redis. Valkey does nothing if the primary is the same: there the pod is restarted.
"""

from __future__ import annotations

from operators.redis.client.commands import Relink
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import REPLICATING_ELSEWHERE
from operators.redis.steps.waiting import GOSSIP_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.kubernetes.kinds import POD
from shared.runtime.plan import PASS, Delete, Step


def connect_replicas(seen: Assessment) -> Step:
    """Let replicas connect to their primaries again (CLUSTER REPLICATE), once they know their present addresses."""
    if not seen.resource.formed:
        return PASS
    astray = [node for node in seen.view.nodes.values() if node.astray and node.primary_at and _knows_address(node)]
    if not astray:
        return PASS
    more = f" (and {len(astray) - 1} more replicas)" if len(astray) > 1 else ""
    connecting = [node for node in astray if node.report and node.report.features.replicates_again]
    if not connecting:
        return _restart(seen, astray[0], more)
    calls = (
        Relink(
            seen.secrets.access, seen.at(node.id), node.id, node.primary, seen.name_of(node.primary), node.primary_at
        )
        for node in connecting
    )
    message = (
        f"{problem(seen, connecting[0])}{more}: connecting it again (CLUSTER REPLICATE). If this lasts, delete the pod."
    )
    return Step.wait(REPLICATING_ELSEWHERE, message, *calls, warning=True, requeue=GOSSIP_SECONDS)


def _restart(seen: Assessment, node: Seen, more: str) -> Step:
    """Restart a replica, which then connects to the address that it knows. Its primary is reachable, with the data."""
    instance = seen.reachable[node.id]
    message = f"{problem(seen, node)}{more}: restarting its pod, which connects it again."
    actions = () if instance.pod_obj is None or instance.leaving else (Delete(POD, instance.pod_obj),)
    return Step.wait(REPLICATING_ELSEWHERE, message, *actions, warning=True, requeue=GOSSIP_SECONDS)


def problem(seen: Assessment, node: Seen) -> str:
    """Return what is wrong with the link of a replica, as a sentence without a period."""
    link = node.report.replicates if node.report else ""
    at = f" at {node.primary_at}" if node.primary_at else ", which is unreachable"
    return f"{node.name} replicates {link}, not its primary {seen.name_of(node.primary)}{at}"


def _knows_address(node: Seen) -> bool:
    """Return whether the replica knows its primary at its present address (otherwise CLUSTER MEET comes first)."""
    known = node.report.node(node.primary) if node.report else None
    return known is not None and known.location == node.primary_at
