"""Hard tests 8, 12, 13 and 14 of Redis Cluster operators: planned changes.

Clients write and read all the time, old keys as well as new ones. No change may lose a write or cause an error, and
redis-cli's own check must find no problem.
"""

from __future__ import annotations

import base64
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.redis.session import PORT, Access
from e2e.scenarios.redis.versions import REDIS_7, REDIS_8
from e2e.scenarios.support.clients import tls_secret
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.release import Release
from e2e.scenarios.support.resource import is_evicted
from tools.local.pki import Authority, Pair


@pytest.mark.nightly
def test_08_primary_is_not_restarted_while_its_replica_is_down(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **REDIS_7)
    cluster.await_ready(6)
    primary, (replica,) = cluster.shard()
    before = cluster.uids()[primary]
    with cluster.load() as load:
        with cluster.down(replica):
            until("the missing pod is noticed", lambda: cluster.nodes[replica]["status"] != "True", seconds=60)
            cluster.change(**REDIS_8)
            assert replica in cluster.await_reason("RollBlocked", seconds=180)
            time.sleep(10)
            assert cluster.uids()[primary] == before
        cluster.await_ready(6, seconds=300)
    assert load.is_undisturbed(removed=3)
    assert load.check() > 50


@pytest.mark.weekly
def test_08_primary_is_not_restarted_while_its_replica_lags(kubectl: Kubectl) -> None:
    """A restarted replica receives its full sync only after this delay, and is not linked until then."""
    late = {"repl-diskless-sync-delay": "40", "repl-diskless-sync-max-replicas": "0"}
    cluster = Cluster.create(kubectl, replicas=6, config=late, **REDIS_7)
    cluster.await_ready(6, seconds=300)
    before, primary_of = cluster.uids(), {}
    for number in range(3):
        primary, (replica,) = cluster.shard(number)
        primary_of[replica] = primary
    with cluster.load(seeds=10_000) as load:
        cluster.change(**REDIS_8)
        rolled = until("a replica is replaced", lambda: replaced_pod(cluster, before, set(primary_of)), seconds=60)
        until("the replaced replica responds", lambda: cluster.execute(rolled, "PING"), seconds=60)
        for _ in range(10):
            with cluster.node(rolled) as node:
                lags = node.info("replication")["master_link_status"] != "up"
            assert not lags or cluster.uids()[primary_of[rolled]] == before[primary_of[rolled]]
            time.sleep(1)
        cluster.change(config={"repl-diskless-sync-delay": "0", "repl-diskless-sync-max-replicas": None})
        cluster.await_ready(6, seconds=400)
    assert load.is_undisturbed(removed=3)
    assert load.check() > 50


def replaced_pod(cluster: Cluster, before: dict[str, str], names: set[str]) -> str | None:
    """Return one of these pods that was replaced."""
    return next((name for name, uid in cluster.uids().items() if name in names and uid != before[name]), None)


def login(password: str) -> dict[str, Any]:
    meta = {"name": "login"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"password": password}}


def takes(cluster: Cluster, access: Access) -> bool:
    """Whether every node accepts these credentials."""
    for host, port in cluster.addresses():
        with Redis(host, port, socket_timeout=3, **access.options()) as client:
            try:
                client.ping()
            except RedisError:
                return False
    return True


@pytest.fixture
def short_overlap(redis_operator: Operator, release: Release) -> None:
    """Set the overlap of former passwords to ten seconds."""
    release.upgrade("--set", "redis.passwordOverlap=10")
    redis_operator.await_rollout()


@pytest.mark.nightly
@pytest.mark.usefixtures("short_overlap")
def test_12_password_change_under_load_rejects_no_client(kubectl: Kubectl) -> None:
    kubectl.apply(login("first"))
    old, new = Access(password="first"), Access(password="second")
    cluster = Cluster.create(kubectl, access=old, replicas=6, auth={"secretName": "login"})
    cluster.await_ready(6)
    before = cluster.uids()
    assert not takes(cluster, Access())
    with cluster.load() as load:
        kubectl.apply(login("second"))
        cluster.touch()
        until("all nodes accept the new password", lambda: takes(cluster, new), seconds=120)
        load.access = cluster.access = new
        until("no node accepts the old password", lambda: not any_takes(cluster, old), seconds=180)
        cluster.await_ready(6)
        time.sleep(2)
    assert cluster.uids() == before, "no pod was restarted"
    assert load.is_undisturbed()
    assert load.check() > 50
    with cluster.load() as load:
        kubectl("delete", "pod", cluster.shard()[1][0])
        time.sleep(5)
    cluster.await_ready(6)  # a restarted replica authenticates with the new password
    assert load.check() > 10


def any_takes(cluster: Cluster, access: Access) -> bool:
    for host, port in cluster.addresses():
        with Redis(host, port, socket_timeout=3, **access.options()) as client, suppress(RedisError):
            client.ping()
            return True
    return False


def presented_certificates(cluster: Cluster) -> set[str]:
    """Return the certificates that the nodes present."""
    return {ssl.get_server_certificate((host, PORT), timeout=5) for host, _ in cluster.addresses()}


