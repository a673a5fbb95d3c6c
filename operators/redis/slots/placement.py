"""Selects primaries and pairs replicas with them, spread over hosts. Pure.

If a host fails, so do all its pods. So a replica is useful on another host than its primary, and few primaries
should share a host, because a majority of them must vote in an election.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.redis.slots.hash_slots import Slots

CHANGED = 1
"""Cost of a replica that changes its primary: it needs a full sync."""

UNEVEN = 10**4
"""Cost of a primary with two more replicas than another."""

SAME_HOST = 10**10
"""Cost of a replica on the host of its primary."""

MISSING_REPLICA = 10**14
"""Cost of a primary with fewer replicas than its share. Each cost exceeds the sum of all lower ones."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A replica on the host of its primary."""

    replica: str
    primary: str
    host: str


def choose_primaries(
    candidates: Sequence[str],
    count: int,
    hosts: Mapping[str, str],
    owners: Mapping[str, Slots],
    current: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the nodes that are to be primaries.

    Nodes with the most slots stay, because then the fewest slots move. Next come replicas of primaries that are no
    candidates, one of each, which only need to take over. Then nodes on hosts with the fewest primaries.

    Args:
        candidates: node ids; among equals, earlier ones are chosen.
        count: number of primaries; all candidates, if there are fewer.
        hosts: host of each node; a node without a host counts as alone.
        owners: slots of the nodes that own any; nodes other than candidates may be among them.
        current: primary of each replica.

    Returns:
        Node ids, in the order of the candidates.
    """
    distinct = tuple(dict.fromkeys(candidates))
    having = [node for node in distinct if owners.get(node)]
    chosen = sorted(having, key=lambda node: -len(owners[node]))[:count]
    followed: set[str] = set()
    for node in distinct:
        primary = (current or {}).get(node, "")
        leaves = bool(owners.get(primary)) and primary not in distinct
        if len(chosen) < count and leaves and primary not in followed and node not in chosen:
            followed.add(primary)
            chosen.append(node)
    while len(chosen) < min(count, len(distinct)):
        there = Counter(_host(node, hosts) for node in chosen)
        chosen.append(
            min((node for node in distinct if node not in chosen), key=lambda node: there[_host(node, hosts)])
        )
    return tuple(node for node in distinct if node in chosen)


def pair(
    primaries: Sequence[str],
    replicas: Sequence[str],
    hosts: Mapping[str, str],
    current: Mapping[str, str],
) -> dict[str, str]:
    """Return the primary of each replica.

    In this order: each primary has its share of replicas; none of them is on the host of its primary; the others are
    spread
    evenly; and the fewest replicas change their primary.

    Args:
        primaries: node ids; among equals, earlier ones get more replicas.
        replicas: ids of all other nodes, new ones included.
        hosts: host of each node; a node without a host counts as alone.
        current: primary of each replica that has one.

    Returns:
        The primary of each replica; empty if there is no primary.
    """
    return _Pairing(primaries, replicas, hosts, current).solve() if primaries else {}


def violations(pairs: Mapping[str, str], hosts: Mapping[str, str]) -> tuple[Violation, ...]:
    """Return replicas, by id, that are on the same host as their primary."""
    return tuple(
        Violation(replica, primary, hosts[replica])
        for replica, primary in sorted(pairs.items())
        if hosts.get(replica) and hosts[replica] == hosts.get(primary)
    )


class _Pairing:
    """Cheapest assignment of replicas to primaries: a minimum-cost flow, grown by one replica at a time.

    Each replica is added along the cheapest path, on which other replicas may move to another primary. The result is
    the cheapest for as many replicas, because it starts with replicas that stay at no cost (Ahuja, Magnanti, Orlin:
    Network Flows, "Successive shortest path algorithm").
    """

    def __init__(
        self, primaries: Sequence[str], replicas: Sequence[str], hosts: Mapping[str, str], current: Mapping[str, str]
    ) -> None:
        self.following: dict[str, list[str]] = {primary: [] for primary in primaries}
        self.replicas = tuple(dict.fromkeys(replicas))
        self.hosts, self.current = hosts, current
        self.each = len(self.replicas) // len(self.following)

    def solve(self) -> dict[str, str]:
        waiting = []
        for replica in self.replicas:
            kept = self.following.get(self.current.get(replica, ""))
            if kept is not None and len(kept) < self.each and not self._cost(replica, self.current[replica]):
                kept.append(replica)
            else:
                waiting.append(replica)
        for replica in waiting:
            self._join(replica)
        found = {replica: primary for primary, following in self.following.items() for replica in following}
        return {replica: found[replica] for replica in self.replicas}

    def _cost(self, replica: str, primary: str) -> int:
        together = _host(replica, self.hosts) == _host(primary, self.hosts)
        return SAME_HOST * together + CHANGED * (self.current.get(replica) != primary)

    def _load_cost(self, primary: str) -> int:
        """Return the cost of one more replica for a primary."""
        beyond = len(self.following[primary]) - self.each
        return 0 if beyond < 0 else MISSING_REPLICA + UNEVEN * beyond

    def _join(self, replica: str) -> None:
        cost = {primary: self._cost(replica, primary) for primary in self.following}
        before: dict[str, tuple[str, str]] = {}  # the replica that moves to a primary, and its former primary
        changed = True
        while changed:
            changed = False
            for source, following in self.following.items():
                for moving in following:
                    base = cost[source] - self._cost(moving, source)
                    for target in self.following:
                        if base + self._cost(moving, target) < cost[target] and target != source:
                            cost[target] = base + self._cost(moving, target)
                            before[target] = (moving, source)
                            changed = True
        end = min(
            self.following,
            key=lambda primary: (cost[primary] + self._load_cost(primary), self._replicas_on_host(replica, primary)),
        )
        while end in before:
            moving, source = before[end]
            self.following[source].remove(moving)
            self.following[end].append(moving)
            end = source
        self.following[end].append(replica)

    def _replicas_on_host(self, replica: str, primary: str) -> int:
        """Return how many replicas of a primary are on the same host: among equals, they are spread."""
        return sum(_host(other, self.hosts) == _host(replica, self.hosts) for other in self.following[primary])


def _host(node: str, hosts: Mapping[str, str]) -> str:
    return hosts.get(node) or f"the host of {node}"
