"""Measurements with RedisClusters on the local cluster: creation and failover."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from e2e.bench.redis_measures import Creation, Loss
from e2e.bench.resources import Resources
from e2e.scenarios.redis.cluster import SMALL, VOLUMES, Cluster
from e2e.scenarios.redis.pulse import key_in
from e2e.scenarios.redis.session import FAILURES, PORT, Access, Address, Client
from e2e.scenarios.redis.versions import REDIS_8
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import until

NODES = 6

NODE_TIMEOUT = 5.0
"""cluster-node-timeout that the operator sets, in seconds."""

WRITE_INTERVAL = 0.02
"""Seconds between two attempts to write."""

ATTEMPT = 0.5
"""Timeout of an attempt, in seconds."""

FAILOVER_TIMEOUT = 60.0
"""Time allowed for the failover, in seconds."""


class ClusterBench:
    """RedisClusters on the local cluster."""

    def __init__(self, clusters: Resources) -> None:
        self._clusters = clusters

    @classmethod
    @contextmanager
    def on_cluster(cls) -> Iterator[ClusterBench]:
        """Use a new namespace, which is deleted at the end of the context.

        Raises:
            ClusterError: no cluster is running.
        """
        with Resources.on_cluster(Cluster, "redisclusters", component="node", ready="readyReplicas") as clusters:
            yield cls(clusters)

    def creation(self) -> Creation:
        """Measure the creation of three primaries with a replica each, from apply to Ready, and delete them."""
        name = f"c-{uuid.uuid4().hex[:6]}"
        with self._clusters.starts(name) as starts:
            began = time.monotonic()
            self._create(name)
            seconds = self._clusters.await_ready(name, NODES) - began
        self._clusters.delete(name)
        assert len(starts.own) == NODES, f"observed {len(starts.own)} pod starts, expected {NODES}"
        return Creation(seconds, starts.together)

    def losses(self, rounds: int) -> Iterator[Loss]:
        """Stop a primary with SIGSTOP and measure how long its slots accept no writes."""
        name = f"l-{uuid.uuid4().hex[:6]}"
        self._create(name)
        self._clusters.await_ready(name, NODES)
        cluster = Cluster(self._clusters.kubectl, name)
        for _ in range(rounds):
            primary, _ = cluster.shard()
            node_id = cluster.primaries()[primary]
            key = key_in([slot for slot, owner in cluster.owners().items() if owner == node_id], "key")
            pods = cluster.pods()
            others = [(pod["status"]["podIP"], PORT) for pod_name, pod in pods.items() if pod_name != primary]
            runtime.signal(pods[primary], "redis", "SIGSTOP")
            try:
                began = time.monotonic()
                yield Loss(asyncio.run(_served(others, key)) - began, NODE_TIMEOUT)
            finally:
                runtime.signal(pods[primary], "redis", "SIGCONT")
            until(
                f"{primary} is a replica in status",
                lambda: cluster.nodes[primary]["role"] == "replica",  # noqa: B023
                seconds=FAILOVER_TIMEOUT,
            )
            cluster.await_ready(NODES)
        self._clusters.delete(name)

    def _create(self, name: str) -> None:
        self._clusters.create(name, replicas=NODES, resources=SMALL, storage=VOLUMES, **REDIS_8)


async def _served(addresses: Sequence[Address], key: str) -> float:
    """Write a key until the write is acknowledged, with a new client per attempt; return the time.

    Raises:
        AssertionError: no write was acknowledged in time.
    """
    deadline = time.monotonic() + FAILOVER_TIMEOUT
    while time.monotonic() < deadline:
        with suppress(*FAILURES):
            await asyncio.wait_for(_write(addresses, key), ATTEMPT)
            return time.monotonic()
        await asyncio.sleep(WRITE_INTERVAL)
    raise AssertionError(f"no node accepted a write of {key} within {FAILOVER_TIMEOUT:g} s")


async def _write(addresses: Sequence[Address], key: str) -> None:
    session = await Client.connected(addresses, Access())
    try:
        await session.set(key, "served")
    finally:
        await session.end()
