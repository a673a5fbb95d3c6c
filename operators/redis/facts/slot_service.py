"""Which slots have a serving primary, by the evidence of the nodes and, for unreachable ones, of the kubelet. Pure.

The operator may be unable to reach nodes that serve clients. So a primary that does not answer the operator still
serves if the kubelet reports it as ready and the other nodes do not report it as failed. If no node answers, the last
recorded owners count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from operators.redis.slots.hash_slots import Slots
from operators.redis.state.observed import Observed


@dataclass(frozen=True, slots=True)
class SlotService:
    """The owners of the slots, and the slots without a primary that is known to serve.

    Attributes:
        owners: slots of each owner, by node id: of the cluster view, and as last recorded for nodes out of its sight.
        unserved: slots that no primary serves, by evidence.
        unknown: slots whose last known primary does not serve, while a replica that the operator cannot reach may have
            taken over.
        foreign: slots whose owner is a member that belongs to none of the cluster's pods, and may serve others.
    """

    owners: Mapping[str, Slots]
    unserved: Slots
    unknown: Slots
    foreign: Slots


def slot_service(seen: Observed) -> SlotService:
    """Return which slots no primary serves."""
    owners = _owners(seen)
    serving = {node_id for node_id in owners if _serves(seen, node_id)}
    served = Slots.union(owners[node_id] for node_id in serving)
    unknown = Slots.union(
        slots for node_id, slots in owners.items() if node_id not in serving and _may_have_successor(seen, node_id)
    )
    foreign = Slots.union(owners[node.id] for node in seen.unknown_nodes if node.id in owners)
    return SlotService(owners, Slots.all() - served - unknown - foreign, unknown - served - foreign, foreign - served)


def _owners(seen: Observed) -> Mapping[str, Slots]:
    """Return the owners in the cluster view; of slots without one, the unreachable node that last owned them."""
    owners = dict(seen.view.owned)
    covered = Slots.union(owners.values())
    for node_id, instance in seen.recorded.items():
        if instance.recorded and instance.report is None and (slots := instance.recorded.slots - covered):
            owners[node_id] = owners.get(node_id, Slots()) | slots
    return owners


def _serves(seen: Observed, node_id: str) -> bool:
    """Return whether a primary serves its slots."""
    node, instance = seen.view.nodes.get(node_id), seen.instance_of(node_id)
    if node is not None and node.report is not None:
        return node.report.state_ok and not node.report.loading
    if (node is not None and node.failing) or seen.lost(node_id):
        return False
    return instance is not None and instance.ready


def _may_have_successor(seen: Observed, node_id: str) -> bool:
    """Return whether a replica that only the operator cannot reach may have taken over from a primary."""
    replicas = {node.id for node in seen.view.replicas_of(node_id)}
    return any(
        instance.is_out_of_reach and instance.recorded and (known in replicas or instance.recorded.primary == node_id)
        for known, instance in seen.recorded.items()
    )
