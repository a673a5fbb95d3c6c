"""Which nodes are masters, and who replicates whom. Pure.

A host that goes takes all its pods along. So a replica is of use where its master is not; and masters, a majority of
whom must vote on who follows one, are of use to each other where few are on one host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.redis.slots.hash_slots import Slots

CHANGED = 1
"""What it costs that a replica follows another master than now: it gets all its data anew."""

UNEVEN = 10**4
"""That a master has two replicas more than another."""

SAME_HOST = 10**10
"""That a replica is on its master's host."""

MISSING_REPLICA = 10**14
"""That a master has fewer replicas than there are for each. As with the others: one costs more than all below it do."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A replica that would go along with its master."""

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
    """Which nodes are to be masters.

    Who owns most slots stays, for then fewest move. Next come replicas of masters that are no candidates, one for each:
    they need only take over. Then whoever is on a host with the fewest masters.

    Args:
        candidates: ids of nodes; among equals the earlier ones are chosen.
        count: how many; all, if there are not as many.
        hosts: where each runs; one without a host counts as alone on its own.
        owners: slots of those that have any; others than candidates may be among them.
        current: the master of each replica.

    Returns:
        Their ids, in the order of the candidates.
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
    """The master of each replica.

    First of all each master has as many replicas as there are for each; then none is on its master's host; then the
    rest are spread evenly; and of all ways to have that, the one that changes least.

    Args:
        masters: ids; among equals, earlier ones are given more.
        replicas: ids of all others, new ones included.
        hosts: where each runs; one without a host counts as alone on its own.
        current: the master of each replica that has one.

    Returns:
        For each replica its master; nothing, if there is none.
    """
    return _Pairing(primaries, replicas, hosts, current).solve() if primaries else {}


def violations(pairs: Mapping[str, str], hosts: Mapping[str, str]) -> tuple[Violation, ...]:
    """Replicas, by id, that are on the same host as their master."""
    return tuple(
        Violation(replica, primary, hosts[replica])
        for replica, primary in sorted(pairs.items())
        if hosts.get(replica) and hosts[replica] == hosts.get(primary)
    )


class _Pairing:
    """Cheapest assignment of replicas to masters: a flow of least cost, grown by one replica at a time.

    Each replica joins along the cheapest way, on which others may make room by moving on. That keeps the whole the
    cheapest for as many, since it begins with replicas that stay at no cost (Ahuja, Magnanti, Orlin: Network Flows,
    "Successive shortest path algorithm").
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
            stays = self.following.get(self.current.get(replica, ""))
            if stays is not None and len(stays) < self.each and not self._cost(replica, self.current[replica]):
                stays.append(replica)
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
        """What one replica more costs a master."""
        beyond = len(self.following[primary]) - self.each
        return 0 if beyond < 0 else MISSING_REPLICA + UNEVEN * beyond

    def _join(self, replica: str) -> None:
        cost = {primary: self._cost(replica, primary) for primary in self.following}
        before: dict[str, tuple[str, str]] = {}  # who comes to a master, and from which master
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
        """How many of a master's replicas are on the same host: where all else is equal, they are spread, too."""
        return sum(_host(other, self.hosts) == _host(replica, self.hosts) for other in self.following[primary])


def _host(node: str, hosts: Mapping[str, str]) -> str:
    return hosts.get(node) or f"the host of {node}"
