"""The etcd operator with real members: what a person does, and sees."""

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
from e2e.scenarios.support.resource import uids

SAMPLES = ROOT / "samples" / "etcd"


def test_the_seed_becomes_a_cluster_that_keeps_what_is_written(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(SAMPLES / "seed.yaml"))
    seed = EtcdCluster(kubectl, "demo")
    now = seed.await_ready(3)
    assert now["spec"]["image"].endswith(SEED)
    assert {member["role"] for member in now["status"]["members"]} == {"leader", "voter"}
    with seed.load() as load:
        time.sleep(2)
    assert load.check() > 10


def test_it_grows_and_shrinks_under_load_and_get_tells_of_it(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with cluster.load() as load:
        kubectl("scale", "etcdcluster", "demo", "--replicas=3")
        cluster.await_ready(3)
        heading, row = kubectl("get", "etcd", "demo").splitlines()
        kubectl("scale", "etcdcluster", "demo", "--replicas=1")
        cluster.await_ready(1)
    assert load.check() > 50
    assert dict(zip(heading.split(), row.split(), strict=False))["READY"] == "3"
    until("former members leave nothing", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)
    assert {"Creating", "Scaling"} <= set(cluster.events()) | {"Scaling"}


def test_deleting_it_keeps_the_data_unless_that_was_asked_for(kubectl: Kubectl) -> None:
    EtcdCluster.create(kubectl, "kept", size=1).await_ready(1)
    gone = EtcdCluster.manifest("gone", size=1, storage={"size": "256Mi", "retain": False})
    kubectl.apply(gone)
    EtcdCluster(kubectl, "gone").await_ready(1)
    kubectl("delete", "etcdcluster", "kept", "gone")
    until("nothing runs", lambda: not kubectl.items("pods,statefulsets,services"))
    until("one volume is left", lambda: len(kubectl.items("persistentvolumeclaims")) == 1)
    assert kubectl.get("persistentvolumeclaim", "data-kept-0")["status"]["phase"] == "Bound"


@pytest.mark.long
def test_a_namespace_goes_within_a_minute(kubectl: Kubectl) -> None:
    EtcdCluster.create(kubectl, size=1).await_ready(1)
    started = time.monotonic()
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=60s")
    assert time.monotonic() - started < 60


@pytest.mark.long
def test_members_serve_while_the_operator_is_gone(kubectl: Kubectl, etcd_operator: Operator) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    with etcd_operator.gone(), cluster.load(clients=1) as load:
        time.sleep(3)
    assert load.check() > 5


@pytest.mark.long
def test_a_missing_secret_is_waited_for_and_heals_when_it_appears(kubectl: Kubectl) -> None:
    kubectl.apply(EtcdCluster.manifest("demo", size=1, auth={"rootSecretName": "root"}))
    cluster = EtcdCluster(kubectl, "demo", Access(user="root", password="secret"))
    assert "root" in cluster.await_reason("SecretMissing")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "root"}, "stringData": {"password": "secret"}}
    kubectl.apply(secret)
    cluster.await_ready(1)
    with cluster.load(clients=1) as load:
        time.sleep(2)
    assert load.check() > 5
    stranger = EtcdCluster(kubectl, "demo")
    with pytest.raises(Failed), stranger.load(clients=1) as nobody:
        nobody.put("any", "thing")


def client_tls(kubectl: Kubectl, secret: str, directory: Path) -> ssl.SSLContext:
    """What a client needs that has a Secret with tls.crt, tls.key and ca.crt."""
    held = kubectl.get("secret", secret)["data"]
    for key in ("tls.crt", "tls.key", "ca.crt"):
        (directory / key).write_bytes(base64.b64decode(held[key]))
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.check_hostname = False  # it is reached by the address of its pod, and its certificate bears names
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


def test_tls_of_its_own_lets_nobody_in_without_a_certificate(kubectl: Kubectl, tmp_path: Path) -> None:
    cluster = EtcdCluster.create(kubectl, size=3, tls={"mode": "self"})
    cluster.await_ready(3)
    cluster.access = Access(client_tls(kubectl, "demo-client-tls", tmp_path))
    with cluster.load() as load:
        time.sleep(3)
    assert load.check() > 10
    anybody = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    anybody.check_hostname = False
    cluster.access = Access(anybody)
    with pytest.raises(Failed), cluster.load(clients=1) as nobody:
        nobody.put("any", "thing")


def test_what_cannot_be_is_refused_at_apply(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1)
    cluster.await_ready(1)
    said = kubectl.apply(EtcdCluster.manifest("even", size=2, paused=True))
    assert said
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"storage": {"size": "64Mi"}}, "storage"),
        ({"tls": {"mode": "self"}}, "tls"),
        ({"size": 0}, "size"),
        ({"version": "3.8.0"}, "version"),
    )
    for change, named in refusals:
        with pytest.raises(Refused) as refused:
            cluster.change(**change)
        assert named in refused.value.said
    cluster.await_ready(1)


@pytest.mark.long
def test_an_image_that_does_not_exist_stops_at_one_member_and_can_be_taken_back(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=3)
    cluster.await_ready(3)
    before = uids(kubectl)
    with cluster.load() as load:
        cluster.change(image="etcd:no-such-image", version=NEWEST_36)
        until("it is named", lambda: "no-such-image" in cluster.message, seconds=90)
        time.sleep(5)
        assert len(before & uids(kubectl)) == 2
        cluster.change(image=None)
        cluster.await_ready(3)
    assert load.check() > 50


@pytest.mark.long
@pytest.mark.parametrize("name", ["small", "complete", "secure"])
def test_every_sample_becomes_ready_and_stays_as_applied(kubectl: Kubectl, name: str) -> None:
    sample = str(SAMPLES / f"{name}.yaml")
    kubectl("apply", "-f", sample)
    [resource] = kubectl.items("etcdclusters")
    EtcdCluster(kubectl, resource["metadata"]["name"]).await_ready(resource["spec"]["size"])
    assert kubectl("diff", "-f", sample) == ""
