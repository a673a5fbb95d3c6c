"""Hard tests of etcd operators under load: no acknowledged write is lost or reordered.

No other operator is known to pass all of them. Clients write and read continuously. Then each history is checked to be
linearizable and complete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.scenarios.etcd.clients import Failed
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.etcd.versions import NEWEST_35, NEWEST_36, NEWEST_37, OLD_35
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.release import Release

POLL_INTERVAL_SECONDS = 0.2
"""Seconds between two reads of the status."""


@contextmanager
def watching(cluster: EtcdCluster) -> Iterator[list[dict[str, dict[str, Any]]]]:
    """Record every list of members that the status showed within the block."""
    seen: list[dict[str, dict[str, Any]]] = []
    ending = threading.Event()

    def poll() -> None:
        while not ending.wait(POLL_INTERVAL_SECONDS):
            try:
                seen.append(cluster.members)
            except Refused:
                continue

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        yield seen
    finally:
        ending.set()
        poller.join()


def learners(seen: list[dict[str, dict[str, Any]]]) -> int:
    """Return the highest number of learners that existed at the same time."""
    return max((sum(each.get("role") == "learner" for each in members.values()) for members in seen), default=0)


@pytest.mark.weekly
def test_01_operator_killed_repeatedly_while_scaling_converges(kubectl: Kubectl, etcd_operator: Operator) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with cluster.load() as load, watching(cluster) as seen:
        for size in (3, 1):
            until("the change is accepted", lambda size=size: cluster.change(size=size))  # type: ignore[misc]
            for _ in range(6):
                etcd_operator.kill()
                time.sleep(4)
            cluster.await_ready(size)
    assert learners(seen) <= 1
    assert load.check() > 100
    etcd_operator.await_rollout()


@pytest.mark.nightly
def test_02_repeatedly_changed_size_converges_to_the_last_value(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    identity = cluster.cluster_id
    with cluster.load() as load, watching(cluster) as seen:
        for size in (5, 3, 1):
            cluster.change(size=size)
            time.sleep(3)
        cluster.await_ready(1)
    assert learners(seen) <= 1
    assert cluster.cluster_id == identity
    assert load.check() > 50
    until("volumes of former members are deleted", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)


@pytest.mark.parametrize("role", ["seed", pytest.param("leader", marks=pytest.mark.weekly)])
def test_03_04_member_whose_volume_is_lost_is_replaced_by_a_new_member(kubectl: Kubectl, role: str) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    before = cluster.await_ready(3)["status"]
    lost = "demo-0" if role == "seed" else before["leader"]
    with cluster.load() as load:
        time.sleep(2)
        cluster.lose(lost)
        until("the status reports the member as unhealthy", lambda: cluster.is_unhealthy(lost), seconds=30)
        after = cluster.await_ready(3)["status"]
    ids = [{member["name"]: member["id"] for member in status["members"]} for status in (before, after)]
    assert ids[0].pop(lost) != ids[1].pop(lost), "the member with the new volume has a new ID"
    assert ids[0] == ids[1]
    assert before["clusterID"] == after["clusterID"]
    assert load.check() > 50


@pytest.mark.weekly
@pytest.mark.parametrize(("down", "blocked"), [("demo-0", True), ("demo-2", False)])
def test_05_while_a_member_is_down_no_other_member_is_removed(kubectl: Kubectl, down: str, blocked: bool) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    with cluster.load() as load:
        with cluster.down(down):
            until("the status reports the member as unhealthy", lambda: cluster.is_unhealthy(down), seconds=60)
            cluster.change(size=2)
            if blocked:
                message = cluster.await_reason("ScaleDownBlocked")
                assert down in message
                time.sleep(5)
                assert len(cluster.members) == 3
            else:
                until("the dead member is removed", lambda: set(cluster.members) == {"demo-0", "demo-1"}, seconds=60)
        cluster.await_ready(2)
    assert load.check() > 50


@pytest.mark.weekly
def test_06_upgrade_restarts_no_healthy_member_while_another_is_down(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3, version=NEWEST_35)
    cluster.await_ready(3)
    with cluster.load() as load:
        with cluster.down("demo-1"):
            until("the status reports the member as unhealthy", lambda: cluster.is_unhealthy("demo-1"), seconds=60)
            before = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
            cluster.change(version=NEWEST_36)
            message = cluster.await_reason("UpgradeBlocked", "RollBlocked", "Degraded", "Updating")
            assert "demo-1" in message
            time.sleep(5)
            assert {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()} == before
        cluster.await_ready(3, seconds=240)
    assert cluster.versions() == {NEWEST_36}
    assert load.check() > 50


@pytest.mark.nightly
def test_07_lost_quorum_is_recovered_only_after_confirmation(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    identity = cluster.cluster_id
    with cluster.load() as load:
        time.sleep(5)
    time.sleep(2)  # all members catch up
    cluster.lose("demo-0", "demo-1")
    cluster.await_reason("QuorumLost", seconds=120)
    recovery = until("a token", lambda: cluster.status.get("recovery", {}))
    assert recovery["survivor"] == "demo-2"
    claim = kubectl.get("persistentvolumeclaim", "data-demo-2")["metadata"]["uid"]
    time.sleep(15)
    assert cluster.status["recovery"]["token"] == recovery["token"], "nothing happens without confirmation"
    assert cluster.cluster_id == identity
    cluster.change(recovery={"confirm": "something else"})
    time.sleep(5)
    assert cluster.reason == "TokenRefused"
    cluster.change(recovery={"confirm": recovery["token"]})
    after = cluster.await_ready(3, seconds=300)["status"]
    assert after["clusterID"] != identity
    assert kubectl.get("persistentvolumeclaim", "data-demo-2")["metadata"]["uid"] == claim
    values = {each.key: each.value for each in load.history if each.write and each.returned is not None}
    own = {key: value for key, value in values.items() if key.startswith("own-")}
    assert own
    assert {key: load.read(key) for key in own} == own


@pytest.mark.nightly
def test_08_deleting_all_pods_loses_no_data(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    before = cluster.await_ready(3)["status"]
    with cluster.load() as load:
        time.sleep(2)
        kubectl("delete", "pods", "--selector", cluster.selector, "--grace-period=0", "--force", "--wait=false")
        until("the status reports the loss", lambda: cluster.reason != "Ready", seconds=30)
        after = cluster.await_ready(3)["status"]
    assert before["clusterID"] == after["clusterID"]
    assert [each["id"] for each in before["members"]] == [each["id"] for each in after["members"]]
    assert load.check() > 20


@pytest.mark.nightly
def test_09_operator_that_cannot_reach_etcd_destroys_nothing(kubectl: Kubectl, etcd_operator: Operator) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    pods = cluster.pods()
    before = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
    addresses = [pod["status"]["podIP"] for pod in pods.values()]
    with cluster.load() as load:
        with runtime.cut_off(etcd_operator.pods, addresses):
            cluster.change(size=1, snapshotCount=20000)
            message = cluster.await_reason("EtcdUnreachable", seconds=120)
            assert "NetworkPolicy" in message
            time.sleep(15)
            assert {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()} == before
            assert len(kubectl.items("persistentvolumeclaims")) == 3
        cluster.await_ready(1, seconds=240)
    assert load.check() > 50


@pytest.mark.weekly
def test_10_learner_that_never_starts_is_removed(kubectl: Kubectl, release: Release, etcd_operator: Operator) -> None:
    release.upgrade("--set", "etcd.createTimeout=20")
    etcd_operator.await_rollout()
    cluster = EtcdCluster.create(kubectl, size=1)
    before = cluster.await_ready(1)["status"]["members"]
    quota = {"hard": {"pods": "1"}}
    kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": quota})
    with cluster.load() as load:
        cluster.change(size=3)
        until("a learner is added", lambda: len(cluster.members) == 2, seconds=60)
        until("the learner is removed", lambda: "LearnerStuck" in cluster.events(), seconds=120)
        [voter] = [each for each in cluster.status["members"] if each.get("role") in ("leader", "voter")]
        assert voter["id"] == before[0]["id"]
        kubectl("delete", "resourcequota", "few")
        cluster.await_ready(3)
    assert load.check() > 50


@pytest.mark.weekly
def test_11_stale_volume_never_becomes_a_member(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    kept = kubectl.get("persistentvolumeclaim", "data-demo-2")
    with cluster.planned(size=1):
        cluster.await_ready(1)
    until("volumes of former members are deleted", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)
    stale = {key: kept["metadata"][key] for key in ("name", "labels")}
    spec = {key: kept["spec"][key] for key in ("accessModes", "resources", "storageClassName")}
    kubectl.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": stale, "spec": spec})
    with cluster.load() as load:
        until(
            "the stale volume is deleted before a member uses it",
            lambda: len(kubectl.items("persistentvolumeclaims")) == 1,
        )
        cluster.change(size=3)
        cluster.await_ready(3)
    assert load.check() > 50


@pytest.mark.weekly
def test_11_volume_of_an_earlier_cluster_is_used_only_after_an_adoption(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with cluster.load(clients=1) as load:
        time.sleep(1)
    volume, former = kubectl.get("persistentvolumeclaim", "data-demo-0")["metadata"]["uid"], cluster.cluster_id
    uid = cluster.now["metadata"]["uid"]
    kubectl("delete", "etcdcluster", "demo")
    until("the pod is deleted", lambda: not kubectl.items("pods"))
    again = EtcdCluster.create(kubectl, size=1)
    message = again.await_reason("VolumeInTheWay")
    assert "data-demo-0" in message
    assert kubectl.get("persistentvolumeclaim", "data-demo-0")["metadata"]["uid"] == volume
    assert not kubectl.items("pods")
    again.change(adopt={"fromUID": uid})
    again.await_ready(1)
    assert again.cluster_id == former
    assert kubectl.get("persistentvolumeclaim", "data-demo-0")["metadata"]["uid"] == volume
    assert load.check() > 0


@pytest.mark.weekly
def test_12_full_database_is_defragmented_and_accepts_writes_again(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3, quotaBackendBytes=16777216)
    cluster.await_ready(3)
    with cluster.load(clients=1) as load:
        load.fill("x" * 700_000, keys=5, at_most=200)
        until("the event is reported", lambda: "OutOfSpace" in cluster.events(), seconds=60)

        def is_writable() -> bool:
            try:
                return load.put("after", "all is well") > 0
            except Failed:
                return False

        until("writes are accepted again", is_writable, seconds=120)
        until(
            "the status has no alarm",
            lambda: not any(each.get("alarms") for each in cluster.await_ready(3)["status"]["members"]),
        )
    load.failures.clear()  # writes fail while the database is full
    assert load.check() > 0


@pytest.mark.nightly
def test_13_only_the_corrupt_member_is_replaced(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    before = {each["name"]: each["id"] for each in cluster.await_ready(3)["status"]["members"]}
    with cluster.load() as load:
        load.put("canary", "canary-" * 20)
        corrupt = next(name for name in sorted(before) if name != cluster.leader)
        volume = runtime.volume(kubectl, f"data-{corrupt}")
        with cluster.down(corrupt):
            runtime.flip(volume / "data" / "member" / "snap" / "db", b"canary-canary", b"canary-CANARY")
        ids = (None, before[corrupt])
        until(
            "the corrupt member is replaced", lambda: cluster.members.get(corrupt, {}).get("id") not in ids, seconds=180
        )
        after = {each["name"]: each["id"] for each in cluster.await_ready(3)["status"]["members"]}
    assert after.pop(corrupt) != before.pop(corrupt)
    assert after == before
    assert load.check() > 50


@pytest.mark.nightly
def test_15_unsafe_upgrades_are_refused_with_the_next_step(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1, version=OLD_35)
    cluster.await_ready(1)
    for target, hint in ((NEWEST_36, "3.5.26"), (NEWEST_37, "3.6")):
        with pytest.raises(Refused) as refused:
            cluster.change(version=target)
        assert hint in refused.value.output
    with cluster.planned(version=NEWEST_35):
        cluster.await_ready(1)
    assert cluster.versions() == {NEWEST_35}
    with pytest.raises(Refused) as refused:
        cluster.change(version=NEWEST_37)
    assert "3.6" in refused.value.output


@pytest.mark.weekly
def test_15_upgrades_minor_by_minor_under_load_survive_a_drain(kubectl: Kubectl) -> None:
    # 3.7 cannot replay log entries of 3.5: a low snapshotCount makes 3.6 take a snapshot in between.
    cluster = EtcdCluster.create(kubectl, size=3, version=NEWEST_35, snapshotCount=100)
    identity = cluster.await_ready(3)["status"]["clusterID"]
    with cluster.load() as load:
        for version in (NEWEST_36, NEWEST_37):
            cluster.change(version=version)
            time.sleep(3)
            kubectl("delete", "pod", "demo-1", "--wait=false")  # as a drain does
            cluster.await_ready(3, seconds=300)
            assert cluster.versions() == {version}
        with cluster.planned(version=NEWEST_36):  # etcd supports a downgrade by one minor version
            cluster.await_ready(3, seconds=300)
        assert cluster.versions() == {NEWEST_36}
    assert cluster.cluster_id == identity
    assert load.check() > 100
