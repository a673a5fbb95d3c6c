"""Pairs replicas with primaries. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from operators.redis.slots.placement import STEP, Location, Locations, complete, forced

CHANGED = 1
"""Cost of a replica that changes its primary: it needs a full sync."""

UNEVEN = STEP
"""Cost of a primary with two more replicas than another."""

SAME_ZONE = STEP**2
"""Cost of a replica in the zone of its primary."""

SAME_HOST = STEP**3
"""Cost of a replica on the host of its primary."""

MISSING_REPLICA = STEP**4
"""Cost of a primary with fewer replicas than its share."""


def pair(
    primaries: Sequence[str],
    replicas: Sequence[str],
    locations: Locations,
    current: Mapping[str, str],
    *,
    keep: bool = False,
) -> dict[str, str]:
    """Return the primary of each replica.

    In this order: each primary has its share of replicas; none of them is on the host of its primary, then none in its
    zone; the others are spread evenly; and the fewest replicas change their primary.

    Args:
        primaries: node ids.
        replicas: ids of all other nodes, new ones included.
        locations: location of each node.
        current: primary of each replica that has one.
        keep: whether a replica stays with its primary regardless of their locations.

    Returns:
        The primary of each replica; empty if there is no primary.
    """
    return _Pairing(primaries, replicas, locations, current, keep=keep).solve() if primaries else {}


def _relevant(at: Mapping[str, Location]) -> Mapping[str, Location]:
    """Return the locations without a zone or a host that all nodes share: it makes no difference between pairs."""
    hosts, zones = ({location[number] for location in at.values()} for number in (0, 1))
    if len(hosts) == 1:
        return complete(at, {})
    return {node: Location(location.host, location.host) for node, location in at.items()} if len(zones) == 1 else at


class _Move(NamedTuple):
    """A replica that leaves its primary, and the cost of the path until then."""

    cost: int
    replica: str
    source: str


class _Movers:
    """The cheapest replicas to move, by where they run: a primary takes one from elsewhere, its zone, or its host."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, _Move]] = {}  # by zone and host of the replica
        self._nearest: dict[str, list[tuple[int, str]]] = {}  # two hosts by zone
        self._best: list[tuple[int, str]] = []  # two zones

    def add(self, move: _Move, location: Location) -> None:
        hosts = self._zones.setdefault(location.zone, {})
        known = hosts.get(location.host)
        if known is None or move.cost < known.cost:
            hosts[location.host] = move

    def seal(self) -> None:
        """Prepare for `offers`, after the last replica was added."""
        for zone, hosts in self._zones.items():
            self._nearest[zone] = heapq.nsmallest(2, ((move.cost, host) for host, move in hosts.items()))
        self._best = heapq.nsmallest(2, ((hosts[0][0], zone) for zone, hosts in self._nearest.items()))

    def offers(self, location: Location) -> Iterator[tuple[int, _Move]]:
        """Yield the cost of the cheapest replica from elsewhere, from the zone, and from the host of a primary."""
        for cost, zone in self._best:
            if zone != location.zone:
                yield cost, self._zones[zone][self._nearest[zone][0][1]]
                break
        here = self._zones.get(location.zone)
        if here is None:
            return
        for cost, host in self._nearest[location.zone]:
            if host != location.host:
                yield cost + SAME_ZONE, here[host]
                break
        if location.host in here:
            yield here[location.host].cost + SAME_ZONE + SAME_HOST, here[location.host]


