"""What is measured on the local cluster: RedisClusters that come to be, and lose a master."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from e2e.bench.redis_measures import Creation, Loss
from e2e.bench.resources import Resources
from e2e.scenarios.redis.cluster import SMALL, VOLUMES, Cluster
from e2e.scenarios.redis.session import FAILURES, PORT, Access, Address, Client
from e2e.scenarios.redis.versions import REDIS_8
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import until
from operators.redis.slots.hash_slots import key_slot

NODES, MASTERS = 6, 3

NODE_TIMEOUT = 5.0
"""Seconds of silence after which the others take a node for dead: the operator's own cluster-node-timeout."""

LOOK = 0.02
"""Seconds between two tries to write."""

ATTEMPT = 0.5
"""Seconds until a try is given up."""

PATIENCE = 60.0
"""Seconds after which a slot that nobody serves is a failure."""


class ClusterBench:
    """RedisClusters on the local cluster."""

    def __init__(self, clusters: Resources) -> None:
        self._clusters = clusters

    @classmethod
    @contextmanager
    def on_cluster(cls) -> Iterator[ClusterBench]:
        """In a namespace of its own, which goes afterwards.

        Raises:
            ClusterError: there is no cluster.
        """
        with Resources.on_cluster(Cluster, "redisclusters", component="node", ready="readyReplicas") as clusters:
            yield cls(clusters)

    def creation(self) -> Creation:
        """Three masters with a replica each, from apply to Ready; they go afterwards."""
        name = f"c-{uuid.uuid4().hex[:6]}"
        with self._clusters.starts(name) as starts:
            began = time.monotonic()
            self._create(name)
            seconds = self._clusters.await_ready(name, NODES) - began
        self._clusters.delete(name)
        assert len(starts.own) == NODES, f"{len(starts.own)} pods were seen to start, of {NODES}"
        return Creation(seconds, starts.together)

    def losses(self, rounds: int) -> Iterator[Loss]:
        """A master falls silent; each time, how long nobody takes a write into its slots."""
        name = f"l-{uuid.uuid4().hex[:6]}"
        self._create(name)
        self._clusters.await_ready(name, NODES)
        cluster = Cluster(self._clusters.kubectl, name)
        for _ in range(rounds):
            master, _ = cluster.shard()
            node_id = cluster.masters()[master]
            slots = {slot for slot, owner in cluster.owners().items() if owner == node_id}
            key = next(f"key-{number}" for number in range(10_000) if key_slot(f"key-{number}".encode()) in slots)
            pods = cluster.pods()
            others = [(pod["status"]["podIP"], PORT) for pod_name, pod in pods.items() if pod_name != master]
            runtime.signal(pods[master], "redis", "SIGSTOP")
            try:
                began = time.monotonic()
                yield Loss(asyncio.run(_served(others, key)) - began, NODE_TIMEOUT)
            finally:
                runtime.signal(pods[master], "redis", "SIGCONT")
            until("it is told", lambda: cluster.instances[master]["type"] == "slave", seconds=PATIENCE)  # noqa: B023
            cluster.await_ready(NODES)
        self._clusters.delete(name)

    def _create(self, name: str) -> None:
        self._clusters.create(name, replicas=NODES, resources=SMALL, storage=VOLUMES, **REDIS_8)


async def _served(addresses: Sequence[Address], key: str) -> float:
    """The moment at which a write of a key is acknowledged, tried by a new client each time.

    Raises:
        AssertionError: it never was.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(*FAILURES):
            await asyncio.wait_for(_write(addresses, key), ATTEMPT)
            return time.monotonic()
        await asyncio.sleep(LOOK)
    raise AssertionError(f"nobody took a write of {key} within {PATIENCE:g} s")


async def _write(addresses: Sequence[Address], key: str) -> None:
    session = await Client.connected(addresses, Access())
    try:
        await session.set(key, "served")
    finally:
        await session.end()
