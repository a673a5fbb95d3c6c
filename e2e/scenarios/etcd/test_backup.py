"""Snapshots of real members, and clusters that begin with them."""

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
        def look() -> dict[str, Any]:
            status = self.status
            assert status.get("phase") == "Complete", status
            return status

        return until(f"{self.name} is complete", look, seconds=seconds)


def with_volume(kubectl: Kubectl) -> dict[str, Any]:
    """A volume for snapshots, as a destination."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}}}
    kubectl.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec})
    return {"volume": {"claimName": CLAIM}}


def backed_up(kubectl: Kubectl, **spec: Any) -> tuple[EtcdCluster, Load, dict[str, Any]]:
    """A cluster that was written to, what was written, and the status of a snapshot taken afterwards."""
    cluster = EtcdCluster.create(kubectl, "source", size=1, **spec)
    cluster.await_ready(1)
    destination = with_volume(kubectl)
    with cluster.load() as load:
        time.sleep(3)
    kubectl.apply(EtcdBackup.manifest("first", clusterName="source", destination=destination))
    return cluster, load, EtcdBackup(kubectl, "first").await_complete()


def own_keys(load: Load) -> dict[str, str | None]:
    """What was acknowledged of keys that were written once."""
    written = {each.key: each.value for each in load.history if each.write and each.returned is not None}
    return {key: value for key, value in written.items() if key.startswith("own-")}


def test_14_a_snapshot_is_verified_and_restored_with_revisions_that_only_grow(kubectl: Kubectl) -> None:
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


@pytest.mark.long
@pytest.mark.parametrize(("harm", "reason"), [("truncated", "NotASnapshot"), ("flipped", "SnapshotCorrupt")])
def test_14_a_snapshot_that_was_harmed_is_refused_until_a_good_one_is_named(
    kubectl: Kubectl, harm: str, reason: str
) -> None:
    backed_up(kubectl)
    directory = runtime.volume(kubectl, CLAIM)
    [snapshot] = directory.rglob("*.db")
    good = snapshot.read_bytes()
    harms: dict[str, Callable[[bytes], bytes]] = {
        "truncated": lambda whole: whole[: len(whole) // 2],
        "flipped": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    }
    (directory / "bad.db").write_bytes(harms[harm](good))
    source = {"volume": {"claimName": CLAIM}, "file": "bad.db"}
    kubectl.apply(EtcdCluster.manifest("restored", size=1, restore={"from": source}))
    restored = EtcdCluster(kubectl, "restored")
    assert "bad.db" in restored.await_reason(reason, seconds=120)
    time.sleep(5)
    assert "clusterID" not in restored.status, "nothing was begun"
    restored.change(restore={"from": {"volume": None, "file": None, "backup": "first"}})
    restored.await_ready(1)


@pytest.mark.long
def test_snapshots_by_the_clock_are_kept_as_many_as_asked(kubectl: Kubectl) -> None:
    destination = with_volume(kubectl)
    backup = {"schedule": "* * * * *", "retention": 1, "destination": destination}
    cluster = EtcdCluster.create(kubectl, size=1, backup=backup)
    cluster.await_ready(1)
    first = until("the first", lambda: cluster.status.get("backup", {}).get("lastName"), seconds=150)
    until("the next", lambda: cluster.status["backup"]["lastName"] != first, seconds=150)
    until("one is left", lambda: len(kubectl.items("etcdbackups")) == 1, seconds=60)
    until("one file is left", lambda: len(list(runtime.volume(kubectl, CLAIM).rglob("*.db"))) == 1, seconds=60)
