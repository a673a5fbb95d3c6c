"""What a run came to: rates, quantiles, and the goals they are held against. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024

Buckets = Mapping[float, float]
"""A histogram as Prometheus counts it: by an upper bound, how many values are not above it."""


@dataclass(frozen=True)
class Run:
    """All writes about resources that were created at once.

    Attributes:
        seconds: from the first creation to the answer to the last write.
        client: processor seconds of whoever wrote.
        server: processor seconds of the API server and its etcd.
    """

    seconds: float
    client: float
    server: float


@dataclass(frozen=True)
class Race:
    """The same writes, once by the operator and once by the bare client, each on a fresh API server.

    Attributes:
        size: resources that were created at once.
        queue_p99: seconds within which 99 of 100 resources came to a worker.
    """

    size: int
    operator: Run
    bare: Run
    queue_p99: float

    @property
    def ratio(self) -> float:
        """The operator's rate as a part of the bare client's."""
        return self.bare.seconds / self.operator.seconds

    @property
    def ratio_of_work(self) -> float:
        """The same by processor time, which tells less of what else the machine does meanwhile."""
        return (self.bare.client + self.bare.server) / (self.operator.client + self.operator.server)


@dataclass(frozen=True)
class Account:
    """What one operator cost as its resources became more.

    Attributes:
        memory: resident bytes by the number of resources it had taken up.
        peak: the most resident bytes meanwhile.
        restarted: resident bytes of one that started with all of them there.
        writes: its writes until all were done.
        owned: objects that a resource owns.
        restart_writes: writes of the one that started with all of them there.
        idle: seconds in which nothing happened.
        idle_calls: what it asked meanwhile, as "verb resource"; watches do not count.
    """

    memory: dict[int, int]
    peak: int
    restarted: int
    writes: int
    owned: int
    restart_writes: int
    idle: float
    idle_calls: tuple[str, ...]

    @property
    def size(self) -> int:
        """Resources in the end."""
        return max(self.memory)

    @property
    def per_creation(self) -> float:
        """Writes a resource."""
        return self.writes / self.size

    @property
    def per_further(self) -> float:
        """Bytes that each resource took from the last stage but one to the last."""
        before, after = sorted(self.memory)[-2:]
        return (self.memory[after] - self.memory[before]) / (after - before)


@dataclass(frozen=True)
class Goal:
    """A figure and its bound.

    Attributes:
        name: what it is, with its unit.
        value: what was measured.
        bound: what it may be at most, or at least.
        at_least: whether the bound is the least.
    """

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def wanted(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


def goals(races: Iterable[Race], account: Account) -> list[Goal]:
    """The figures of a run against what they should be (medians, where there were several races)."""
    by_size: dict[int, list[Race]] = {}
    for race in races:
        by_size.setdefault(race.size, []).append(race)
    first = min(by_size)
    found = [
        Goal(f"rate at {size}, of the bare client's", median(race.ratio for race in several), 0.7, at_least=True)
        for size, several in sorted(by_size.items())
    ]
    thousand = min(account.memory, key=lambda count: abs(count - 1000))
    reads = [call for call in account.idle_calls if call.split()[0] in ("get", "list")]
    return [
        *found,
        Goal(f"queue wait at {first}, p99, s", median(race.queue_p99 for race in by_size[first]), 1.0),
        Goal(f"resident at {thousand}, MiB", account.memory[thousand] / MIB, 100),
        Goal("each further resource, KiB", account.per_further / KIB, 30),
        Goal("writes a creation", account.per_creation, account.owned + 2),
        Goal("writes of a restart", account.restart_writes, 0),
        Goal(f"idle {account.idle:g} s: writes", len(account.idle_calls) - len(reads), 0),
        Goal(f"idle {account.idle:g} s: reads but the resync", len(reads), 0),
    ]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Iterable[float], share: float) -> float:
    """The least of the values that such a share of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def quantile(buckets: Buckets, part: float) -> float:
    """The value that this part of all is not above, as Prometheus' histogram_quantile estimates it.

    Within a bucket the values are taken to be spread evenly; above the last finite bound nothing is known but it.
    """
    bounds = sorted(buckets)
    rank = part * buckets[bounds[-1]]
    below, floor = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > below:
            if bound == float("inf"):
                return floor
            return floor + (bound - floor) * (rank - below) / (buckets[bound] - below)
        below, floor = buckets[bound], bound
    return floor
