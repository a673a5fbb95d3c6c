"""Makes as many primaries as the spec defines, on instances that stay. Pure."""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.state.instance import Instance
from operators.redis.steps.failover import take_over
from operators.redis.steps.rolling_update import evicts
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.phases import SCALING
from shared.steps import volumes


def hand_over(seen: Assessment) -> Step:
    """Fail over a primary on an instance that is removed to a replica that stays, so that no slot has to move."""
    if not seen.resource.formed:
        return PASS
    view = seen.view
    for node_id in seen.primaries:
        node = view.nodes[node_id]
        if not node.is_replica or view.slots_of(node_id):
            continue
        removal = f"Removing primary {seen.name_of(node.primary)}"
        if not node.synced or not view.nodes[node.primary].answers:
            message = (
                f"{removal}: waiting for {node.name} to be in sync and both nodes to be reachable before the failover."
            )
            return Step.wait(SCALING, message, requeue=SYNC_SECONDS)
        call = take_over(seen, node_id)
        return Step.wait(SCALING, f"{removal}: {node.name} is taking over.", call, requeue=FAILOVER_SECONDS)
    return PASS


def recreate_surplus_replica(seen: Assessment) -> Step:
    """Recreate a surplus replica with an empty volume if fewer nodes are empty than primaries are missing.

    No command empties a node safely. So its volume is deleted, together with the copy of its primary's data.
    """
    resource = seen.resource
    missing = resource.primaries - len(seen.primaries) if resource.formed else 0
    if missing <= 0:
        return PASS
    goal = f"Scaling to {resource.primaries} primaries ({len(seen.primaries)} present)"
    if trimming := [f"{each.name} {each.trims}" for each in seen.members.values() if each.trims]:
        message = f"{goal}: waiting for a node that may become one: {', '.join(trimming)}."
        return Step.wait(SCALING, message, requeue=SYNC_SECONDS)
    if resource.spec.template.volumes is not None:
        message = f"{goal}: no node is empty. Increase spec.replicas by {missing}, so that new nodes become primaries."
        return Step.wait(SCALING, message, warning=True, requeue=BLOCKED_SECONDS)
    if seen.awaited:
        message = f"{goal}: waiting for nodes. {seen.why_away(seen.awaited)}"
        return Step.wait(SCALING, message, poll=SYNC_SECONDS)
    if seen.unsynced:
        message = f"{goal}: waiting for {', '.join(seen.unsynced)} to sync before a replica becomes a primary."
        return Step.wait(SCALING, message, requeue=SYNC_SECONDS)
    instance = _spare_replica(seen)
    if instance is None:
        message = f"{goal}: no replica can be recreated, because each may hold the only copy of its data."
        return Step.wait(SCALING, message, warning=True, requeue=BLOCKED_SECONDS)
    NODE.after(seen.node_state(instance.id), NodeEvent.RECREATE)
    message = (
        f"{goal}: recreating replica {instance.name} with an empty volume so that it can become a primary. Its current "
        "primary has the same data."
    )
    in_use = bool(seen.view.slots_of(instance.id))
    return Step.wait(SCALING, message, *volumes.replace_disk(instance, in_use=in_use, evicts=evicts(seen)))


def _spare_replica(seen: Assessment) -> Instance | None:
    """Return the replica to recreate: one of the primary with the most replicas whose data has another copy."""
    view = seen.view
    spare = [
        instance
        for instance in seen.members.values()
        if view.nodes[instance.id].synced and not seen.is_needed(instance.id)
    ]
    return max(
        spare,
        key=lambda instance: (len(view.replicas_of(view.nodes[instance.id].primary)), instance.number),
        default=None,
    )
