"""Repairs that nodes cannot do by themselves: peers at new addresses, and nodes that never return. Pure.

An unreachable node is never given up: its data is lost only by evidence (`Observed.lost`).

Calls are safe to delay and to repeat: each first checks which node is at the address, and does nothing if its goal is
reached (client/commands.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from operators.redis.client.commands import Forget, Meet
from operators.redis.client.server import Endpoint
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import FORGETTING, MEETING, RECORDING
from operators.redis.steps.planned_work import planned_work
from operators.redis.steps.waiting import GOSSIP_SECONDS, phase_or
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import PASS, Step


def record_nodes(seen: Assessment) -> Step:
    """Record which node is on which volume before anything depends on it: it distinguishes a loss from an outage."""
    if not seen.resource.formed:
        return PASS
    changed = [instance for instance in seen.instances if seen.node_to_record(instance) != instance.as_recorded]
    if not changed:
        return PASS
    message = f"Recording the node and volume of {', '.join(instance.name for instance in changed)} in status."
    return Step.wait(phase_or(seen.resource, RECORDING), message, requeue=0)


def update_addresses(seen: Assessment) -> Step:
    """Update the addresses of members on their peers, by node id (CLUSTER MEET).

    Nodes contact each other at the last known address. A node that the spec removes is a member until it is forgotten,
    so that it is met like the others. This step runs before any CLUSTER FORGET: a node that its peers have forgotten
    could not announce its new address. While the cluster is created, nodes meet for the first time in `bootstrap`.
    """
    resource, view = seen.resource, seen.view
    members = {
        node.id: seen.reachable[node.id]
        for node in view.reachable_nodes
        if node.id in seen.recorded or seen.reachable[node.id].number < resource.spec.replicas
    }
    at = {node_id: instance.pod.address for node_id, instance in members.items() if instance.pod}
    unaware, mistaken = view.missing(at if resource.formed else ()), view.misplaced(at)
    calls = []
    for node_id, address in at.items():
        outdated = dict.fromkeys((*unaware.get(node_id, ()), *mistaken.get(node_id, ())))
        via = [peer for peer in outdated if peer in members and (peer, address) not in view.being_met]
        if via:
            calls.append(
                Meet(seen.secrets.access, seen.at(node_id), id=node_id, via=_all_at(seen, via), own=seen.own_ids)
            )
    if not calls:
        return PASS
    names = ", ".join(seen.name_of(call.id) for call in calls)
    message = f"Updating the address of {names} on the other nodes (CLUSTER MEET)."
    if work := planned_work(seen):
        message = f"{work} {message}"
    return Step.wait(phase_or(resource, MEETING), message, *calls, requeue=GOSSIP_SECONDS)


def forget_removed_nodes(seen: Assessment) -> Step:
    """Let every member that knows it forget a node that never returns (CLUSTER FORGET).

    Never a node that owns slots, because a replica may still be elected to replace it. Nor one that members
    replicate, which would reject the command, nor one that may hold the only copy of any data.
    """
    if not seen.resource.formed:
        return PASS
    view = seen.view
    removed = [node for node in view.members if _forgettable(seen, node)]
    if not removed:
        return PASS
    names = ", ".join(node.name for node in removed)
    ignored = (*seen.detached, *(node.id for node in (*seen.lost_primaries, *removed)))
    if conflicts := view.without(ignored).settled:
        message = f"Waiting for all nodes to report the same cluster view before removing {names}. {conflicts}"
        return Step.wait(FORGETTING, message, requeue=GOSSIP_SECONDS)
    calls = [
        Forget(
            seen.secrets.access,
            node.id,
            _all_at(seen, (reporter.id for reporter in view.reachable_nodes if node.is_known_to(reporter.id))),
        )
        for node in removed
    ]
    message = f"Forgetting deleted nodes (CLUSTER FORGET): {names}. They hold no data."
    return Step.wait(FORGETTING, message, *calls, requeue=GOSSIP_SECONDS)


def _forgettable(seen: Assessment, node: Seen) -> bool:
    return NODE.allows(seen.node_state(node.id), NodeEvent.FORGET)


def _all_at(seen: Assessment, ids: Iterable[str]) -> tuple[Endpoint, ...]:
    return tuple(seen.at(node_id) for node_id in ids)
