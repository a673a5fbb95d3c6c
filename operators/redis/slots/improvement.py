"""The next change that improves the placement of a cluster whose nodes are all in sync. Pure.

The changes are cheap first: failovers, which move no data; then replicas that replicate another primary. Each one
leaves a cheaper rest, so they end, and the order of the costs (`placement.Costs`, `pairing`) has no cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.redis.slots.leaders import leads
from operators.redis.slots.pairing import pair
from operators.redis.slots.placement import Locations


@dataclass(frozen=True, slots=True)
class Failover:
    """A replica that should take over from its primary."""

    primary: str
    replica: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A replica that should replicate another primary.

    Attributes:
        primary: id of the new primary.
        leads: whether the replica should take over from it afterwards.
    """

    replica: str
    primary: str
    leads: bool = False


def next_change(shards: Mapping[str, Sequence[str]], locations: Locations) -> Failover | Repair | None:
    """Return the next change; None if the placement is the best.

    Args:
        shards: replicas of each primary, all of them in sync.
        locations: location of each node.
    """
    changes = sorted(leads(shards, locations), key=lambda lead: not lead.member)
    for lead in changes:
        if lead.member:
            return Failover(lead.primary, lead.node)
        if lead.node not in shards:
            return Repair(lead.node, lead.primary, leads=True)
    current = {replica: primary for primary, replicas in shards.items() for replica in replicas}
    pairs = pair(tuple(shards), tuple(current), locations, current)
    return next((Repair(replica, to) for replica, to in pairs.items() if current[replica] != to), None)
