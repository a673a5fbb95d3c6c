"""The healthy resources that incidents happen to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.incidents.model import Calm
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support import runtime
from e2e.scenarios.support.clients import Access, Names, tls_client, tls_secret
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource
from tools.local.pki import Authority

MEMORY_LIMIT_MEBIBYTES = 192
SMALL = {"limits": {"memory": f"{MEMORY_LIMIT_MEBIBYTES}Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}}
MAX_CONNECTIONS = 512
"""Limit of a memcached server, of which it keeps 21 for itself, with four threads."""

MAX_CLIENTS = 100
QUOTA = 16 * 2**20
MANY = 10

SMALL_DISK = "demo-0"
"""Node of the Redis cluster without replicas whose volume is small."""

SMALL_DISK_MEBIBYTES = 64

SECRET = "certificate"
"""Secret with the certificate of the resource with TLS."""


def _memcached(kubectl: Kubectl, _: Path) -> Resource:
    cache = Memcached.create(kubectl, "cache", size=2, metrics={}, memoryMB=16, maxConnections=MAX_CONNECTIONS)
    cache.await_ready(2, seconds=180)
    return cache


def _deployment(kubectl: Kubectl, _: Path) -> Resource:
    cache = Memcached.create(kubectl, "cache", workload="Deployment", size=2, metrics={}, memoryMB=16)
    cache.await_ready(2, seconds=180)
    return cache


def _many(kubectl: Kubectl, _: Path) -> Resource:
    caches = [Memcached.create(kubectl, f"cache-{number}", size=1, metrics={}) for number in range(MANY)]
    for cache in caches:
        cache.await_ready(1, seconds=240)
    return caches[-1]


def _with_tls(kubectl: Kubectl, directory: Path) -> Resource:
    authority = Authority(directory / "authority")
    renew(kubectl, authority, timedelta(days=80))
    access = Access(None, tls_client(authority, checks_names=False), Names(kubectl))
    tls = {"mode": "secret", "secretName": SECRET}
    cache = Memcached.create(kubectl, "cache", access, size=1, tls=tls, metrics={})
    cache.await_ready(1, seconds=180)
    return cache


def renew(kubectl: Kubectl, authority: Authority, valid: timedelta) -> None:
    """Write a certificate with this remaining validity into the Secret."""
    hosts = [f"cache.{kubectl.namespace}.svc", f"*.cache.{kubectl.namespace}.svc"]
    pair = authority.issue("server", "cache", hosts=hosts, ends=datetime.now(UTC) + valid)
    kubectl.apply(tls_secret(SECRET, authority, pair))


def _etcd(kubectl: Kubectl, _: Path) -> Resource:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3, seconds=240)
    return cluster


def _small_etcd(kubectl: Kubectl, _: Path) -> Resource:
    cluster = EtcdCluster.create(kubectl, size=1, quotaBackendBytes=QUOTA)
    cluster.await_ready(1)
    return cluster


def _redis(kubectl: Kubectl, _: Path) -> Resource:
    cluster = Cluster.create(kubectl, replicas=6, metrics={}, resources=SMALL)
    cluster.await_ready(6, seconds=300)
    return cluster


def _unreplicated_redis(kubectl: Kubectl, _: Path) -> Resource:
    config = {"maxmemory": "16mb", "maxmemory-policy": "noeviction", "maxclients": str(MAX_CLIENTS)}
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, metrics={}, resources=SMALL, config=config)
    cluster.await_ready(3, seconds=240)
    return cluster


@contextmanager
def _on_a_small_disk(resource: Resource) -> Iterator[None]:
    """Give one node a volume with a size of its own."""
    assert isinstance(resource, Cluster)
    with ExitStack() as stack:
        with resource.down(SMALL_DISK):
            until(f"{SMALL_DISK} has ended", lambda: _ended(resource, SMALL_DISK))
            stack.enter_context(runtime.small_volume(resource.kubectl, f"data-{SMALL_DISK}", SMALL_DISK_MEBIBYTES))
        resource.await_ready(3, seconds=240)
        yield


def _ended(cluster: Cluster, pod: str) -> bool:
    """Return whether all containers of a pod have ended."""
    states = cluster.kubectl.get("pod", pod)["status"]["containerStatuses"]
    return all("terminated" in state["state"] for state in states)


MEMCACHED = Calm("memcached", "memcached", _memcached)
MEMCACHED_DEPLOYMENT = Calm("memcached-deployment", "memcached", _deployment)
TEN_MEMCACHEDS = Calm("ten-memcacheds", "memcached", _many)
MEMCACHED_WITH_TLS = Calm("memcached-with-tls", "memcached", _with_tls)
ETCD = Calm("etcd", "etcd", _etcd)
SMALL_ETCD = Calm("small-etcd", "etcd", _small_etcd)
REDIS = Calm("redis", "redis", _redis)
UNREPLICATED_REDIS = Calm("unreplicated-redis", "redis", _unreplicated_redis, _on_a_small_disk)
