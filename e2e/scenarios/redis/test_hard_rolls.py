"""The hard tests of Redis Cluster operators that are about planned change: 8, 12, 13 and 14, by their numbers.

Clients write and read all the time, and none of it may cost a write or an error; redis-cli's own check must find
nothing.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from e2e.cluster.pki import Authority, Pair
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.redis.session import PORT, Access
from e2e.scenarios.redis.versions import REDIS_7, REDIS_8
from e2e.scenarios.support.clients import tls_secret
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.release import Release
from e2e.scenarios.support.resource import is_evicted


@pytest.mark.long
def test_08_a_master_whose_replica_is_away_is_not_restarted(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **REDIS_7)
    cluster.await_ready(6)
    master, (replica,) = cluster.shard()
    before = cluster.uids()[master]
    with cluster.load() as load:
        with cluster.down(replica):
            until("it is missed", lambda: cluster.instances[replica]["status"] != "True", seconds=60)
            cluster.change(**REDIS_8)
            assert replica in cluster.await_reason("RollHeld", seconds=180)
            time.sleep(10)
            assert cluster.uids()[master] == before
        cluster.await_ready(6, seconds=300)
    assert load.unfelt(gone=3)
    assert load.check() > 50


@pytest.mark.long
def test_08_a_master_whose_replica_lags_is_not_restarted(kubectl: Kubectl) -> None:
    """A replica that starts anew gets everything only after this delay, and follows nobody until then."""
    late = {"repl-diskless-sync-delay": "40", "repl-diskless-sync-max-replicas": "0"}
    cluster = Cluster.create(kubectl, replicas=6, config=late, **REDIS_7)
    cluster.await_ready(6, seconds=300)
    cluster.fill(10_000)
    before, master_of = cluster.uids(), {}
    for number in range(3):
        master, (replica,) = cluster.shard(number)
        master_of[replica] = master
    with cluster.load() as load:
        cluster.change(**REDIS_8)
        rolled = until("a replica is another pod", lambda: another(cluster, before, set(master_of)), seconds=60)
        until("it answers", lambda: cluster.ask(rolled, "PING"), seconds=60)
        for _ in range(10):
            with cluster.node(rolled) as node:
                lags = node.info("replication")["master_link_status"] != "up"
            assert not lags or cluster.uids()[master_of[rolled]] == before[master_of[rolled]]
            time.sleep(1)
        cluster.change(config={"repl-diskless-sync-delay": "0", "repl-diskless-sync-max-replicas": None})
        cluster.await_ready(6, seconds=400)
    assert load.unfelt(gone=3)
    assert load.check() > 50
    assert cluster.keys() >= 10_000


def another(cluster: Cluster, before: dict[str, str], names: set[str]) -> str | None:
    """Which of these pods is another than before."""
    return next((name for name, uid in cluster.uids().items() if name in names and uid != before[name]), None)


def login(password: str) -> dict[str, Any]:
    meta = {"name": "login"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"password": password}}


def takes(cluster: Cluster, access: Access) -> bool:
    """Whether every node lets in who brings this."""
    for host, port in cluster.addresses():
        with Redis(host, port, socket_timeout=3, **access.options()) as client:
            try:
                client.ping()
            except RedisError:
                return False
    return True


@pytest.fixture
def short_overlap(redis_operator: Operator, release: Release) -> None:
    """Former passwords are good for ten seconds only."""
    overlap = [{"name": "PASSWORD_OVERLAP", "value": "10"}]
    release.upgrade("--set-json", f"redis.extraEnv={json.dumps(overlap)}")
    redis_operator.await_rollout()


@pytest.mark.long
@pytest.mark.usefixtures("short_overlap")
def test_12_a_password_changes_under_load_and_nobody_is_refused(kubectl: Kubectl) -> None:
    kubectl.apply(login("first"))
    old, new = Access(password="first"), Access(password="second")
    cluster = Cluster.create(kubectl, access=old, replicas=6, auth={"secretName": "login"})
    cluster.await_ready(6)
    before = cluster.uids()
    assert not takes(cluster, Access())
    with cluster.load() as load:
        kubectl.apply(login("second"))
        cluster.touch()
        until("all take the new one", lambda: takes(cluster, new), seconds=120)
        load.access = cluster.access = new
        until("none takes the old one", lambda: not any_takes(cluster, old), seconds=180)
        cluster.await_ready(6)
        time.sleep(2)
    assert cluster.uids() == before, "nobody was restarted for it"
    assert load.unfelt()
    assert load.check() > 50
    with cluster.load() as load:
        kubectl("delete", "pod", cluster.shard()[1][0])
        time.sleep(5)
    cluster.await_ready(6)  # a replica that starts anew authenticates with the new one
    assert load.check() > 10


def any_takes(cluster: Cluster, access: Access) -> bool:
    for host, port in cluster.addresses():
        with Redis(host, port, socket_timeout=3, **access.options()) as client, suppress(RedisError):
            client.ping()
            return True
    return False


def shown(cluster: Cluster) -> set[str]:
    """The certificates that its nodes show."""
    return {ssl.get_server_certificate((host, PORT), timeout=5) for host, _ in cluster.addresses()}


@pytest.mark.long
def test_12_certificates_change_under_load_and_nobody_is_refused(kubectl: Kubectl, tmp_path: Path) -> None:
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
    pods, before = cluster.uids(), shown(cluster)
    with cluster.load() as load:
        kubectl.apply(tls_secret("certificate", authority, issue("second")))
        cluster.touch()
        until("all show the new one", lambda: shown(cluster).isdisjoint(before), seconds=300, every=2)
        time.sleep(2)
    cluster.await_ready(6)
    assert cluster.uids() == pods, "nobody was restarted for it"
    assert load.unfelt()
    assert load.check() > 50


@pytest.mark.long
def test_12_tls_of_its_own_lets_nobody_in_without_a_certificate(kubectl: Kubectl, tmp_path: Path) -> None:
    cluster = Cluster.create(kubectl, replicas=6, tls={"mode": "self"})
    held = until("its certificates are made", lambda: kubectl.get("secret", "demo-client-tls")["data"])
    authority, certificate, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))
    for path in (authority, certificate, key):
        path.write_bytes(base64.b64decode(held[path.name]))
    cluster.access = Access(authority=str(authority), certificate=str(certificate), key=str(key))
    cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(3)
    assert load.unfelt()
    assert load.check() > 10
    assert not any_takes(cluster, Access(authority=str(authority)))
    assert not any_takes(cluster, Access())


@pytest.mark.long
def test_13_an_image_that_does_not_exist_costs_one_replica_and_can_be_taken_back(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before, masters = cluster.uids(), cluster.masters()
    with cluster.load() as load:
        cluster.change(version="8.0.99")
        until("it is named", lambda: "8.0.99" in cluster.message, seconds=120)
        time.sleep(5)
        replaced = {name for name, uid in cluster.uids().items() if uid != before[name]}
        assert len(replaced) == 1
        assert replaced.isdisjoint(masters)
        cluster.change(**REDIS_8)
        cluster.await_ready(6)
    assert load.unfelt()
    assert load.check() > 50


@pytest.mark.long
def test_13_a_cluster_that_never_came_comes_once_its_image_is_right(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **REDIS_8 | {"version": "8.0.99"})
    until("it is named", lambda: "8.0.99" in cluster.message, seconds=120)
    cluster.change(**REDIS_8)
    cluster.await_ready(6)


def apart(cluster: Cluster) -> bool:
    """Whether no replica is on its master's node of Kubernetes."""
    instances = cluster.instances.values()
    hosts = {each["nodeId"]: each["hostname"] for each in instances}
    followers = [each for each in instances if each["type"] == "slave"]
    together = [each["name"] for each in followers if each["hostname"] == hosts[each["masterNodeId"]]]
    assert not together, f"on their masters' nodes: {together}"
    return True


