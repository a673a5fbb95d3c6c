"""The etcd operator with real members: common tasks of users."""

from __future__ import annotations

import base64
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.scenarios.etcd.clients import Access, Failed
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.etcd.versions import NEWEST_36, SEED
from e2e.scenarios.support.commands import ROOT, Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import owned_claims, uids
from operators.etcd.objects.names import CLUSTER_UID

SAMPLES = ROOT / "samples" / "etcd"


@pytest.mark.nightly
def test_seed_manifest_becomes_a_cluster_that_keeps_its_data(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(SAMPLES / "seed.yaml"))
    seed = EtcdCluster(kubectl, "demo")
    now = seed.await_ready(3)
    assert now["spec"]["image"].endswith(SEED)
    assert {member["role"] for member in now["status"]["members"]} == {"leader", "voter"}
    with seed.load() as load:
        time.sleep(2)
    assert load.check() > 10


def test_cluster_scales_under_load_and_kubectl_get_shows_its_members(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with cluster.load() as load:
        with cluster.planned(lambda: kubectl("scale", "etcdcluster", "demo", "--replicas=3"), size=3):
            cluster.await_ready(3)
        heading, row = kubectl("get", "etcd", "demo").splitlines()
        with cluster.planned(lambda: kubectl("scale", "etcdcluster", "demo", "--replicas=1"), size=1):
            cluster.await_ready(1)
    assert load.check() > 50
    assert dict(zip(heading.split(), row.split(), strict=False))["READY"] == "3"
    until("volumes of former members are deleted", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)
    assert {"Creating", "Scaling"} <= set(cluster.events()) | {"Scaling"}


@pytest.mark.nightly
def test_deletion_keeps_the_data_unless_retain_is_false(kubectl: Kubectl) -> None:
    EtcdCluster.create(kubectl, "kept", size=1).await_ready(1)
    discarded = EtcdCluster.manifest("discarded", size=1, storage={"size": "256Mi", "retain": False})
    kubectl.apply(discarded)
    EtcdCluster(kubectl, "discarded").await_ready(1)
    kubectl("delete", "etcdcluster", "kept", "discarded")
    until("nothing runs", lambda: not kubectl.items("pods,statefulsets,services"))
    until("one volume is left", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)
    assert kubectl.get("persistentvolumeclaim", "data-kept-0")["status"]["phase"] == "Bound"


@pytest.mark.weekly
def test_recreated_cluster_adopts_the_volumes_of_all_its_members(kubectl: Kubectl) -> None:
    """A GitOps tool prunes the resource, and applies the manifest again, now with spec.adopt."""
    cluster = EtcdCluster.create(kubectl, size=3)
    before = cluster.await_ready(3)
    with cluster.load() as load:
        time.sleep(2)
    claims, former = owned_claims(kubectl, CLUSTER_UID), cluster.cluster_id
    members = {name: member["id"] for name, member in cluster.members.items()}
    assert len(claims) == 3
    kubectl("delete", "etcdcluster", "demo", "--timeout=60s")
    until("nothing runs", lambda: not kubectl.items("pods,statefulsets"))
    assert owned_claims(kubectl, CLUSTER_UID).keys() == claims.keys(), "the volumes are kept"

    cluster = EtcdCluster.create(kubectl, size=3, adopt={"fromUID": before["metadata"]["uid"]})
    now = cluster.await_ready(3)
    assert now["metadata"]["uid"] != before["metadata"]["uid"]
    assert cluster.cluster_id == former
    assert {name: member["id"] for name, member in cluster.members.items()} == members
    assert owned_claims(kubectl, CLUSTER_UID) == dict.fromkeys(claims, now["metadata"]["uid"])
    assert load.check() > 50, "all former keys are there"

    with cluster.load(prefix="later") as later:
        cluster.change(adopt=None)
        with cluster.planned(size=1):
            cluster.await_ready(1)
    assert later.check() > 10
    assert load.check() > 50


@pytest.mark.weekly
def test_namespace_is_deleted_within_a_minute(kubectl: Kubectl) -> None:
    EtcdCluster.create(kubectl, size=1).await_ready(1)
    started = time.monotonic()
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=60s")
    assert time.monotonic() - started < 60


@pytest.mark.weekly
def test_members_serve_while_the_operator_is_down(kubectl: Kubectl, etcd_operator: Operator) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with etcd_operator.scaled_to_zero(), cluster.load(clients=1) as load:
        time.sleep(3)
    assert load.check() > 5


@pytest.mark.weekly
def test_cluster_waits_for_a_missing_secret_and_recovers(kubectl: Kubectl) -> None:
    kubectl.apply(EtcdCluster.manifest("demo", size=1, auth={"rootSecretName": "root"}))
    cluster = EtcdCluster(kubectl, "demo", Access(user="root", password="secret"))
    assert "root" in cluster.await_reason("SecretMissing")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "root"}, "stringData": {"password": "secret"}}
    kubectl.apply(secret)
    cluster.await_ready(1)
    with cluster.load(clients=1) as load:
        time.sleep(2)
    assert load.check() > 5
    unauthenticated = EtcdCluster(kubectl, "demo")
    with pytest.raises(Failed), unauthenticated.load(clients=1) as load:
        load.put("any", "thing")


