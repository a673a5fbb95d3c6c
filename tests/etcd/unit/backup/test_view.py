"""Observation of snapshots: their location, whether it exists, and the snapshot that a new cluster restores."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from operators.etcd.api.backup import API, SCHEDULED, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.backup import locations, view
from operators.etcd.backup.observe import observer
from operators.etcd.client.server import Access, Endpoint
from operators.etcd.objects import names
from operators.etcd.objects.pod import INCONSISTENT
from operators.etcd.operator import backups, clusters
from shared.api.policy import PlatformPolicy
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import TooLarge
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, Key, Kind, Obj
from shared.pki.secret_checks import SecretProblem
from shared.runtime.cache import Relist
from shared.status.reasons import Reason
from simulator.api_server.server import ApiServer
from simulator.harness import list_view
from tests.etcd.simulation.database import FakeEtcd
from tests.etcd.unit.backup.states import BUCKET, ENDED, VOLUME, backup, snapshot_pod, status_of
from tests.etcd.unit.test_observe import FakeMember
from tests.etcd.unit.world import CLUSTER_ID, SETTINGS, UID, cluster
from tests.support.etcd.scenarios import OPTIONS

CLUSTERS, BACKUPS = clusters(OPTIONS), backups(OPTIONS)
STORE = VolumeStore(claim_name="snapshots", path="etcd")
BUCKETED = S3(bucket="orders", prefix="etcd/", credentials_secret="keys")


class Cluster:
    """API server with the objects that an operator observes."""

    def __init__(self) -> None:
        self.server = ApiServer([CLUSTERS.kind, API.kind])
        self.kube = Kube(self.server, manager="etcd-operator")
        self.user_client = self.server.actor("kubectl")

    def has(self, kind: Any, name: str, *, labels: Obj | None = None, owner: Obj | None = None, **body: Any) -> Obj:
        head = {"apiVersion": kind.api_version, "kind": kind.name}
        metadata: Obj = {"name": name, "namespace": "default", "labels": labels or {}}
        metadata |= {"ownerReferences": [owner]} if owner else {}
        made = self.user_client.create(kind, {**head, "metadata": metadata, **body})
        if status := body.get("status"):
            made = self.user_client.merge(kind, "default", name, {"status": status}, subresource="status")
        return made

    def with_claim(self) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        self.has(PERSISTENT_VOLUME_CLAIM, "snapshots", spec=spec)

    def delete_claim(self) -> None:
        """Delete the claim while a pod uses it."""
        used = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
        self.user_client.merge(PERSISTENT_VOLUME_CLAIM, "default", "snapshots", used)
        self.user_client.delete(PERSISTENT_VOLUME_CLAIM, "default", "snapshots")

    def with_keys(self, **keys: str) -> None:
        self.has(SECRET, "keys", data={key: base64.b64encode(text.encode()).decode() for key, text in keys.items()})

    async def problem(self, store: VolumeStore | S3) -> SecretProblem | None:
        return await locations.problem(self.kube, "default", "spec.destination", store)

    async def view(self, resource: EtcdCluster) -> view.BackupView:
        cache = CLUSTERS.cache(lambda _: None)
        for kind, listing in list_view(CLUSTERS, self.server).items():
            Relist(cache, kind, None).take(listing)
        return await view.observe(resource, cache, self.kube)


# Locations.


def test_location_of_a_file_is_one_url() -> None:
    assert locations.location(STORE, "demo-1/a.db") == "volume://snapshots/etcd/demo-1/a.db"
    assert locations.location(VolumeStore(claim_name="c"), "a.db") == "volume://c/a.db"
    assert locations.location(BUCKETED, "demo-1/a.db") == "s3://orders/etcd/demo-1/a.db"
    assert locations.location(S3(bucket="orders", credentials_secret="k"), "a.db") == "s3://orders/a.db"


async def test_missing_volume_is_reported() -> None:
    api = Cluster()
    found = await api.problem(STORE)
    assert found == SecretProblem(
        Reason("VolumeMissing"),
        "spec.destination.volume: PersistentVolumeClaim snapshots does not exist in this namespace. Create it, or "
        "name another one.",
    )
    api.with_claim()
    assert await api.problem(STORE) is None


async def test_volume_that_is_being_deleted_is_reported() -> None:
    api = Cluster()
    api.with_claim()
    api.delete_claim()
    found = await api.problem(STORE)
    assert found == SecretProblem(
        Reason("VolumeMissing"),
        "spec.destination.volume: PersistentVolumeClaim snapshots is being deleted, so no new pod can mount it. Create "
        "it again once it is deleted, or name another one.",
    )


async def test_bucket_requires_both_keys_in_its_secret() -> None:
    api = Cluster()
    found = await api.problem(BUCKETED)
    assert found is not None
    assert (found.reason, "spec.destination.s3: Secret keys does not exist" in found.message) == ("SecretMissing", True)
    api.with_keys(accessKeyID="a")
    found = await api.problem(BUCKETED)
    assert found is not None
    assert found.message == "spec.destination.s3: Secret keys has no secretAccessKey. Add it."
    api.user_client.merge(SECRET, "default", "keys", {"data": {"secretAccessKey": "Yg=="}})
    assert await api.problem(BUCKETED) is None


# Snapshot that a new cluster restores.


def new(source: Obj) -> EtcdCluster:
    return cluster(recorded=None, restore={"from": source})


FILE: Obj = {**VOLUME, "file": "demo-1/a.db"}
COMPLETE: Obj = {"phase": "Complete", "completedAt": ENDED, "file": "demo-9/a.db"}


async def test_file_of_a_store_is_found_once_its_volume_exists() -> None:
    api = Cluster()
    found = await api.view(new(FILE))
    assert (found.snapshot, found.problem and found.problem.reason) == (None, "VolumeMissing")
    assert found.problem is not None
    assert found.problem.message.startswith("spec.restore.from.volume: ")
    api.with_claim()
    found = await api.view(new(FILE))
    assert (found.snapshot, found.problem) == (view.Snapshot(STORE, "demo-1/a.db"), None)


async def test_volume_of_a_restore_may_be_deleted_once_its_pod_has_it() -> None:
    api, resource = Cluster(), new(FILE)
    api.with_claim()
    api.delete_claim()
    found = await api.view(resource)
    assert found.problem is not None
    assert "is being deleted" in found.problem.message
    labels = names.owner(resource, "etcd-operator").labels("restore")
    api.has(POD, "demo-restore", labels=labels, spec={"containers": [{"name": "restore", "image": "operator"}]})
    found = await api.view(resource)
    assert (found.snapshot, found.problem) == (view.Snapshot(STORE, "demo-1/a.db"), None)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, "BackupUnfinished"),
        ({"phase": "Running"}, "BackupUnfinished"),
        (COMPLETE | {"completedAt": None}, "BackupUnfinished"),
        ({"phase": "Failed", "completedAt": ENDED}, "BackupFailed"),
        (COMPLETE | {"file": None}, "BackupFailed"),
    ],
)
async def test_etcd_backup_without_a_snapshot_is_reported_with_the_reason(status: Obj, reason: str) -> None:
    api = Cluster()
    api.with_claim()
    api.has(API.kind, "yesterday", spec={"clusterName": "demo", "destination": VOLUME}, status=status)
    found = await api.view(new({"backup": "yesterday"}))
    assert (found.snapshot, found.problem and found.problem.reason) == (None, reason)


async def test_etcd_backup_provides_the_location_of_its_file() -> None:
    api = Cluster()
    found = await api.view(new({"backup": "yesterday"}))
    assert (found.snapshot, found.problem and found.problem.reason) == (None, "BackupMissing")
    api.with_keys(accessKeyID="a", secretAccessKey="b")
    api.has(API.kind, "yesterday", spec={"clusterName": "demo", "destination": BUCKET}, status=COMPLETE)
    found = await api.view(new({"backup": "yesterday"}))
    assert found.snapshot == view.Snapshot(S3(bucket="orders", prefix="etcd", credentials_secret="keys"), "demo-9/a.db")


async def test_invalid_etcd_backup_is_reported() -> None:
    api = Cluster()
    api.has(API.kind, "yesterday", spec={"clusterName": "demo", "destination": 7}, status=COMPLETE)
    found = await api.view(new({"backup": "yesterday"}))
    assert (found.problem and found.problem.reason) == "BackupInvalid"


@pytest.mark.parametrize(
    "resource",
    [
        cluster(),
        cluster(restore={"from": FILE}),
        cluster(recorded=None, restore={"from": FILE}, status={"restore": {"phase": "Complete"}}),
    ],
    ids=["no restore", "already started", "already restored"],
)
async def test_cluster_without_a_pending_restore_sends_no_requests(resource: EtcdCluster) -> None:
    api = Cluster()
    assert await api.view(resource) == view.BackupView()
    assert api.server.log.is_empty


async def test_only_backups_of_the_clusters_own_schedule_count() -> None:
    api = Cluster()
    own_labels = {
        "app.kubernetes.io/name": "etcd",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/managed-by": "etcd-operator",
    }
    spec = {"clusterName": "demo", "destination": VOLUME}
    api.has(API.kind, "demo-2601010300", labels={**own_labels, SCHEDULED: UID}, spec=spec)
    api.has(API.kind, "demo-2501010300", labels={**own_labels, SCHEDULED: "an earlier one"}, spec=spec)
    api.has(
        API.kind,
        "other-2601010300",
        labels={**own_labels, "app.kubernetes.io/instance": "other", SCHEDULED: UID},
        spec=spec,
    )
    api.has(API.kind, "by-hand", labels={SCHEDULED: UID}, spec=spec)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "u-9", "controller": True}
    api.has(API.kind, "demo-2601010200", labels={**own_labels, SCHEDULED: UID}, owner=owner, spec=spec)
    found = await api.view(cluster())
    assert [obj["metadata"]["name"] for obj in found.scheduled] == ["demo-2601010300"]


# Observation of an EtcdBackup.


async def test_running_or_finished_backup_queries_no_member() -> None:
    api = Cluster()
    cache = BACKUPS.cache(lambda _: None)
    observe = observer(FakeEtcd().connect, PlatformPolicy())
    pod = snapshot_pod()
    pod["metadata"]["resourceVersion"] = "1"
    cache.put(POD, pod)
    assert cache.owned(POD, Key("default", "nightly")) != []
    for resource in (backup(), backup({"phase": "Failed", "completedAt": ENDED})):
        found = await observe(resource, cache, api.kube)
        assert (found.pod and found.pod["metadata"]["uid"], found.problem) == ("p-1", None)


async def test_pod_of_an_earlier_backup_of_the_same_name_is_not_adopted() -> None:
    api = Cluster()
    cache = BACKUPS.cache(lambda _: None)
    pod = snapshot_pod(EtcdBackup.parse(backup().obj | {"metadata": backup().obj["metadata"] | {"uid": "b-0"}}))
    pod["metadata"]["resourceVersion"] = "1"
    cache.put(POD, pod)
    found = await observer(FakeEtcd().connect, PlatformPolicy())(backup(), cache, api.kube)
    assert (found.pod, found.problem and found.problem.reason) == (None, "PodInTheWay")


async def test_missing_cluster_is_reported() -> None:
    found = await observer(FakeEtcd().connect, PlatformPolicy())(
        backup(), BACKUPS.cache(lambda _: None), Cluster().kube
    )
    assert found.problem is not None
    assert (found.problem.reason, "EtcdCluster demo" in found.problem.message) == ("ClusterMissing", True)


async def test_only_members_of_the_cluster_are_queried_for_a_snapshot() -> None:
    """Any pod may have the labels, and a pod of a former resource of this name may still run."""
    api, given = Cluster(), dict[str, str]()
    api.with_claim()
    api.has(SECRET, "root", data={"password": base64.b64encode(b"secret").decode()})
    spec = {"size": 3, "version": "3.6.11", "auth": {"rootSecretName": "root"}}
    own = api.has(CLUSTERS.kind, "demo", spec=spec, status={"clusterID": f"{CLUSTER_ID:016x}"})
    labels = names.owner(cluster(), SETTINGS.operator).labels(names.COMPONENT)
    for name, token, workload in (
        ("demo-0", own["metadata"]["uid"], "demo"),
        ("demo-1", "u-0", "demo"),
        ("demo-2", "", "other"),
        ("debug", "", ""),
    ):
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": workload, "uid": "s", "controller": True}
        container = {"name": "etcd", "image": "etcd", "args": [f"--initial-cluster-token={token}"]}
        status = {"phase": "Running", "podIP": "10.0.0.1"}
        pod = {"labels": labels, "owner": owner if workload else None, "spec": {"containers": [container]}}
        api.has(POD, name, **pod, status=status)

    def connect(endpoint: Endpoint, access: Access) -> Any:
        given[endpoint.name] = access.password
        return FakeMember(status_of(0))

    found = await observer(connect, PlatformPolicy())(backup(), BACKUPS.cache(lambda _: None), api.kube)
    assert given == {"demo-0": "secret", "demo-1": ""}
    assert [source.name for source in found.sources] == ["demo-0", "demo-1"]


@pytest.mark.parametrize(
    ("reported", "differed"),
    [
        ({"phase": "Running", "podIP": "10.0.0.1"}, ["ended because of that"]),
        ({"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}, [""]),
        ({"phase": "Failed", "podIP": "10.0.0.1"}, ["ended because of that"]),
        ({"phase": "Pending"}, ["ended because of that"]),
    ],
    ids=["not ready", "ready", "ended", "without an address"],
)
async def test_member_that_ended_over_the_data_of_its_peers_is_observed(reported: Obj, differed: list[str]) -> None:
    api = Cluster()
    api.with_claim()
    status: Obj = {"clusterID": f"{CLUSTER_ID:016x}"}
    own = api.has(CLUSTERS.kind, "demo", spec={"size": 1, "version": "3.6.11"}, status=status)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo", "uid": "s", "controller": True}
    container = {"name": "etcd", "image": "etcd", "args": [f"--initial-cluster-token={own['metadata']['uid']}"]}
    labels = names.owner(cluster(), SETTINGS.operator).labels(names.COMPONENT)
    ended = {"name": "etcd", "state": {"running": {}}, "lastState": {"terminated": {"message": INCONSISTENT}}}
    pod = {**reported, "containerStatuses": [ended]}
    api.has(POD, "demo-0", labels=labels, owner=owner, spec={"containers": [container]}, status=pod)

    def connect(_endpoint: Endpoint, _access: Access) -> Any:
        return FakeMember(status_of(0))

    found = await observer(connect, PlatformPolicy())(backup(), BACKUPS.cache(lambda _: None), api.kube)
    assert [source.differed for source in found.sources] == differed


async def test_pod_that_cannot_be_read_hides_no_other_member() -> None:
    class Reader(Kube):
        async def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
            if name == "demo-1":
                raise TooLarge("the response has more than 60000 values")
            return await super().get(kind, namespace, name)

    api = Cluster()
    api.with_claim()
    own = api.has(CLUSTERS.kind, "demo", spec={"size": 2, "version": "3.6.11"})
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo", "uid": "s", "controller": True}
    args = [f"--initial-cluster-token={own['metadata']['uid']}"]
    container = {"name": "etcd", "image": "etcd", "args": args}
    labels = names.owner(cluster(), SETTINGS.operator).labels(names.COMPONENT)
    running = {"phase": "Running", "podIP": "10.0.0.1"}
    api.has(POD, "demo-0", labels=labels, owner=owner, spec={"containers": [container]}, status=running)
    kube = Reader(api.server, manager="etcd-operator")

    def connect(_endpoint: Endpoint, _access: Access) -> Any:
        return FakeMember(status_of(0))

    found = await observer(connect, PlatformPolicy())(backup(), BACKUPS.cache(lambda _: None), kube)
    assert [(source.name, source.error, source.differed) for source in found.sources] == [
        ("demo-0", "", ""),
        ("demo-1", "the response has more than 60000 values", "cannot be read"),
    ]