@pytest.mark.weekly
def test_12_certificate_change_under_load_rejects_no_client(kubectl: Kubectl, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    names = [f"*.demo.{kubectl.namespace}.svc", f"demo-client.{kubectl.namespace}.svc"]

    def issue(name: str) -> Pair:
        return authority.issue(name, "demo", hosts=names)

    first = issue("first")
    kubectl.apply(tls_secret("certificate", authority, first))
    access = Access(authority=str(authority.pair.certificate), certificate=str(first.certificate), key=str(first.key))
    tls = {"mode": "secret", "secretName": "certificate"}
    cluster = Cluster.create(kubectl, access=access, replicas=6, tls=tls)
    cluster.await_ready(6)
    pods, before = cluster.uids(), presented_certificates(cluster)
    with cluster.load() as load:
        kubectl.apply(tls_secret("certificate", authority, issue("second")))
        cluster.touch()
        until(
            "all nodes present the new certificate",
            lambda: presented_certificates(cluster).isdisjoint(before),
            seconds=300,
            every=2,
        )
        time.sleep(2)
    cluster.await_ready(6)
    assert cluster.uids() == pods, "no pod was restarted"
    assert load.is_undisturbed()
    assert load.check() > 50


@pytest.mark.weekly
def test_12_self_signed_tls_rejects_clients_without_a_certificate(kubectl: Kubectl, tmp_path: Path) -> None:
    cluster = Cluster.create(kubectl, replicas=6, tls={"mode": "self"})
    content = until("the client certificate exists", lambda: kubectl.get("secret", "demo-client-tls")["data"])
    authority, certificate, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))
    for path in (authority, certificate, key):
        path.write_bytes(base64.b64decode(content[path.name]))
    cluster.access = Access(authority=str(authority), certificate=str(certificate), key=str(key))
    cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(3)
    assert load.is_undisturbed()
    assert load.check() > 10
    assert not any_takes(cluster, Access(authority=str(authority)))
    assert not any_takes(cluster, Access())


@pytest.mark.weekly
def test_13_missing_image_affects_one_replica_and_can_be_reverted(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before, primaries = cluster.uids(), cluster.primaries()
    with cluster.load() as load:
        cluster.change(version="8.0.99")
        until("the message names the version", lambda: "8.0.99" in cluster.message, seconds=120)
        time.sleep(5)
        replaced = {name for name, uid in cluster.uids().items() if uid != before[name]}
        assert len(replaced) == 1
        assert replaced.isdisjoint(primaries)
        cluster.change(**REDIS_8)
        cluster.await_ready(6)
    assert load.is_undisturbed()
    assert load.check() > 50


@pytest.mark.weekly
def test_13_new_cluster_forms_once_its_image_is_corrected(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **REDIS_8 | {"version": "8.0.99"})
    until("the message names the version", lambda: "8.0.99" in cluster.message, seconds=120)
    cluster.change(**REDIS_8)
    cluster.await_ready(6)


def replicas_are_apart(cluster: Cluster) -> bool:
    """Whether no replica runs on the Kubernetes node of its primary."""
    nodes = cluster.nodes.values()
    hosts = {each["nodeId"]: each["host"] for each in nodes}
    followers = [each for each in nodes if each["role"] == "replica"]
    together = [each["name"] for each in followers if each["host"] == hosts[each["primaryId"]]]
    assert not together, f"on the Kubernetes nodes of their primaries: {together}"
    return True


@pytest.mark.nightly
def test_14_drain_evicts_one_pod_at_a_time_and_replicas_stay_apart(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    until("primaries and replicas are on different nodes", lambda: replicas_are_apart(cluster), seconds=60)
    drained = str(cluster.nodes["demo-0"]["host"])
    with cluster.load(patience=90) as load:
        try:
            selected = ["--pod-selector", cluster.selector, "--delete-emptydir-data", "--ignore-daemonsets"]
            # The drain retries evictions that the budget forbids.
            kubectl("drain", drained, *selected, "--timeout=170s")
            cluster.await_ready(6, seconds=180)
        finally:
            kubectl("uncordon", drained)
        for name, pod in sorted(cluster.pods().items())[:3]:
            if pod["spec"]["nodeName"] != drained:
                kubectl("delete", "pod", name)
                cluster.await_ready(6)
        until("primaries and replicas are on different nodes", lambda: replicas_are_apart(cluster), seconds=120)
    assert load.check() > 50, "an evicted primary waits for its replicas, and loses nothing"


@pytest.mark.weekly
def test_14_disruption_budget_allows_one_eviction_at_a_time(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, storage=None)
    cluster.await_ready(3)
    budget = until(
        "the disruption budget has a status", lambda: kubectl.get("poddisruptionbudget", "demo").get("status")
    )
    assert (budget["expectedPods"], budget["disruptionsAllowed"]) == (3, 1)
    with cluster.down("demo-2"):
        until(
            "the missing pod is noticed",
            lambda: kubectl.get("poddisruptionbudget", "demo")["status"]["currentHealthy"] == 2,
        )
        assert not is_evicted(kubectl, "demo-1")