def client_tls(kubectl: Kubectl, secret: str, directory: Path) -> ssl.SSLContext:
    """Build a client's TLS context from a Secret with tls.crt, tls.key and ca.crt."""
    content = kubectl.get("secret", secret)["data"]
    for key in ("tls.crt", "tls.key", "ca.crt"):
        (directory / key).write_bytes(base64.b64decode(content[key]))
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.check_hostname = False  # the clients use addresses of pods, which the certificate lacks
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


@pytest.mark.nightly
def test_members_with_operator_managed_tls_refuse_clients_without_a_certificate(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    cluster = EtcdCluster.create(kubectl, size=3, tls={"mode": "self"})
    cluster.await_ready(3)
    cluster.access = Access(client_tls(kubectl, "demo-client-tls", tmp_path))
    with cluster.load() as load:
        time.sleep(3)
    assert load.check() > 10
    without_certificate = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    without_certificate.check_hostname = False
    cluster.access = Access(without_certificate)
    with pytest.raises(Failed), cluster.load(clients=1) as load:
        load.put("any", "thing")


@pytest.mark.nightly
def test_invalid_change_is_refused_at_apply(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    output = kubectl.apply(EtcdCluster.manifest("even", size=2, paused=True))
    assert output
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"storage": {"size": "64Mi"}}, "storage"),
        ({"tls": {"mode": "self"}}, "tls"),
        ({"size": 0}, "size"),
        ({"version": "3.8.0"}, "version"),
    )
    for change, field in refusals:
        with pytest.raises(Refused) as refused:
            cluster.change(**change)
        assert field in refused.value.output
    cluster.await_ready(1)


@pytest.mark.weekly
def test_missing_image_stops_the_rollout_at_one_member_and_can_be_reverted(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    before = uids(kubectl)
    with cluster.load() as load:
        cluster.change(image="etcd:no-such-image", version=NEWEST_36)
        until("the message names the image", lambda: "no-such-image" in cluster.message, seconds=90)
        time.sleep(5)
        assert len(before & uids(kubectl)) == 2
        cluster.change(image=None)
        cluster.await_ready(3)
    assert load.check() > 50


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["small", "complete", "secure"])
def test_every_sample_becomes_ready_and_stays_as_applied(kubectl: Kubectl, name: str) -> None:
    sample = str(SAMPLES / f"{name}.yaml")
    kubectl("apply", "-f", sample)
    [resource] = kubectl.items("etcdclusters")
    EtcdCluster(kubectl, resource["metadata"]["name"]).await_ready(resource["spec"]["size"])
    assert kubectl("diff", "-f", sample) == ""
