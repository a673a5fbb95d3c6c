"""Results of the memcached benchmark and their goals; statistics for all benchmarks. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

KIB, MIB = 1024, 1024 * 1024

Buckets = Mapping[float, float]
"""Cumulative histogram as in Prometheus: number of values up to each upper bound."""


@dataclass(frozen=True)
class Run:
    """All writes for resources that were created at once.

    Attributes:
        seconds: time from the first creation to the response to the last write.
        client: CPU seconds of the client.
        server: CPU seconds of the API server and its etcd.
        memory: resident memory of the client afterwards, in bytes; 0 if it was not measured.
    """

    seconds: float
    client: float
    server: float
    memory: float = 0


@dataclass(frozen=True)
class Race:
    """The same job by the operator, by the bare client and by the reference operator, each on a warm new API server.

    Attributes:
        size: number of resources created at once.
        operator: the operator.
        bare: the bare client, which replays the writes of the operator.
        queue_p99: 99th percentile of the time that resources waited for a worker of the operator, in seconds.
        references: the reference operator, by its number of concurrent reconciles.
    """

    size: int
    operator: Run
    bare: Run
    queue_p99: float
    references: Mapping[int, Run] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Rate of the operator relative to the bare client."""
        return self.bare.seconds / self.operator.seconds

    @property
    def ratio_of_work(self) -> float:
        """The same ratio by CPU time, which depends less on other load of the machine."""
        return (self.bare.client + self.bare.server) / (self.operator.client + self.operator.server)

    @property
    def reference(self) -> Run:
        """The reference operator with most concurrent reconciles, to which the goals refer."""
        return self.references[max(self.references)]

    @property
    def rate(self) -> float:
        """Rate of the operator relative to the reference operator."""
        return self.reference.seconds / self.operator.seconds

    @property
    def load(self) -> float:
        """CPU time that the operator costs the API server and etcd, relative to the reference operator."""
        return self.operator.server / self.reference.server

    @property
    def cpu(self) -> float:
        """CPU time of the operator for a resource, in milliseconds."""
        return self.operator.client / self.size * 1000

    @property
    def share_of_memory(self) -> float:
        """Resident memory of the operator relative to the reference operator."""
        return self.operator.memory / self.reference.memory


@dataclass(frozen=True)
class Account:
    """Memory and requests of one operator with a growing number of resources.

    Attributes:
        memory: resident memory in bytes, by number of resources.
        peak: peak resident memory, in bytes.
        restarted: resident memory after a restart with all resources, in bytes.
        writes: number of writes until all resources were ready.
        owned: number of objects that a resource owns.
        restart_writes: number of writes after a restart with all resources.
        idle: duration of the idle phase, in seconds.
        idle_calls: requests in the idle phase other than watches, as "verb resource".
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
        """Number of resources at the end."""
        return max(self.memory)

    @property
    def per_creation(self) -> float:
        """Writes per resource."""
        return self.writes / self.size

    @property
    def per_further(self) -> float:
        """Memory per resource between the last two stages, in bytes."""
        before, after = sorted(self.memory)[-2:]
        return (self.memory[after] - self.memory[before]) / (after - before)


@dataclass(frozen=True)
class Goal:
    """A measured value and its bound.

    Attributes:
        name: name of the value, with its unit.
        value: measured value.
        bound: maximum, or minimum if `at_least` is set.
        at_least: whether `bound` is a minimum.
    """

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def target(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


def goals(races: Iterable[Race], account: Account) -> list[Goal]:
    """Return the goals with the measured values (medians of several races)."""
    by_size: dict[int, list[Race]] = {}
    for race in races:
        by_size.setdefault(race.size, []).append(race)
    first = min(by_size)
    found = []
    for size, several in sorted(by_size.items()):
        compared = f"with {size} resources, relative to the reference"
        found += [
            Goal(f"rate {compared}", median(each.rate for each in several), 1.0, at_least=True),
            Goal(f"API server and etcd CPU {compared}", median(each.load for each in several), 1.0),
            Goal(f"operator CPU with {size} resources, ms per resource", median(each.cpu for each in several), 2.5),
        ]
    last = max(by_size)
    shares = median(each.share_of_memory for each in by_size[last])
    found.append(Goal(f"memory with {last} resources, relative to the reference", shares, 0.5))
    thousand = min(account.memory, key=lambda count: abs(count - 1000))
    reads = [call for call in account.idle_calls if call.split()[0] in ("get", "list")]
    return [
        *found,
        Goal(f"queue wait with {first} resources, p99, s", median(race.queue_p99 for race in by_size[first]), 1.0),
        Goal(f"resident memory with {thousand} resources, MiB", account.memory[thousand] / MIB, 80),
        Goal("memory per additional resource, KiB", account.per_further / KIB, 30),
        Goal("writes per creation", account.per_creation, account.owned + 2),
        Goal("writes after a restart", account.restart_writes, 0),
        Goal(f"idle for {account.idle:g} s: writes", len(account.idle_calls) - len(reads), 0),
        Goal(f"idle for {account.idle:g} s: reads other than resyncs", len(reads), 0),
    ]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that a share of at least `share` does not exceed; 0 if there are no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def quantile(buckets: Buckets, part: float) -> float:
    """Estimate a quantile of a histogram as Prometheus' `histogram_quantile` does.

    Values are assumed to be distributed evenly within a bucket. Above the last finite bound, that bound is returned.
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
