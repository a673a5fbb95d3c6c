"""Losses of authority, identity and destination, healed with the runbook's remedies as they are written."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.scenarios.etcd.clients import Access
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.etcd.test_backup import CLAIM, EtcdBackup, with_volume
from e2e.scenarios.etcd.test_etcd import client_tls
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import condition, uids
from e2e.scenarios.support.runbook import follow

pytestmark = pytest.mark.nightly

SECRETS = ("demo-ca", "demo-peer-tls", "demo-server-tls", "demo-client-tls")


def secured(kubectl: Kubectl, directory: Path, **spec: Any) -> EtcdCluster:
    cluster = EtcdCluster.create(kubectl, tls={"mode": "self"}, **spec)
    cluster.await_ready(spec["size"])
    cluster.access = Access(client_tls(kubectl, "demo-client-tls", directory))
    return cluster


def backup_of(kubectl: Kubectl) -> dict[str, Any]:
    """Return the Secrets as a tool for backups writes them, without what the API server assigns."""
    found = [kubectl.get("secret", name) for name in SECRETS]
    kept = [{**each, "metadata": {key: each["metadata"][key] for key in ("name", "labels")}} for each in found]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{**each, "kind": "Secret", "apiVersion": "v1"} for each in kept],
    }


@pytest.mark.parametrize("lost", [SECRETS, ("demo-ca", "demo-client-tls")], ids=["all", "CA and client"])
def test_members_follow_new_secrets_after_the_former_ones_were_deleted(
    kubectl: Kubectl, etcd_operator: Operator, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    cluster = secured(kubectl, tmp_path, size=3)
    with cluster.load() as load:
        time.sleep(2)
    former = cluster.cluster_id
    with etcd_operator.scaled_to_zero():  # it would rescue what it sees before the last one is deleted
        kubectl("delete", "secret", *lost)
    assert "demo-ca" in cluster.await_reason("AuthorityUntrusted", seconds=120)
    cluster.await_ready(3, seconds=300)
    assert cluster.cluster_id == former
    load.access = cluster.access = Access(client_tls(kubectl, "demo-client-tls", tmp_path))  # as in the runbook
    assert load.check() > 10
    with cluster.load(prefix="later-") as later:
        time.sleep(2)
    assert later.check() > 10


def test_members_in_memory_are_not_restarted_until_the_secrets_are_restored(
    kubectl: Kubectl, etcd_operator: Operator, tmp_path: Path
) -> None:
    cluster = secured(kubectl, tmp_path, size=3, storage={"medium": "Memory", "size": "256Mi"})
    former, before = cluster.cluster_id, uids(kubectl)
    saved = tmp_path / "secrets.yaml"
    saved.write_text(json.dumps(backup_of(kubectl)))
    with cluster.load() as load:
        with etcd_operator.scaled_to_zero():
            kubectl("delete", "secret", *SECRETS)
        cluster.await_reason("AuthorityUntrusted", seconds=120)
        time.sleep(10)
        assert (cluster.reason, uids(kubectl)) == ("AuthorityUntrusted", before)
        follow(kubectl, "README", "AuthorityUntrusted", "apply", {"secrets.yaml": str(saved)})
        until("the Secrets were read", lambda: cluster.reason != "AuthorityUntrusted", seconds=60)
        if cluster.reason == "ForeignObject":
            kubectl.shell(condition(cluster.now, "Stalled")["message"].split("`")[1])
        cluster.await_ready(3, seconds=300)
        time.sleep(2)
    assert cluster.cluster_id == former
    assert load.check() > 50, "clients with the former certificate are served all the time"


def test_keys_in_memory_are_saved_without_a_backup_of_the_secrets(
    kubectl: Kubectl, etcd_operator: Operator, tmp_path: Path
) -> None:
    memory = {"medium": "Memory", "size": "256Mi"}
    cluster, saved = secured(kubectl, tmp_path, size=3, storage=memory), tmp_path / "keys.json"
    former = cluster.cluster_id
    with cluster.load(clients=1) as load:
        for number in range(20):
            load.put(f"saved-{number}", f"value {number}")
    with etcd_operator.scaled_to_zero():
        kubectl("delete", "secret", *SECRETS)
    cluster.await_reason("AuthorityUntrusted", seconds=120)
    follow(kubectl, "README", "AuthorityUntrusted", "exec", {"orders-0": "demo-0", "keys.json": str(saved)})
    follow(kubectl, "README", "AuthorityUntrusted", "delete etcdcluster", {"orders": "demo"})
    again = secured(kubectl, tmp_path, size=3, storage=memory)
    assert again.cluster_id != former
    with again.load(clients=1, prefix="later-") as later:
        for each in json.loads(saved.read_text())["kvs"]:
            later.put(*(base64.b64decode(each[part]).decode() for part in ("key", "value")))
    assert [later.read(f"saved-{number}") for number in range(20)] == [f"value {number}" for number in range(20)]


def test_member_that_is_lost_with_its_volume_is_replaced(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    lost = next(name for name in cluster.members if name != cluster.leader)
    former = cluster.members[lost]["id"]
    with cluster.load() as load:
        runtime.signal(cluster.pods()[lost], "etcd", "SIGSTOP")  # as on a node that no longer responds
        until("the status reports the member as unhealthy", lambda: cluster.is_unhealthy(lost), seconds=90)
        follow(kubectl, "etcd", "Degraded", "delete pvc", {"orders-2": lost})
        follow(kubectl, "etcd", "Degraded", "delete pod", {"orders-2": lost})
        until("another member", lambda: cluster.members.get(lost, {}).get("id") not in (None, former), seconds=180)
        cluster.await_ready(3)
    assert load.check() > 50


@pytest.mark.parametrize("kept", [True, False], ids=["adopted", "deleted"])
def test_new_cluster_does_not_take_the_identity_of_members_of_its_former_namesake(
    kubectl: Kubectl, etcd_operator: Operator, kept: bool
) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with cluster.load(clients=1) as load:
        time.sleep(1)
    former, uid = cluster.cluster_id, cluster.now["metadata"]["uid"]
    with etcd_operator.scaled_to_zero():
        kubectl("delete", "statefulset", "demo", "--cascade=orphan")
        kubectl("delete", "etcdcluster", "demo", "--wait=false")
    until("the former resource is deleted", lambda: not kubectl.items("etcdclusters"))
    assert kubectl.items("pods"), "the former member still answers"
    again = EtcdCluster.create(kubectl, size=1)
    assert uid in again.await_reason("VolumeInTheWay")
    assert not again.status.get("clusterID")
    if kept:
        follow(kubectl, "etcd", "VolumeInTheWay", "patch", {"orders": "demo", "UID": uid})
        assert "Pod demo-0 exists" in again.await_reason("AdoptionRefused")
        assert uid in follow(kubectl, "README", "AdoptionRefused", "describe pvc", {"orders": "demo"})
        kubectl("delete", "pod", "demo-0")  # as in the message
        again.await_ready(1)
        assert again.cluster_id == former
        assert load.check() > 0
    else:
        assert "demo-0" in follow(kubectl, "etcd", "VolumeInTheWay", "describe pvc", {"UID": uid})
        follow(kubectl, "etcd", "VolumeInTheWay", "delete pod", {"orders-0": "demo-0"})
        follow(kubectl, "etcd", "VolumeInTheWay", "delete pvc", {"UID": uid})
        again.await_ready(1)
        assert again.cluster_id != former


def test_schedule_without_a_destination_is_not_ready_until_there_is_one(kubectl: Kubectl) -> None:
    backup: dict[str, Any] = {"schedule": "* * * * *", "destination": {"volume": {"claimName": CLAIM}}}
    kubectl.apply(EtcdCluster.manifest("demo", size=1, backup=backup))
    cluster = EtcdCluster(kubectl, "demo")
    assert CLAIM in cluster.await_reason("VolumeMissing", seconds=180)
    until("it serves its clients", lambda: condition(cluster.now, "Available")["status"] == "True")
    with_volume(kubectl)  # "create it in the same namespace"
    cluster.await_ready(1)
    mistyped = {"s3": {"endpoint": "http://127.0.0.1:9000", "bucket": "snapshots", "credentialsSecret": "mistyped"}}
    cluster.change(backup={"destination": {"volume": None, **mistyped}})
    assert "mistyped" in cluster.await_reason("SecretMissing")
    keys = {"accessKeyID": "example", "secretAccessKey": "example"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mistyped"}, "stringData": keys}
    kubectl.apply(secret)  # "create or correct the Secret that the message names"
    cluster.await_ready(1)
    cluster.change(backup={"destination": {"s3": None, "volume": {"claimName": CLAIM}}})
    cluster.await_ready(1)
    name = until("there is a snapshot", lambda: cluster.status.get("backup", {}).get("lastName"), seconds=240)
    assert EtcdBackup(kubectl, str(name)).await_complete()["revision"]
