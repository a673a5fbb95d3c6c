"""Faults, and the alert that a person would hear of each: it fires in a real Prometheus, and clears when all is well.

Times are those of the charts divided by `FACTOR`; numbers are the charts' own.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from e2e.scenarios.etcd.clients import Connection
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.observability.watch import Watch
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.operator import Operator

pytestmark = pytest.mark.timeout(900)

QUOTA = 16 * 2**20


def test_a_member_of_etcd_that_stays_down_is_told_and_a_lost_quorum_is_told_louder(
    kubectl: Kubectl, watch: Watch
) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    who = {"kind": "EtcdCluster", "namespace": kubectl.namespace, "name": cluster.name}
    watch.await_end("PlatformResourceDegraded", who)  # it took a while to be there
    with cluster.down("demo-2"):
        assert watch.await_alert("PlatformResourceDegraded", who)["labels"]["severity"] == "warning"
        assert not watch.firing("EtcdQuorumLost", who), "two of three are a quorum"
        kubectl("patch", "resourcequota", "few", "--type=merge", '--patch={"spec":{"hard":{"pods":"1"}}}')
        kubectl("delete", "pod", "demo-1", "--grace-period=0", "--force")
        assert watch.await_alert("EtcdQuorumLost", who)["labels"]["severity"] == "critical"
        watch.await_alert("EtcdNoLeader", who)
    cluster.await_ready(3, seconds=300)
    for name in ("EtcdQuorumLost", "EtcdNoLeader", "PlatformResourceDegraded"):
        watch.await_end(name, who)


def test_a_full_database_of_etcd_is_told_before_and_after(kubectl: Kubectl, watch: Watch) -> None:
    cluster = EtcdCluster.create(kubectl, size=1, quotaBackendBytes=QUOTA)
    cluster.await_ready(1)
    who = {"kind": "EtcdCluster", "namespace": kubectl.namespace, "name": cluster.name}
    with cluster.load(clients=1) as load:
        load.fill("x" * 100_000, keys=400, at_most=400)  # small, and keys of their own: no relief makes room
    watch.await_alert("EtcdDatabaseNearQuota", who)
    assert watch.await_alert("EtcdOutOfSpace", who)["labels"]["severity"] == "critical"
    cluster.await_reason("QuotaExceeded", seconds=120)
    first, after = (base64.b64encode(key.encode()).decode() for key in ("large-", "large."))
    with closing(Connection(cluster.addresses()[0], cluster.access)) as connection:
        connection.ask("/v3/kv/deleterange", {"key": first, "range_end": after})
    for name in ("EtcdOutOfSpace", "EtcdDatabaseNearQuota"):
        watch.await_end(name, who, seconds=300)


def test_a_lost_master_of_redis_is_told(kubectl: Kubectl, watch: Watch) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, metrics={})
    cluster.await_ready(3)
    who = {"kind": "RedisCluster", "namespace": kubectl.namespace, "name": cluster.name}
    watch.await_end("RedisSlotsUnserved", who)
    with cluster.down("demo-1"):
        alert = watch.await_alert("RedisSlotsUnserved", who)
        assert alert["labels"]["severity"] == "critical"
        watch.await_alert("RedisClusterDown", who)
        watch.await_alert("PlatformResourceDegraded", who)
    cluster.await_ready(3)
    for name in ("RedisSlotsUnserved", "RedisClusterDown", "PlatformResourceDegraded"):
        watch.await_end(name, who)


@contextmanager
def flooded(cache: Memcached) -> Iterator[None]:
    """More is written into the first server within the block than it has room for, all the time."""
    ending = threading.Event()
    server, access, value = cache.servers[0], cache.access, b"x" * 100_000

    def write() -> None:
        with access.client(server) as client:
            number = 0
            while not ending.wait(0.01):
                client.set(f"key-{number}", value)
                number += 1

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        ending.set()
        writing.join(30)


def test_a_memcached_that_is_full_is_told(kubectl: Kubectl, watch: Watch) -> None:
    cache = Memcached.create(kubectl, "cache", size=1, memoryMB=16, metrics={})
    cache.await_ready(1)
    who = {"kind": "Memcached", "namespace": kubectl.namespace, "name": cache.name}
    with flooded(cache):
        watch.await_alert("MemcachedFull", who)
    watch.await_end("MemcachedFull", who)


@pytest.mark.parametrize("name", ["memcached"])
def test_an_operator_that_is_gone_is_told_though_nobody_is_left_to_tell(
    name: str, system: Kubectl, watch: Watch
) -> None:
    operator = Operator(system, name)
    assert not watch.firing("PlatformOperatorNoLeader", {"operator": name})
    with operator.gone():
        assert watch.await_alert("PlatformOperatorNoLeader", {"operator": name})["labels"]["severity"] == "critical"
    watch.await_end("PlatformOperatorNoLeader", {"operator": name})
