"""Results of the benchmark of scale, and their goals. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from e2e.bench.measures import KIB, Goal

Blocks = tuple[float, float]
"""Seconds of the longest callback of an event loop: by time, and by CPU time."""


@dataclass(frozen=True)
class Changes:
    """Changes of random resources at a constant rate. Times are in seconds.

    Attributes:
        count: number of changes.
        queue_p99: 99th percentile of the time in the queue.
        reconcile_p99: 99th percentile of the duration of a reconcile.
        reported_p50, reported_p99: percentiles of the time from a change until the status describes it.
        blocks: longest callback.
        scraped: time of one read of /metrics afterwards.
        scrape_blocks: longest callback meanwhile.
    """

    count: int
    queue_p99: float
    reconcile_p99: float
    reported_p50: float
    reported_p99: float
    blocks: Blocks
    scraped: float
    scrape_blocks: Blocks


@dataclass(frozen=True)
class Scale:
    """One operator with many resources. Times are in seconds, memory in bytes per resource.

    Attributes:
        operator: name of the operator.
        count: number of resources.
        loaded: time from the first creation until every status is reported.
        rested: time from the first creation until no resource waits for a reconcile.
        memory: memory after the creation.
        restarted: memory of a replica that started when all resources existed.
        changes: changes at a constant rate.
        synced: time from the start of a process until its cache has all resources.
        reconciled: the same, until it has also reconciled all resources once.
        handover: time from SIGTERM of the leader until the next one has reported a change.
        crash: the same after SIGKILL.
        load_blocks: longest callback while the resources were created.
        start_blocks: longest callback from the start of a process until its cache has all resources.
        takeover_blocks: longest callback from then until it has reconciled all resources as the leader.
    """

    operator: str
    count: int
    loaded: float
    rested: float
    memory: float
    restarted: float
    changes: Changes
    synced: float
    reconciled: float
    handover: float
    crash: float
    load_blocks: Blocks
    start_blocks: Blocks
    takeover_blocks: Blocks

    @property
    def goals(self) -> list[Goal]:
        """Return the goals with the measured values."""
        of = f"{self.count} × {self.operator}: "
        return [
            Goal(f"{of}queue p99, s", self.changes.queue_p99, 1),
            Goal(f"{of}reconcile p99, s", self.changes.reconcile_p99, 5),
            Goal(f"{of}longest block during changes, ms", 1000 * self.changes.blocks[0], 100),
            Goal(f"{of}longest block while /metrics is read, ms", 1000 * self.changes.scrape_blocks[0], 100),
            Goal(f"{of}longest block during creation, ms", 1000 * self.load_blocks[0], 100),
            Goal(f"{of}longest block at the start, ms", 1000 * self.start_blocks[0], 100),
            Goal(f"{of}longest block at the takeover, ms", 1000 * self.takeover_blocks[0], 100),
            Goal(f"{of}start with all resources, s", self.reconciled, 60),
            Goal(f"{of}memory per resource, KiB", max(self.memory, self.restarted) / KIB, 20),
            Goal(f"{of}handover on SIGTERM, s", self.handover, 2),
            Goal(f"{of}handover after a crash, s", self.crash, 20),
        ]


@dataclass(frozen=True)
class Neighbours:
    """Changes of resources in ten namespaces, while the resources of another namespace have a problem.

    Attributes:
        problem: the problem.
        count: number of resources that have it.
        alone: seconds until a change is reported without the problem: median and 99th percentile.
        among: the same with the problem.
    """

    problem: str
    count: int
    alone: tuple[float, float]
    among: tuple[float, float]

    @property
    def goals(self) -> list[Goal]:
        return [Goal(f"{self.count} resources of another namespace, {self.problem}: p99, s", self.among[1], 1)]


@dataclass(frozen=True)
class Outage:
    """An API server and etcd that do not run for a while. Times are in seconds after the API server is ready again.

    Attributes:
        seconds: duration of the outage.
        count: number of resources.
        observed: time until every collection is observed.
        reported: time until a change at that moment is reported.
        reconciled: time until all resources were reconciled.
        requests: requests of the operator for each resource, until then and 30 s longer.
        events: events of resources that were recorded.
    """

    seconds: float
    count: int
    observed: float
    reported: float
    reconciled: float
    requests: float
    events: int

    @property
    def goals(self) -> list[Goal]:
        of = f"{self.seconds:.0f} s without API server, {self.count} resources: "
        return [
            Goal(f"{of}everything is observed, s", self.observed, 5),
            Goal(f"{of}a change is reported, s", self.reported, 5),
            Goal(f"{of}events", self.events, 0),
        ]


@dataclass(frozen=True)
class Sharded:
    """Resources created at once, for one replica per shard.

    Attributes:
        shards: number of shards, and of replicas.
        count: number of resources.
        seconds: time from the first creation until every status is reported.
        client: CPU seconds of the replicas.
        server: CPU seconds of the API server and its etcd.
        memory: resident memory of each replica, in bytes.
        growth: the same, in bytes per resource.
        reconciles: number of reconciles by each replica.
    """

    shards: int
    count: int
    seconds: float
    client: float
    server: float
    memory: tuple[int, ...]
    growth: tuple[float, ...]
    reconciles: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Resources per second."""
        return self.count / self.seconds


def goals(found: Iterable[Scale | Neighbours | Outage]) -> list[Goal]:
    """Return the goals of every measurement."""
    return [goal for each in found for goal in each.goals]
