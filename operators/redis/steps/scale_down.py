"""Removes instances that exceed the spec: when their pods may end, and when their volumes are deleted. Pure.

Instances are removed from the highest number down, each only when its node holds no needed data: no slot, by its own
report and that of all others, no key without another copy, no replica that stays. First its slots move
(rebalance.py) and its replicas follow other primaries (replication.py); then its pod ends; then all nodes forget it
(membership_repair.py); then its volume is deleted. If the spec is reverted before that, the instance stays.
"""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import FOREIGN_KEYS
from operators.redis.state.instance import Instance
from operators.redis.steps.waiting import SYNC_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.kubernetes.accessors import is_terminating
from shared.runtime.plan import PASS, Step
from shared.status.phases import SCALING
from shared.steps import volumes


def replicas(seen: Assessment) -> int:
    """Return the replicas of the StatefulSet: those of the spec, and all up to the last that cannot go yet.

    A number that another client has set removes no instance: each must meet the same conditions (`decided_replicas`).
    """
    desired, present = seen.resource.spec.replicas, seen.decided_replicas
    if seen.stateful_set is None:
        return max(desired, present) if seen.resource.formed else desired
    staying = (number for number in range(present - 1, desired - 1, -1) if not _may_go(seen, number))
    return next(staying, desired - 1) + 1


def _may_go(seen: Assessment, number: int) -> bool:
    """Return whether the pod of an instance beyond the spec may end: it holds no needed data."""
    instance = next((instance for instance in seen.instances if instance.number == number), None)
    if instance is None:
        return True
    if not seen.resource.formed:
        return instance.name not in {node.name for node in seen.resource.forming}
    return not instance.is_draining(seen.now) and not why_needed(seen, instance)


def why_needed(seen: Assessment, instance: Instance) -> str:
    """Return why an instance beyond the spec has to stay yet, as a predicate without a period; empty if it may go."""
    view = seen.agreement
    if view.settled or view.unserved or view.open or seen.unknown_nodes:
        return "stays until all nodes agree and every slot has an owner"
    if not all(node.answers for node in view.primaries):
        return "stays until every primary responds"
    if set(view.owned) - set(seen.primaries):
        return "stays until the slots of all nodes that are removed have moved"
    ids = {instance.id, instance.recorded.node_id if instance.recorded else ""} - {""}
    return next((why for node_id in sorted(ids) if (why := _why_node_needed(seen, instance, node_id))), "")


def _why_node_needed(seen: Assessment, instance: Instance, node_id: str) -> str:
    view = seen.view
    node = view.nodes.get(node_id)
    if node is None or node_id not in view.cluster:
        is_needless = instance.report is None or instance.id != node_id or instance.is_blank
        return "" if is_needless else "is not in the cluster and has keys or slots"
    followers = [other for other in view.replicas_of(node_id) if _number(seen, other) < seen.resource.spec.replicas]
    if slots := view.slots_of(node_id):
        return f"still has {len(slots)} slots"
    if followers:
        return f"still has replicas that stay: {', '.join(seen.name_of(other.id) for other in followers)}"
    if node.is_replica:
        if seen.is_needed(node_id):
            return "may have the only copy of keys"
        is_settled = not seen.changed_pairs and not _lagging(seen)
        return "" if is_settled else "stays until the replicas that stay are in sync"
    if node.report is None or not node.report.keys:
        return ""
    if instance.trims:
        return instance.trims
    return (
        f"is not removed, because it holds {node.report.keys} keys of slots that it does not own (redis-cli --scan): "
        f"compare them with the owner's and delete them, see {FOREIGN_KEYS} in the runbook"
    )


def _lagging(seen: Assessment) -> bool:
    """Return whether a replica that stays still has to receive data of one that is removed, or is unreachable."""
    ids = {instance.id or (instance.recorded.node_id if instance.recorded else "") for instance in seen.staying}
    return any(node.is_replica and not node.synced for node in seen.view.members if node.id in ids)


def _number(seen: Assessment, node: Seen) -> int:
    instance = seen.instance_of(node.id)
    return instance.number if instance else -1


def delete_released_volumes(seen: Assessment) -> Step:
    """Delete the volume of a removed instance, once no member knows its node: a later instance begins empty."""
    if not seen.resource.formed or seen.stateful_set is None:
        return PASS
    least = max(seen.resource.spec.replicas, seen.decided_replicas)
    removed = [
        instance for instance in seen.instances if instance.number >= least and (instance.pod_obj or instance.volume)
    ]
    for instance in removed:
        if instance.volume is None or instance.pod_obj is not None or is_terminating(instance.volume):
            continue
        if instance.recorded is None or seen.is_forgotten(instance.recorded.node_id):
            owns = bool(instance.recorded and seen.view.slots_of(instance.recorded.node_id))
            message = f"{instance.name} was removed and holds no needed data; deleting its volume."
            return Step.wait(SCALING, message, volumes.delete(instance.volume, in_use=owns))
    if not removed:
        return PASS
    names = ", ".join(instance.name for instance in removed)
    return Step.progressing(SCALING, f"Removing {names}.", poll=SYNC_SECONDS)
