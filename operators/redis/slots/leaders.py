"""Selects which node of each shard should be its primary, so that few primaries share a host or a zone. Pure.

A shard is a primary with its replicas. A coordinated failover within a shard moves no data. A replica of another shard
needs a full sync before it can take over. So it is chosen only if otherwise the loss of one host or zone would leave no
majority, or a replica would have to be on the host or in the zone of its primary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from operators.redis.slots.placement import STEP, Costs, Locations, complete

FAILOVER = 1
"""Cost of a shard whose primary changes."""

ZONE_SHARED, HOST_SHARED = STEP**3, STEP**4
"""Costs of each replica in the zone, and on the host, of the primary of its shard."""

FULL_SYNC = STEP**5
"""Cost of a shard whose primary is to be a replica of another shard."""

_ANY = "any replica"
"""Vertex between the hosts, for primaries that come from another shard."""

_ALL = "all zones"
"""Vertex above the zones."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A node that should become the primary of a shard.

    Attributes:
        primary: id of the present primary.
        node: id of the node.
        member: whether it is in the shard; if not, it has to replicate the primary first.
    """

    primary: str
    node: str
    member: bool


def leads(shards: Mapping[str, Sequence[str]], locations: Locations) -> tuple[Lead, ...]:
    """Return the changes to the best primaries; empty if the present ones are.

    Args:
        shards: replicas of each primary, all of them in sync.
        locations: location of each node.
    """
    return _Leaders(shards, locations).solve()


class _Arc(NamedTuple):
    """A change of the flow: its cost, and the shard that moves to another host, if any."""

    cost: int
    shard: str = ""


class _Leaders:
    """Cheapest assignment of shards to the hosts of their primaries: a minimum-cost flow.

    Its vertices are hosts and zones. It starts with the present primaries, and is improved along cycles of negative
    cost; without any, it is the cheapest (Ahuja, Magnanti, Orlin: Network Flows, "Cycle-canceling algorithm").
    """

    def __init__(self, shards: Mapping[str, Sequence[str]], locations: Locations) -> None:
        self.shards = shards
        members = {primary: (primary, *replicas) for primary, replicas in shards.items()}
        self.at = complete((node for nodes in members.values() for node in nodes), locations)
        self.costs = Costs(self.at, len(shards))
        self.zone_of = {location.host: location.zone for location in self.at.values()}
        self.options = {primary: self._options(primary, nodes) for primary, nodes in members.items()}
        self.host_of = {primary: self.at[primary].host for primary in shards}
        self.on_host = Counter(self.host_of.values())
        self.in_zone = Counter(self.at[primary].zone for primary in shards)

    def _options(self, primary: str, nodes: Sequence[str]) -> Mapping[str, tuple[int, str]]:
        """Return cost and node of each host that has a node of a shard."""
        hosts, zones = (Counter(self.at[node][number] for node in nodes) for number in (0, 1))
        found: dict[str, tuple[int, str]] = {}
        for node in nodes:  # of several on a host the first, which is the primary if it is there
            location = self.at[node]
            shared = HOST_SHARED * (hosts[location.host] - 1) + ZONE_SHARED * (zones[location.zone] - 1)
            found.setdefault(location.host, (shared + FAILOVER * (node != primary), node))
        return found

    def solve(self) -> tuple[Lead, ...]:
        self._improve_directly()
        while cycle := self._negative_cycle():
            self._apply(cycle)
        own = {primary: self.options[primary].get(host) for primary, host in self.host_of.items()}
        taken = {option[1] for option in own.values() if option}
        found = [Lead(primary, option[1], True) for primary, option in own.items() if option]
        for primary, option in own.items():
            if option is None:
                node = self._guest(self.host_of[primary], taken)
                taken.add(node)
                found.append(Lead(primary, node, False))
        return tuple(lead for lead in found if lead.node != lead.primary)

    def _guest(self, host: str, taken: set[str]) -> str:
        """Return a node on a host that leads no shard: if possible a replica, of the shard with the most replicas."""
        there = [
            (node == primary, -len(replicas), node)
            for primary, replicas in self.shards.items()
            for node in (primary, *replicas)
            if self.at[node].host == host and node not in taken
        ]
        return min(there)[2]

    def _cost(self, shard: str, host: str) -> int:
        option = self.options[shard].get(host)
        return option[0] if option else FULL_SYNC

    def _more(self, host: str) -> int | None:
        """Return the cost of one more primary on a host; None if all its nodes are primaries."""
        steps, count = self.costs.hosts[host], self.on_host[host]
        return steps[count] if count < len(steps) else None

    def _less(self, host: str) -> int:
        return -self.costs.hosts[host][self.on_host[host] - 1]

    def _improve_directly(self) -> None:
        """Fail over each shard while that alone lowers the cost."""
        changed = True
        while changed:
            changed = False
            for shard, options in self.options.items():
                here = self.host_of[shard]
                best = min(options, key=lambda host: self._change(shard, here, host))
                if self._change(shard, here, best) < 0:
                    self._move(shard, best)
                    changed = True

    def _change(self, shard: str, here: str, there: str) -> int:
        """Return by how much the cost changes if a shard moves its primary from a host to another."""
        more = self._more(there)
        if here == there:
            return 0
        if more is None:
            return STEP**10
        cost = self._cost(shard, there) - self._cost(shard, here) + more + self._less(here)
        one, other = self.zone_of[here], self.zone_of[there]
        if one != other:
            zones = self.costs.zones
            cost += zones[other][self.in_zone[other]] - zones[one][self.in_zone[one] - 1]
        return cost

    def _move(self, shard: str, host: str) -> None:
        before = self.host_of[shard]
        self.host_of[shard] = host
        for other, change in ((before, -1), (host, 1)):
            self.on_host[other] += change
            self.in_zone[self.zone_of[other]] += change

    def _arcs(self) -> Mapping[tuple[str, str], _Arc]:
        """Return the possible changes of the flow, the cheapest one between two vertices."""
        found: dict[tuple[str, str], _Arc] = {}

        def add(one: str, other: str, arc: _Arc) -> None:
            if (one, other) not in found or arc.cost < found[one, other].cost:
                found[one, other] = arc

        for shard, here in self.host_of.items():
            now = self._cost(shard, here)
            for host, (cost, _) in self.options[shard].items():
                if host != here:
                    add(f"h {here}", f"h {host}", _Arc(cost - now, shard))
            add(f"h {here}", _ANY, _Arc(FULL_SYNC - now, shard))
        for host in self.costs.hosts:
            vertex, above = f"h {host}", f"z {self.zone_of[host]}"
            if (more := self._more(host)) is not None:
                add(vertex, above, _Arc(more))
            add(_ANY, vertex, _Arc(0))
            if self.on_host[host]:
                add(above, vertex, _Arc(self._less(host)))
        for zone, steps in self.costs.zones.items():
            count = self.in_zone[zone]
            if count < len(steps):
                add(f"z {zone}", _ALL, _Arc(steps[count]))
            if count:
                add(_ALL, f"z {zone}", _Arc(-steps[count - 1]))
        return found

    def _negative_cycle(self) -> list[tuple[str, str, _Arc]]:
        """Return the arcs of a cycle of negative cost, in order; empty if there is none (Bellman-Ford)."""
        arcs = [(one, other, arc) for (one, other), arc in self._arcs().items()]
        distance = {vertex: 0 for one, other, _ in arcs for vertex in (one, other)}
        before: dict[str, tuple[str, str, _Arc]] = {}
        for _ in range(len(distance) + 1):
            changed = False
            for one, other, arc in arcs:
                if distance[one] + arc.cost < distance[other]:
                    distance[other] = distance[one] + arc.cost
                    before[other] = (one, other, arc)
                    changed = True
            if not changed:
                return []
            if cycle := _cycle(before):
                return cycle
        raise AssertionError("a path of least cost visits each vertex once at most")

    def _apply(self, cycle: Sequence[tuple[str, str, _Arc]]) -> None:
        """Move the shards of a cycle."""
        for (_, other, arc), following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            if arc.shard:
                target = following[1] if other == _ANY else other
                self._move(arc.shard, target.removeprefix("h "))


def _cycle(before: Mapping[str, tuple[str, str, _Arc]]) -> list[tuple[str, str, _Arc]]:
    """Return the arcs of a cycle among the last arcs of paths, in order; empty if there is none."""
    done: set[str] = set()
    for start in before:
        path: dict[str, None] = {}
        vertex = start
        while vertex in before and vertex not in done and vertex not in path:
            path[vertex] = None
            vertex = before[vertex][0]
        if vertex in path:
            return _around(before, vertex)
        done |= path.keys()
    return []


def _around(before: Mapping[str, tuple[str, str, _Arc]], vertex: str) -> list[tuple[str, str, _Arc]]:
    found: list[tuple[str, str, _Arc]] = []
    at = vertex
    while True:
        found.append(before[at])
        at = before[at][0]
        if at == vertex:
            return found[::-1]
