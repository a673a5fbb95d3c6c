"""Faults and their alerts: each alert fires in a real Prometheus, and is resolved after the recovery.

Durations of the charts are divided by `FACTOR`; other thresholds are those of the charts.
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


def test_etcd_member_down_fires_a_warning_and_quorum_loss_a_critical_alert(kubectl: Kubectl, watch: Watch) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    labels = {"kind": "EtcdCluster", "namespace": kubectl.namespace, "name": cluster.name}
    watch.await_end("PlatformResourceDegraded", labels)  # it may fire during the creation
    with cluster.down("demo-2"):
        assert watch.await_alert("PlatformResourceDegraded", labels)["labels"]["severity"] == "warning"
        assert not watch.firing("EtcdQuorumLost", labels), "two of three members are a quorum"
        kubectl("patch", "resourcequota", "few", "--type=merge", '--patch={"spec":{"hard":{"pods":"1"}}}')
        kubectl("delete", "pod", "demo-1", "--grace-period=0", "--force")
        assert watch.await_alert("EtcdQuorumLost", labels)["labels"]["severity"] == "critical"
        watch.await_alert("EtcdNoLeader", labels)
    cluster.await_ready(3, seconds=300)
    for name in ("EtcdQuorumLost", "EtcdNoLeader", "PlatformResourceDegraded"):
        watch.await_end(name, labels)


def test_etcd_database_fires_alerts_near_and_above_its_quota(kubectl: Kubectl, watch: Watch) -> None:
    cluster = EtcdCluster.create(kubectl, size=1, quotaBackendBytes=QUOTA)
    cluster.await_ready(1)
    labels = {"kind": "EtcdCluster", "namespace": kubectl.namespace, "name": cluster.name}
    with cluster.load(clients=1) as load:
        load.fill("x" * 100_000, keys=400, at_most=400)  # small, distinct keys: compaction frees nothing
    watch.await_alert("EtcdDatabaseNearQuota", labels)
    assert watch.await_alert("EtcdOutOfSpace", labels)["labels"]["severity"] == "critical"
    cluster.await_reason("QuotaExceeded", seconds=120)
    first, after = (base64.b64encode(key.encode()).decode() for key in ("large-", "large."))
    with closing(Connection(cluster.addresses()[0], cluster.access)) as connection:
        connection.post("/v3/kv/deleterange", {"key": first, "range_end": after})
    for name in ("EtcdOutOfSpace", "EtcdDatabaseNearQuota"):
        watch.await_end(name, labels, seconds=300)


def test_redis_fires_alerts_when_a_primary_without_replicas_is_down(kubectl: Kubectl, watch: Watch) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, metrics={})
    cluster.await_ready(3)
    labels = {"kind": "RedisCluster", "namespace": kubectl.namespace, "name": cluster.name}
    watch.await_end("RedisSlotsUnserved", labels)
    with cluster.down("demo-1"):
        alert = watch.await_alert("RedisSlotsUnserved", labels)
        assert alert["labels"]["severity"] == "critical"
        watch.await_alert("RedisClusterDown", labels)
        watch.await_alert("PlatformResourceUnavailable", labels)
    cluster.await_ready(3)
    for name in ("RedisSlotsUnserved", "RedisClusterDown", "PlatformResourceUnavailable"):
        watch.await_end(name, labels)


@contextmanager
def flooded(cache: Memcached) -> Iterator[None]:
    """Write continuously to the first server, more than its memory holds, until the context ends."""
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


def test_memcached_fires_an_alert_when_it_is_full(kubectl: Kubectl, watch: Watch) -> None:
    cache = Memcached.create(kubectl, "cache", size=1, memoryMB=16, metrics={})
    cache.await_ready(1)
    labels = {"kind": "Memcached", "namespace": kubectl.namespace, "name": cache.name}
    with flooded(cache):
        watch.await_alert("MemcachedFull", labels)
    watch.await_end("MemcachedFull", labels)


@pytest.mark.parametrize("name", ["memcached"])
def test_missing_operator_fires_the_no_leader_alert(name: str, system: Kubectl, watch: Watch) -> None:
    operator = Operator(system, name)
    assert not watch.firing("PlatformOperatorNoLeader", {"operator": name})
    with operator.scaled_to_zero():
        assert watch.await_alert("PlatformOperatorNoLeader", {"operator": name})["labels"]["severity"] == "critical"
    watch.await_end("PlatformOperatorNoLeader", {"operator": name})
