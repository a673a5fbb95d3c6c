"""Makes as many primaries as the spec asks for, on instances that stay. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.instance import Instance
from operators.redis.lifecycles import NODE, NodeEvent
from operators.redis.steps.failover import take_over
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.phases import SCALING
from shared.steps import volumes


def hand_over(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """A primary on an instance that goes is replaced by a replica that stays: no slot moves for it."""
    if not resource.formed:
        return PASS
    view = seen.view
    for node_id in seen.primaries:
        node = view.nodes[node_id]
        if not node.is_replica or view.slots_of(node_id):
            continue
        told = f"{seen.name_of(node.primary)} goes, and {node.name} takes its place"
        if not node.synced or not view.nodes[node.primary].answers:
            message = f"{told} once it has all of its data, and both are there."
            return Step.wait(SCALING, message, requeue=SYNC_SECONDS)
        call = take_over(seen, node_id)
        return Step.wait(SCALING, f"{told}.", call, requeue=FAILOVER_SECONDS)
    return PASS


def recreate_surplus_replica(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Recreate a surplus replica with an empty volume, where fewer nodes are empty than primaries are missing.

    No command empties a node safely. So its volume is deleted, and with it the copy of its primary's data.
    """
    missing = resource.primaries - len(seen.primaries) if resource.formed else 0
    if missing <= 0:
        return PASS
    told = f"{len(seen.primaries)} of {resource.primaries} masters are there"
    if resource.spec.template.volumes is not None:
        message = f"{told}, and no node holds nothing: raise spec.replicas by {missing}; new nodes become masters."
        return Step.wait(SCALING, message, warning=True, requeue=BLOCKED_SECONDS)
    if seen.awaited:
        away = " ".join(instance.why_away for instance in seen.awaited)
        return Step.wait(SCALING, f"{told}. {away}", requeue=SYNC_SECONDS)
    if seen.unsynced:
        message = f"{told}. A replica becomes one, once all are in step: {', '.join(seen.unsynced)} not yet."
        return Step.wait(SCALING, message, requeue=SYNC_SECONDS)
    instance = _spare_replica(seen)
    if instance is None:
        message = f"{told}, and no replica can be spared."
        return Step.wait(SCALING, message, warning=True, requeue=BLOCKED_SECONDS)
    NODE.after(seen.node_state(instance.id), NodeEvent.RECREATE)
    message = (
        f"{told}: {instance.name} begins anew with an empty disk, for it is to be one; its master has what it has."
    )
    return Step.wait(SCALING, message, *volumes.replace_disk(instance, in_use=bool(seen.view.slots_of(instance.id))))


def _spare_replica(seen: Assessment) -> Instance | None:
    """The replica to recreate: one of the primary that has most, whose data surely is elsewhere."""
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