@pytest.mark.long
def test_14_drains_take_one_node_at_a_time_and_pairs_end_up_apart(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    until("masters and replicas are apart", lambda: apart(cluster), seconds=60)
    drained = str(cluster.instances["demo-0"]["hostname"])
    with cluster.load(patience=90) as load:
        started = time.monotonic()
        try:
            selected = ["--pod-selector", cluster.selector, "--delete-emptydir-data", "--ignore-daemonsets"]
            # A drain goes on past what a budget forbids for now.
            kubectl("drain", drained, *selected, "--timeout=170s")
            cluster.await_ready(6, seconds=180)
        finally:
            kubectl("uncordon", drained)
        ended = time.monotonic()
        for name, pod in sorted(cluster.pods().items())[:3]:
            if pod["spec"]["nodeName"] != drained:
                kubectl("delete", "pod", name)
                cluster.await_ready(6)
        until("masters and replicas are apart", lambda: apart(cluster), seconds=120)
    assert load.check(loses=[(started, ended + 60)]) > 50
    assert cluster.keys() > 0


@pytest.mark.long
def test_14_the_budget_lets_one_pod_go_at_a_time(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, storage=None)
    cluster.await_ready(3)
    budget = until("it counts", lambda: kubectl.get("poddisruptionbudget", "demo").get("status"))
    assert (budget["expectedPods"], budget["disruptionsAllowed"]) == (3, 1)
    with cluster.down("demo-2"):
        until("it is missed", lambda: kubectl.get("poddisruptionbudget", "demo")["status"]["currentHealthy"] == 2)
        assert not is_evicted(kubectl, "demo-1")
