"""Plans the slots of a new cluster, and reports what prevents its creation. Pure.

The plan is recorded in the status before the first command, so that the operator continues with it after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.redis.api.status import FormingNode, RecordedNode
from operators.redis.facts.assessment import Assessment
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.placement import choose_primaries
from operators.redis.slots.slot_planner import shares
from operators.redis.state.instance import Instance


def planned(seen: Assessment) -> tuple[FormingNode, ...]:
    """Return the slots that each primary of the new cluster is to own; empty until all nodes are reachable.

    A recorded plan stays, except for nodes that were replaced.
    """
    resource = seen.resource
    if seen.has_formed:
        return ()
    if why_incomplete(seen) or why_occupied(seen):
        return resource.forming
    instances = {instance.name: instance for instance in seen.staying}
    if resource.forming and all(node.name in instances for node in resource.forming):
        return _renewed(resource.forming, instances)
    ids = {instance.id: instance for instance in instances.values()}
    primaries = choose_primaries(
        list(ids), resource.primaries, {node_id: instance.location for node_id, instance in ids.items()}, {}
    )
    plan, start = [], 0
    for epoch, (node_id, share) in enumerate(shares({}, primaries).items(), start=1):
        slots = Slots.of(range(start, start + share))
        plan.append(FormingNode(name=ids[node_id].name, node_id=node_id, epoch=epoch, slots=str(slots)))
        start += share
    return tuple(plan)


def _renewed(before: Sequence[FormingNode], instances: Mapping[str, Instance]) -> tuple[FormingNode, ...]:
    """Return the same plan for the current nodes. A replaced node gets a higher epoch than any that nodes know."""
    highest, plan = max(node.epoch for node in before), []
    for node in before:
        if node.node_id != instances[node.name].id:
            highest += 1
            node = FormingNode(name=node.name, node_id=instances[node.name].id, epoch=highest, slots=node.slots)
        plan.append(node)
    return tuple(plan)


def why_incomplete(seen: Assessment) -> str:
    """Return which nodes are missing, and why; empty if none is."""
    desired = seen.resource.spec.replicas
    missing = [instance for instance in seen.staying if instance.report is None]
    if not missing and len(seen.staying) == desired:
        return ""
    there = len(seen.staying) - len(missing)
    return f"{there} of {desired} nodes are reachable. {seen.why_away(missing)}".strip()


def why_occupied(seen: Assessment) -> str:
    """Return which node is not empty, and what it holds; empty if all nodes are empty."""
    forming = seen.resource.forming
    given = {node.node_id: Slots.parse(node.slots) for node in forming}
    known = {
        *given,
        *(instance.id for instance in seen.staying),
        *(node.node_id for node in seen.resource.recorded_nodes),
    }
    renewed = any(node.node_id not in seen.reachable for node in forming)
    for instance in seen.staying:
        if (report := instance.report) is None:
            continue
        if report.keys and (renewed or not report.me.slots):
            return f"{instance.name} holds {report.keys} keys"
        if report.me.primary and seen.resource.spec.template.volumes is not None:
            return f"{instance.name} is a replica of node {report.me.primary[:8]}, and its volume is shared"
        if beyond := report.me.slots - given.get(report.id, Slots()):
            return f"{instance.name} owns slots {beyond}"
        if foreign := [node.id for node in report.nodes if not node.handshake and node.id not in known]:
            return f"{instance.name} knows node {foreign[0]}, which belongs to no pod of this cluster"
    return ""


def replaced_node(seen: Assessment) -> RecordedNode | None:
    """Return a recorded node whose instance has another node now, if a node still knows it."""
    mentioned = {node.id for instance in seen.instances if instance.report for node in instance.report.nodes}
    known = (instance.recorded for instance in seen.staying if instance.recorded)
    return next((node for node in known if node.node_id in mentioned - seen.reachable.keys()), None)
