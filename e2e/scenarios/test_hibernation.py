"""Hibernation with real members, nodes and volumes: all pods stop, and return with every acknowledged write."""

from __future__ import annotations

import time

import pytest

from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.redis.versions import REDIS_8, VALKEY_9, Spec
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.resource import Resource, condition
from shared.steps.database import HIBERNATION

pytestmark = pytest.mark.nightly

KEPT = "services,secrets,poddisruptionbudgets,persistentvolumeclaims"


def names(kubectl: Kubectl, kinds: str) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in kubectl.items(kinds)}


def hibernate(kubectl: Kubectl, resource: Resource, pods: int) -> None:
    """Stop all pods, and check what stays and what is reported."""
    before = names(kubectl, KEPT)
    phase = "--for=jsonpath={.status.phase}=Hibernated"
    with resource.planned(hibernate=True):
        kubectl("wait", resource.KIND.lower(), resource.name, phase, "--timeout=120s")
    assert not kubectl.items("pods")
    assert names(kubectl, KEPT) == before
    now = resource.now
    for named, status in {"Ready": "False", "Reconciling": "False", "Stalled": "False", "Available": "False"}.items():
        found = condition(now, named)
        assert (found["status"], found["reason"]) == (status, "Hibernated"), found
    assert condition(now, "Degraded")["status"] == "False"
    assert len(now["status"].get("nodes") or now["status"]["members"]) == pods, "each pod stays recorded"


def require_awake(kubectl: Kubectl, name: str) -> None:
    """Check that the StatefulSet records no hibernation any more."""

    def check() -> bool:
        return HIBERNATION not in kubectl.get("statefulset", name)["metadata"]["annotations"]

    until("the record is removed", check)


def test_etcd_cluster_returns_with_its_members_and_every_write(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    with cluster.load() as load:
        time.sleep(3)
    former, members = cluster.cluster_id, {name: each["id"] for name, each in cluster.members.items()}
    hibernate(kubectl, cluster, 3)
    kubectl("scale", "etcdcluster", "demo", "--replicas=1")
    time.sleep(5)
    assert len(kubectl.items("persistentvolumeclaims")) == 3, "no volume is deleted while members are absent"
    cluster.change(size=3, hibernate=False)
    cluster.await_ready(3)
    require_awake(kubectl, "demo")
    assert (cluster.cluster_id, {name: each["id"] for name, each in cluster.members.items()}) == (former, members)
    assert load.check() > 50


def test_etcd_cluster_scales_after_its_wake_up(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    with cluster.load() as load:
        time.sleep(2)
    hibernate(kubectl, cluster, 3)
    cluster.change(size=1, hibernate=False)
    cluster.await_ready(1)
    assert load.check() > 20
    until("volumes of former members are deleted", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)


@pytest.mark.parametrize("engine", [REDIS_8, VALKEY_9], ids=["redis", "valkey"])
def test_redis_cluster_returns_with_its_roles_and_all_keys(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(3)
    primaries = cluster.primaries()
    hibernate(kubectl, cluster, 6)
    cluster.change(hibernate=False)
    cluster.await_ready(6)
    require_awake(kubectl, "demo")
    assert cluster.primaries() == primaries, "no replica took over"
    assert load.check() > 50


def test_hibernation_that_is_withdrawn_at_once_keeps_all_keys(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(2)
    for seconds in (1.0, 4.0, 8.0):
        cluster.change(hibernate=True)
        time.sleep(seconds)
        cluster.change(hibernate=False)
        cluster.await_ready(6)
    assert load.check() > 20


def test_hibernation_without_volumes_is_rejected(kubectl: Kubectl) -> None:
    with pytest.raises(Refused) as refused:
        kubectl.apply(Cluster.manifest("demo", replicas=6, hibernate=True))
    assert "nodes without storage would lose all data with their pods" in refused.value.output
    with pytest.raises(Refused) as refused:
        kubectl.apply(EtcdCluster.manifest("demo", size=3, hibernate=True, storage={"medium": "Memory"}))
    assert "members in memory would lose all data with their pods" in refused.value.output
