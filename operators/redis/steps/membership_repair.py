"""Repairs that nodes cannot make by themselves: finding peers at new addresses, and forgetting nodes for good. Pure.

A node that merely does not answer is never given up: its data is lost only by evidence (`Observed.lost`).

A call may be old when it is carried out, and may be repeated: it first checks which node is at the address, and does
nothing where the goal is reached (client/commands.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.commands import Forget, Meet
from operators.redis.client.server import Endpoint
from operators.redis.instance import Instance
from operators.redis.lifecycles import NODE, NodeEvent
from operators.redis.reasons import FORGETTING, MEETING, RECORDING
from operators.redis.steps.waiting import GOSSIP_SECONDS, phase_or
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import PASS, Step


def record_nodes(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Record which node is on which disk before anything depends on it: that tells a loss from an outage."""
    if not resource.formed:
        return PASS
    changed = [instance for instance in seen.instances if seen.node_to_record(instance) != instance.as_recorded]
    if not changed:
        return PASS
    message = f"Which node is on which disk at {', '.join(instance.name for instance in changed)} is written down."
    return Step.wait(phase_or(resource, RECORDING), message, requeue=0)


def update_addresses(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Tell members the present addresses of their peers, by node id.

    Nodes look for each other at the addresses at which they last met. Before anything is forgotten: a node that the
    others have forgotten could not tell them where it is.
    """
    if not resource.formed:
        return PASS
    view = seen.view
    members = {
        node.id: seen.reachable[node.id] for node in view.reachable_nodes if _stays(resource, seen.reachable[node.id])
    }
    at = {node_id: instance.pod.address for node_id, instance in members.items() if instance.pod}
    unaware, mistaken = view.missing(at), view.misplaced(at)
    calls = []
    for node_id, address in at.items():
        askers = dict.fromkeys((*unaware.get(node_id, ()), *mistaken.get(node_id, ())))
        via = [asker for asker in askers if asker in members and (asker, address) not in view.being_met]
        if via:
            calls.append(Meet(seen.secrets.access, seen.at(node_id), id=node_id, via=_all_at(seen, via)))
    if not calls:
        return PASS
    names = ", ".join(seen.name_of(call.id) for call in calls)
    return Step.wait(
        MEETING,
        f"{names}: others look for them elsewhere, and are told where they are.",
        *calls,
        requeue=GOSSIP_SECONDS,
    )


def _stays(resource: RedisCluster, instance: Instance) -> bool:
    """Whether the spec asks for an instance, or its node owns slots, so that its pod does not go."""
    return instance.number < resource.spec.replicas or bool(instance.report and instance.report.me.slots)


def forget_removed_nodes(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Let every member that knows it forget a node that never comes back.

    Never a node that owns slots, because a replica may yet be elected in its place. Nor one that members replicate, who
    would refuse it, nor one that may hold the only copy of anything.
    """
    if not resource.formed:
        return PASS
    view = seen.view
    removed = [node for node in view.members if _forgettable(seen, node)]
    if not removed:
        return PASS
    names = ", ".join(node.name for node in removed)
    # A new node never hears what a lost primary owned, either.
    lost = [primary.id for primary in view.primaries if seen.lost(primary.id)]
    if conflicts := view.without((*lost, *(node.id for node in removed))).settled:
        message = f"{names} can be forgotten once the others agree. {conflicts}"
        return Step.wait(FORGETTING, message, requeue=GOSSIP_SECONDS)
    calls = [
        Forget(
            seen.secrets.access,
            node.id,
            _all_at(seen, (reporter.id for reporter in view.reachable_nodes if reporter.id in node.entries)),
        )
        for node in removed
    ]
    message = f"{names}: gone for good, and holds nothing that counts; all forget it."
    return Step.wait(FORGETTING, message, *calls, requeue=GOSSIP_SECONDS)


def _forgettable(seen: Assessment, node: Seen) -> bool:
    return NODE.allows(seen.node_state(node.id), NodeEvent.FORGET)


def _all_at(seen: Assessment, ids: Iterable[str]) -> tuple[Endpoint, ...]:
    return tuple(seen.at(node_id) for node_id in ids)