class _Pairing:
    """Cheapest assignment of replicas to primaries: a minimum-cost flow.

    Replicas that have their lowest possible cost are assigned at once, which cannot be improved. Each of the others is
    added along the cheapest path, on which others may move to another primary. The result is the cheapest (Ahuja,
    Magnanti, Orlin: Network Flows, "Successive shortest path algorithm"). A path is searched in time linear in the
    number of nodes, because only the locations of a replica and a primary determine the cost of their pair.
    """

    def __init__(
        self,
        primaries: Sequence[str],
        replicas: Sequence[str],
        locations: Locations,
        current: Mapping[str, str],
        *,
        keep: bool,
    ) -> None:
        self.following: dict[str, list[str]] = {primary: [] for primary in primaries}
        self.replicas = tuple(dict.fromkeys(replicas))
        self.at = _relevant(complete((*primaries, *self.replicas), locations))
        self.current = {
            replica: current[replica] for replica in self.replicas if current.get(replica) in self.following
        }
        self.keep = keep
        self.each = len(self.replicas) // len(self.following)

    def solve(self) -> dict[str, str]:
        if self._is_best():
            return dict(self.current)
        waiting: Iterable[str] = self.replicas
        for limit in (self.each, self.each + 1):
            waiting = self._fill(self._stay(waiting, limit), limit)
            if any(len(following) < self.each for following in self.following.values()):
                break
        for replica in waiting:
            self._join(replica)
        found = {replica: primary for primary, following in self.following.items() for replica in following}
        return {replica: found[replica] for replica in self.replicas}

    def _is_best(self) -> bool:
        """Return whether no replica has to move: loads are even, and no more share a location than have to."""
        loads = Counter(self.current.values())
        if len(self.current) < len(self.replicas) or {loads[each] - self.each for each in self.following} - {0, 1}:
            return False
        if self.keep:
            return True
        for number in (0, 1):
            nodes = Counter(location[number] for location in self.at.values())
            primaries = Counter(self.at[primary][number] for primary in self.following)
            least = sum(
                forced(count, primaries[name], len(self.following), len(self.replicas)) for name, count in nodes.items()
            )
            pairs = self.current.items()
            if sum(self.at[one][number] == self.at[other][number] for one, other in pairs) > least:
                return False
        return True

    def _apart(self, replica: str, primary: str) -> int:
        """Return the cost of the locations of a replica and its primary."""
        one, other = self.at[replica], self.at[primary]
        if one.zone != other.zone or (self.keep and self.current.get(replica) == primary):
            return 0
        return SAME_ZONE + (SAME_HOST if one.host == other.host else 0)

    def _cost(self, replica: str, primary: str) -> int:
        return self._apart(replica, primary) + (CHANGED if self.current.get(replica, primary) != primary else 0)

    def _load_cost(self, primary: str) -> int:
        """Return the cost of one more replica for a primary."""
        beyond = len(self.following[primary]) - self.each
        return 0 if beyond < 0 else MISSING_REPLICA + UNEVEN * beyond

    def _stay(self, replicas: Iterable[str], limit: int) -> list[str]:
        """Assign replicas that stay with their primary at no cost; return the others."""
        others = []
        for replica in replicas:
            primary = self.current.get(replica, "")
            if primary and len(self.following[primary]) < limit and not self._apart(replica, primary):
                self.following[primary].append(replica)
            else:
                others.append(replica)
        return others

    def _fill(self, replicas: Sequence[str], limit: int) -> list[str]:
        """Assign replicas that have no good primary to primaries in other zones; return the others.

        The zone with the most vacancies comes first, so that few are left for zones with many replicas.
        """
        vacant: dict[str, list[str]] = {}
        for primary, following in reversed(self.following.items()):
            if len(following) < limit:
                vacant.setdefault(self.at[primary].zone, []).append(primary)
        number = {primary: number for number, primary in enumerate(self.following)}
        queue = [
            (-sum(limit - len(self.following[each]) for each in some), number[some[-1]], zone)
            for zone, some in vacant.items()
        ]
        heapq.heapify(queue)
        crowd = Counter(self.at[replica].zone for replica in replicas)
        left = []
        for replica in sorted(replicas, key=lambda node: (-crowd[self.at[node].zone], self.at[node])):
            primary = self.current.get(replica, "")
            if primary and not self._apart(replica, primary):
                left.append(replica)  # it could stay at no cost
                continue
            aside = heapq.heappop(queue) if queue and queue[0][2] == self.at[replica].zone else None
            if queue:
                count, first, zone = heapq.heappop(queue)
                self._take(replica, vacant[zone], limit)
                if vacant[zone]:
                    heapq.heappush(queue, (count + 1, first, zone))
            else:
                left.append(replica)
            if aside:
                heapq.heappush(queue, aside)
        order = {replica: number for number, replica in enumerate(replicas)}
        return sorted(left, key=order.__getitem__)

    def _take(self, replica: str, vacant: list[str], limit: int) -> None:
        """Assign a replica to the primary with the fewest replicas, above all on its host."""
        location = self.at[replica]

        def order(primary: str) -> tuple[int, int, int]:
            others = [self.at[other] for other in self.following[primary]]
            near = [other.host == location.host for other in others], [other.zone == location.zone for other in others]
            return len(others), sum(near[0]), sum(near[1])

        primary = min(reversed(vacant), key=order) if self.each > 1 else vacant[-1]
        self.following[primary].append(replica)
        if len(self.following[primary]) >= limit:
            vacant.remove(primary)

    def _join(self, replica: str) -> None:
        """Add a replica along the cheapest path (Bellman-Ford)."""
        cost = {primary: self._cost(replica, primary) for primary in self.following}
        before: dict[str, _Move] = {}  # the replica that moves to a primary, and its former primary
        while self._relax(cost, before):
            pass
        end = min(
            self.following, key=lambda primary: (cost[primary] + self._load_cost(primary), self._near(replica, primary))
        )
        while end in before:
            _, moving, source = before[end]
            self.following[source].remove(moving)
            self.following[end].append(moving)
            end = source
        self.following[end].append(replica)

    def _relax(self, cost: dict[str, int], before: dict[str, _Move]) -> bool:
        """Lower the costs of paths that become cheaper by one more move; return whether there are any."""
        movers, found = _Movers(), dict(cost)
        for source, following in self.following.items():
            for moving in following:
                base, former = cost[source] - self._cost(moving, source), self.current.get(moving)
                movers.add(_Move(base + (CHANGED if former else 0), moving, source), self.at[moving])
                if former and former != source and (back := base + self._apart(moving, former)) < found[former]:
                    found[former], before[former] = back, _Move(back, moving, source)
        movers.seal()
        for target in self.following:
            for price, move in movers.offers(self.at[target]):
                if price < found[target] and move.source != target:
                    found[target], before[target] = price, move
        changed = found != cost
        cost.update(found)
        return changed

    def _near(self, replica: str, primary: str) -> int:
        """Return how many replicas of a primary are on the same host: among equals, they are spread."""
        return sum(self.at[other].host == self.at[replica].host for other in self.following[primary])
