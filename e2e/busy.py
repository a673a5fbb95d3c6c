"""Busy databases for the pictures of the dashboards: clients of all three kinds, a rebalance, a roll and a failover.

They have a namespace of their own, which is deleted at the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pymemcache.client.hash import HashClient

from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.load import Callers

NAMESPACE = "shop"

KEYS, KEY_BYTES = 60_000, 200
"""Number and size of the keys that the rebalance moves a part of."""

SESSIONS, SESSION_BYTES, SESSION_SECONDS = 2_000, 2_000, 60
"""Number, size and lifetime of the items that clients of memcached use."""

REFRESH_CALLS = 100
"""Calls of a client after which it reads the list of the servers again."""

Report = Callable[[str], None]
"""Prints a line about the progress."""


@dataclass(frozen=True)
class Shop:
    """The databases of a shop.

    Attributes:
        sessions: cache of the sessions.
        orders: database of the orders.
        carts: database of the shopping carts.
    """

    sessions: Memcached
    orders: EtcdCluster
    carts: Cluster

    @classmethod
    @contextmanager
    def opened(cls, environment: Mapping[str, str], report: Report) -> Iterator[Shop]:
        """Create the databases, wait until they are Ready, and delete them at the end of the context."""
        kubectl = Kubectl(NAMESPACE, dict(environment))
        kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")  # left by a run that was killed
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
        try:
            report(f"creating a Memcached, an EtcdCluster and a RedisCluster in namespace {NAMESPACE}")
            config = {"maxmemory": "32mb", "maxmemory-policy": "noeviction"}
            shop = cls(
                Memcached.create(kubectl, "sessions", size=2, memoryMB=16, metrics={}),
                EtcdCluster.create(kubectl, "orders", size=3, quotaBackendBytes=64 * 2**20),
                Cluster.create(kubectl, "carts", replicas=6, metrics={}, config=config),
            )
            shop.sessions.await_ready(2, seconds=240)
            shop.orders.await_ready(3, seconds=240)
            shop.carts.await_ready(6, seconds=300)
            shop.carts.fill(KEYS, KEY_BYTES)
            yield shop
        finally:
            kubectl("delete", "namespace", NAMESPACE, "--wait=false", "--ignore-not-found")

    @contextmanager
    def visited(self) -> Iterator[None]:
        """Run clients of all databases until the end of the context."""
        visitors = [_visitor(self.sessions, seed) for seed in range(2)]
        with Callers.calling(*visitors), self.orders.load(clients=2), self.carts.load(clients=4):
            yield

    def rebalance(self) -> None:
        """Add a primary and a replica: slots move to the new primary."""
        self.carts.change(replicas=8)
        self.carts.await_ready(8, primaries=4, seconds=300)

    def roll(self) -> None:
        """Replace the members of the database of orders one by one."""
        self.orders.change(annotations={"example.com/rolled": "yes"})
        self.orders.await_ready(3, seconds=300)

    def scale(self) -> None:
        """Add a server to the cache."""
        self.sessions.change(size=3)
        self.sessions.await_ready(3)

    def fail_over(self) -> None:
        """Keep the pod of a primary deleted until its replica has taken over."""
        primary, (replica, *_) = self.carts.shard()
        with self.carts.down(primary):
            until(f"{replica} is a primary", lambda: replica in self.carts.primaries(), seconds=60)
        self.carts.await_ready(6, seconds=300)

    def play(self, seconds: float, report: Report) -> None:
        """Change the databases one after the other while clients use them.

        Args:
            seconds: duration; each change begins at its share of it, or when the one before is complete.
        """
        began = time.monotonic()
        changes = (
            (0.1, "carts: killing a primary", self.fail_over),
            (0.3, "carts: adding a primary and a replica", self.rebalance),
            (0.5, "orders: replacing the members one by one", self.roll),
            (0.7, "sessions: adding a server", self.scale),
        )
        with self.visited():
            for share, what, change in changes:
                time.sleep(max(0.0, began + share * seconds - time.monotonic()))
                report(what)
                change()
            time.sleep(max(0.0, began + seconds - time.monotonic()))


def _visitor(cache: Memcached, seed: int) -> Callable[[int], None]:
    """Return a call of a client that reads the item of a session, and writes it if it is missing."""
    chosen = random.Random(seed)
    servers, client = list[str](), HashClient([])

    def call(number: int) -> None:
        nonlocal servers, client
        if number % REFRESH_CALLS == 0 and (now := cache.servers) != servers:
            client.close()
            servers = now
            client = HashClient(servers, timeout=5, connect_timeout=5)
        key = f"session-{int(chosen.paretovariate(0.5)) % SESSIONS}"
        if client.get(key) is None:
            client.set(key, b"x" * SESSION_BYTES, expire=SESSION_SECONDS)

    return call
