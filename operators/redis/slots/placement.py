"""Where nodes run, what a placement costs, and the choice of primaries for a cluster that is created or scaled. Pure.

A host that fails takes all its pods with it, and a zone all its hosts. So a replica is useful on another host than its
primary, better in another zone; and few primaries share a host or a zone, because without a majority of them nothing
is elected, and the whole cluster stops.

A node without a known host counts as alone on a host, and a host without a known zone as alone in a zone.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from operators.redis.slots.hash_slots import Slots

STEP = 1 << 20
"""Ratio of two costs of which the higher one outweighs any sum of the lower: more than 500 nodes squared."""

MIN_VOTERS = 3
"""Fewest primaries that can lose one and keep a majority."""


class Location(NamedTuple):
    """Where a node runs.

    Attributes:
        host: name of the Kubernetes node; empty if unknown.
        zone: zone of the Kubernetes node (topology.kubernetes.io/zone); empty if it has none, or if it is unknown.
    """

    host: str = ""
    zone: str = ""


Locations = Mapping[str, Location]
"""Locations by node id."""


@dataclass(frozen=True, slots=True)
class SharedLocation:
    """Nodes of which one would be a safeguard against the loss of another, in one location.

    Attributes:
        kind: the location that they share.
        name: name of the host or zone.
        nodes: node ids: a primary and its replica; or primaries without which there is no majority.
    """

    kind: str
    name: str
    nodes: tuple[str, ...]


def complete(nodes: Iterable[str], locations: Locations) -> dict[str, Location]:
    """Return the location of each node, with a name of its own for each unknown host and zone."""
    zones = {location.host: location.zone for location in locations.values() if location.host and location.zone}
    found = {}
    for node in nodes:
        host, zone = locations.get(node, Location())
        host, known = host or f"the host of {node}", zone or zones.get(host, "")
        found[node] = Location(host, known or f"the zone of {host}")
    return found


def tolerated(primaries: int) -> int:
    """Return how many primaries may fail at once while the others keep a majority."""
    return (primaries - 1) // 2


def replicas_together(pairs: Mapping[str, str], locations: Locations) -> Iterator[SharedLocation]:
    """Yield replicas on the host of their primary, then those in its zone, if there are several zones."""
    at = complete((*pairs, *pairs.values()), locations)
    several = len({location.zone for location in at.values()}) > 1
    for replica, primary in pairs.items():
        if at[replica].host == at[primary].host:
            yield SharedLocation("host", at[primary].host, (primary, replica))
    for replica, primary in pairs.items():
        if several and at[replica].host != at[primary].host and at[replica].zone == at[primary].zone:
            yield SharedLocation("zone", at[primary].zone, (primary, replica))


def primaries_together(primaries: Sequence[str], locations: Locations) -> Iterator[SharedLocation]:
    """Yield hosts, then zones, whose loss leaves no majority of the primaries.

    With less than three zones some zone always has that many, so none is reported.
    """
    if len(primaries) < MIN_VOTERS:
        return
    at = complete(primaries, locations)
    zones = len({location.zone for location in complete(locations, locations).values()})
    for kind, number in (("host", 0), ("zone", 1)):
        groups: dict[str, list[str]] = {}
        for node in primaries:
            groups.setdefault(at[node][number], []).append(node)
        for name, nodes in groups.items():
            hosts = len({at[node].host for node in nodes})
            if len(nodes) > tolerated(len(primaries)) and (kind == "host" or (zones >= MIN_VOTERS and hosts > 1)):
                yield SharedLocation(kind, name, tuple(nodes))


def forced(nodes: int, primaries_here: int, primaries: int, replicas: int) -> int:
    """Return how many replicas in a location have to replicate a primary there.

    The location has more replicas than the primaries elsewhere can take, if those here get their share only.

    Args:
        nodes: number of nodes in the location.
        primaries_here: number of primaries in the location.
        primaries: number of all primaries; at least one.
        replicas: number of all replicas.
    """
    here = replicas // primaries * primaries_here if primaries_here < primaries else replicas
    return max(0, nodes - primaries_here + here - replicas)


class Costs:
    """Costs of the number of primaries on each host and in each zone, from the highest:

    1. primaries on a host beyond those that may fail at once,
    2. primaries in a zone beyond those,
    3. replicas that have to be on the host of their primary,
    4. replicas that have to be in the zone of their primary,
    5. to 7. left to the changes that a caller weighs,
    8. unevenness over hosts, and
    9. over zones (sums of squares).

    Each is convex, so the best placement can be reached by changes that improve it (`leaders.py`).
    """

    HOST_MAJORITY, ZONE_MAJORITY, HOST_PAIR, ZONE_PAIR = STEP**9, STEP**8, STEP**7, STEP**6
    HOST_EVEN, ZONE_EVEN = STEP**2, STEP

    def __init__(self, locations: Mapping[str, Location], primaries: int) -> None:
        self._primaries, self._replicas = primaries, max(len(locations) - primaries, 0)
        self._nodes_on_host = Counter(location.host for location in locations.values())
        self._nodes_of_zone = Counter(location.zone for location in locations.values())

    @cached_property
    def hosts(self) -> Mapping[str, Sequence[int]]:
        """Cost of the next primary on a host, by the number of primaries there, up to the most possible."""
        weights = (self.HOST_PAIR, self.HOST_MAJORITY, self.HOST_EVEN)
        return {host: self._steps(nodes, weights) for host, nodes in self._nodes_on_host.items()}

    @cached_property
    def zones(self) -> Mapping[str, Sequence[int]]:
        """Cost of the next primary in a zone, by the number of primaries there, up to the most possible."""
        weights = (self.ZONE_PAIR, self.ZONE_MAJORITY, self.ZONE_EVEN)
        return {zone: self._steps(nodes, weights) for zone, nodes in self._nodes_of_zone.items()}

    def _steps(self, nodes: int, weights: tuple[int, int, int]) -> Sequence[int]:
        pair, majority, even = weights
        limit = tolerated(self._primaries) if self._primaries >= MIN_VOTERS else nodes
        totals = [
            pair * forced(nodes, count, self._primaries, self._replicas)
            + majority * max(0, count - limit)
            + even * count * count
            for count in range(min(nodes, self._primaries) + 1)
        ]
        return [after - before for before, after in pairwise(totals)]


def choose_primaries(
    candidates: Sequence[str],
    count: int,
    locations: Locations,
    owners: Mapping[str, Slots],
    current: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the nodes that are to be primaries.

    Nodes with the most slots stay, because then the fewest slots move. Next come replicas of primaries that are no
    candidates, one of each, which only need to take over. Then nodes at the locations with the lowest costs.

    Args:
        candidates: node ids; among equals, earlier ones are chosen.
        count: number of primaries; all candidates, if there are fewer.
        locations: location of each node.
        owners: slots of the nodes that own any; nodes other than candidates may be among them.
        current: primary of each replica.

    Returns:
        Node ids, in the order of the candidates.
    """
    distinct = dict.fromkeys(candidates)
    having = [node for node in distinct if owners.get(node)]
    chosen = dict.fromkeys(sorted(having, key=lambda node: -len(owners[node]))[:count])
    followed: set[str] = set()
    for node in distinct:
        primary = (current or {}).get(node, "")
        leaves = bool(owners.get(primary)) and primary not in distinct
        if len(chosen) < count and leaves and primary not in followed and node not in chosen:
            followed.add(primary)
            chosen[node] = None
    missing = min(count, len(distinct)) - len(chosen)
    if missing > 0:
        at = complete(distinct, locations)
        chosen |= dict.fromkeys(_spread(at, missing, list(chosen), Costs(at, count)))
    return tuple(node for node in distinct if node in chosen)


def _spread(at: Mapping[str, Location], missing: int, chosen: Sequence[str], costs: Costs) -> Iterator[str]:
    """Yield further primaries, each at the location with the lowest cost; convex costs make that the best choice."""
    on_host, in_zone = Counter(at[node].host for node in chosen), Counter(at[node].zone for node in chosen)
    free: dict[Location, list[str]] = {}
    taken = set(chosen)
    for node in reversed(tuple(at)):
        if node not in taken:
            free.setdefault(at[node], []).append(node)
    order = {node: number for number, node in enumerate(at)}

    def cost(location: Location) -> tuple[int, int]:
        more = costs.hosts[location.host][on_host[location.host]] + costs.zones[location.zone][in_zone[location.zone]]
        return more, order[free[location][-1]]

    queue = [(cost(location), location) for location in free]
    heapq.heapify(queue)
    while missing:
        known, location = heapq.heappop(queue)
        if known != (now := cost(location)):  # costs only rise
            heapq.heappush(queue, (now, location))
            continue
        yield free[location].pop()
        missing -= 1
        on_host[location.host] += 1
        in_zone[location.zone] += 1
        if missing and free[location]:
            heapq.heappush(queue, (cost(location), location))
