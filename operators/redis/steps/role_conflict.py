"""Repairs a node that replicates a primary, although its own cluster view calls it a primary without slots. Pure.

A node that gets the former address of another one contacts itself there. If it becomes a replica while its message is
on the way, it takes that message for its newest role: a primary (clusterProcessPacket in src/cluster_legacy.c of redis
7.4 does not exclude the node itself). It keeps replicating, but no election and no CLUSTER REPLICATE can use it: that
command rejects a primary with keys. INFO reports the truth.
"""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import ROLE_CONFLICT
from operators.redis.steps.waiting import BLOCKED_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import PASS, Step
from shared.steps import volumes


def repair_role_conflict(seen: Assessment) -> Step:
    """Recreate such a node with an empty volume, one at a time: its keys are a complete copy of a reachable primary."""
    if not seen.resource.formed:
        return PASS
    found = ((node, primary) for node in seen.view.reachable_nodes if (primary := _replicated(seen, node)))
    return next((_recreate(seen, *each) for each in found), PASS)


def _replicated(seen: Assessment, node: Seen) -> Seen | None:
    """Return the primary that a node without slots replicates by INFO, although it is a primary by CLUSTER NODES."""
    report = node.report
    if report is None or node.is_replica or not report.replicates or seen.view.slots_of(node.id):
        return None
    if not report.keys or report.trimming:
        return None  # CLUSTER REPLICATE accepts it (replication.pair_replicas)
    if not report.link_up or report.syncing or report.loading or seen.reachable[node.id].leaving:
        return None
    return next((each for each in seen.view.primaries if each.report and each.line.location == report.replicates), None)


def _recreate(seen: Assessment, node: Seen, primary: Seen) -> Step:
    conflict = f"{node.name} replicates {primary.name} (INFO), but CLUSTER NODES reports it as a primary without slots"
    if seen.resource.spec.template.volumes is not None:
        message = f"{conflict}. Its volume is shared and was not changed: delete its directory there, then its pod."
        return Step.progressing(ROLE_CONFLICT, message, warning=True, requeue=BLOCKED_SECONDS)
    NODE.after(seen.node_state(node.id), NodeEvent.RECREATE)
    message = f"{conflict}: recreating it with an empty volume. {primary.name} has all of its keys."
    return Step.wait(ROLE_CONFLICT, message, *volumes.replace_disk(seen.reachable[node.id], in_use=False), warning=True)
