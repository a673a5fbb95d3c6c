"""Snapshots of real members, and clusters restored from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from e2e.scenarios.etcd.clients import Load
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource

CLAIM = "snapshots"


class EtcdBackup(Resource):
    """One EtcdBackup in a namespace."""

    API_VERSION = "etcd.ydzs.io/v1alpha1"
    KIND = "EtcdBackup"

    def await_complete(self, *, seconds: float = 120.0) -> dict[str, Any]:
        def check() -> dict[str, Any]:
            status = self.status
            assert status.get("phase") == "Complete", status
            return status

        return until(f"{self.name} is complete", check, seconds=seconds)


def with_volume(kubectl: Kubectl) -> dict[str, Any]:
    """Create a volume for snapshots and return it as a destination."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}}}
    kubectl.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec})
    return {"volume": {"claimName": CLAIM}}


def backed_up(kubectl: Kubectl, **spec: Any) -> tuple[EtcdCluster, Load, dict[str, Any]]:
    """Write to a cluster and take a snapshot; return the cluster, its load and the status of the snapshot."""
    cluster = EtcdCluster.create(kubectl, "source", size=1, **spec)
    cluster.await_ready(1)
    destination = with_volume(kubectl)
    with cluster.load() as load:
        time.sleep(3)
    kubectl.apply(EtcdBackup.manifest("first", clusterName="source", destination=destination))
    return cluster, load, EtcdBackup(kubectl, "first").await_complete()


def own_keys(load: Load) -> dict[str, str | None]:
    """Return the acknowledged values of keys that were written once."""
    written = {each.key: each.value for each in load.history if each.write and each.returned is not None}
    return {key: value for key, value in written.items() if key.startswith("own-")}


@pytest.mark.nightly
def test_14_snapshot_is_verified_and_restored_with_higher_revisions(kubectl: Kubectl) -> None:
    _, load, status = backed_up(kubectl)
    assert status["revision"] >= max(each.revision or 0 for each in load.history)
    assert len(status["sha256"]) == 64
    kubectl.apply(EtcdCluster.manifest("restored", size=3, restore={"from": {"backup": "first"}}))
    restored = EtcdCluster(kubectl, "restored")
    after = restored.await_ready(3, seconds=300)["status"]
    with restored.load(clients=1, prefix="later-") as later:
        time.sleep(2)
    assert later.check() > 5
    assert min(each.revision or 0 for each in later.history if each.revision) > status["revision"] + 1_000_000
    assert {key: later.read(key) for key in own_keys(load)} == own_keys(load)
    assert after["restore"]["phase"] == "Complete"


@pytest.mark.weekly
@pytest.mark.parametrize(("damage", "reason"), [("truncated", "NotASnapshot"), ("flipped", "SnapshotCorrupt")])
def test_14_damaged_snapshot_is_refused_until_a_valid_one_is_named(kubectl: Kubectl, damage: str, reason: str) -> None:
    backed_up(kubectl)
    directory = runtime.volume(kubectl, CLAIM)
    [snapshot] = directory.rglob("*.db")
    good = snapshot.read_bytes()
    damages: dict[str, Callable[[bytes], bytes]] = {
        "truncated": lambda whole: whole[: len(whole) // 2],
        "flipped": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    }
    (directory / "bad.db").write_bytes(damages[damage](good))
    source = {"volume": {"claimName": CLAIM}, "file": "bad.db"}
    kubectl.apply(EtcdCluster.manifest("restored", size=1, restore={"from": source}))
    restored = EtcdCluster(kubectl, "restored")
    assert "bad.db" in restored.await_reason(reason, seconds=120)
    time.sleep(5)
    assert "clusterID" not in restored.status, "no cluster was started"
    restored.change(restore={"from": {"volume": None, "file": None, "backup": "first"}})
    restored.await_ready(1)


@pytest.mark.weekly
def test_scheduled_snapshots_are_kept_up_to_the_retention(kubectl: Kubectl) -> None:
    destination = with_volume(kubectl)
    backup = {"schedule": "* * * * *", "retention": 1, "destination": destination}
    cluster = EtcdCluster.create(kubectl, size=1, backup=backup)
    cluster.await_ready(1)
    first = until("there is a first snapshot", lambda: cluster.status.get("backup", {}).get("lastName"), seconds=150)
    until("there is a second snapshot", lambda: cluster.status["backup"]["lastName"] != first, seconds=150)
    until("one EtcdBackup is left", lambda: len(kubectl.items("etcdbackups")) == 1, seconds=60)
    until("one file is left", lambda: len(list(runtime.volume(kubectl, CLAIM).rglob("*.db"))) == 1, seconds=60)
