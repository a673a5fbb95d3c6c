"""Installing, upgrading and removing releases on a real API server, where resources live through all of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import REPOSITORY
from shared.kubernetes.kinds import DEPLOYMENT
from tests.api.charts.cluster import MEMCACHEDS, UNASKED, Cluster, etcd, memcached, redis
from tests.api.support.running import Operator
from tests.support.charts import EVERYTHING, NAMES, NAMESPACE, OPERATORS, Obj, Values, helm, is_hook, of_kind, render

RELEASED = REPOSITORY / "tests" / "released"
PREVIOUS = RELEASED / "platform-0.1.0.tgz"

RELEASE_LIMIT = 700_000
"""Bytes of a release's Secret: the API server takes 1 MiB, and the release must grow."""


def everywhere(values: Values) -> dict[str, Values]:
    """The same values for every operator of the umbrella chart."""
    return dict.fromkeys(NAMES, values)


def expected(chart: Path, values: Values | None = None, release: str = "platform") -> set[str]:
    """What a chart makes that is not kept and not for `helm test`, as `Cluster.ours` tells it."""
    others = ("CustomResourceDefinition", "Certificate", "Issuer", "ServiceMonitor", "PrometheusRule")
    made = (obj for obj in render(chart, values, release=release) if obj["kind"] not in others and not is_hook(obj))
    return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in made}


@pytest.mark.parametrize("chart", ["platform", *OPERATORS])
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_each_chart_installs_alone_and_goes_without_a_trace(
    cluster: Cluster, charts: Path, chart: str, values: Values
) -> None:
    given = everywhere(values) if chart == "platform" else values
    cluster.install(charts / chart, given)
    assert cluster.ours() == expected(charts / chart, given)
    assert cluster.release_bytes() < RELEASE_LIMIT
    cluster.helm("uninstall", "platform")
    assert cluster.ours() == set()
    crds = of_kind(render(charts / chart, given), "CustomResourceDefinition")
    assert all(cluster.find("crd", crd["metadata"]["name"]) for crd in crds), "with it everybody's resources would go"
    assert crds


def test_an_upgrade_brings_the_next_crd_and_keeps_the_resources(cluster: Cluster, charts: Path, tmp_path: Path) -> None:
    cluster.install(charts / "platform", everywhere(UNASKED))
    cluster.apply(memcached("cache", size=2))
    before = cluster.get("memcached", "cache")
    shutil.copytree(charts, tmp_path / "next")
    add_to_every_crd(tmp_path / "next")
    cluster.install(tmp_path / "next" / "platform", everywhere(UNASKED))
    columns = cluster.get("crd", MEMCACHEDS)["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns[-1]["name"] == "Added"
    assert cluster.get("memcached", "cache") == before


def add_to_every_crd(charts: Path) -> None:
    """The next version of every CRD: one more printer column."""
    for path in charts.glob("*-operator/files/crds/*.yaml"):
        crd = yaml.safe_load(path.read_text())
        columns = crd["spec"]["versions"][0].setdefault("additionalPrinterColumns", [])
        columns.append({"name": "Added", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
        path.write_text(yaml.safe_dump(crd))
    helm("dependency", "update", charts / "platform")


def test_what_the_operator_wrote_into_the_releases_objects_outlives_an_upgrade(cluster: Cluster, charts: Path) -> None:
    """The caBundle and the certificate are the operator's; no upgrade conflicts with them, takes or resets them."""
    name = "platform-memcached-operator"
    bundle = "Y2VydGlmaWNhdGU="
    cluster.install(charts / "platform")
    manager = ["--server-side", "--field-manager=memcached-operator"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-certificates"}}
    cluster.kubectl("apply", *manager, "-f", "-", stdin=yaml.safe_dump({**secret, "data": {"ca.crt": bundle}}))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (webhook,) = cluster.get(kind, name)["webhooks"]
        mine = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [{"name": webhook["name"], "clientConfig": {"caBundle": bundle}}],
        }
        cluster.kubectl("apply", *manager, "-f", "-", stdin=yaml.safe_dump(mine))
    for values in ({"logLevel": "debug"}, {"replicas": 3, "webhook": {"timeoutSeconds": 9}}):
        cluster.install(charts / "platform", everywhere(values))
        assert cluster.get("secret", f"{name}-certificates")["data"] == {"ca.crt": bundle}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            (webhook,) = cluster.get(kind, name)["webhooks"]
            assert webhook["clientConfig"]["caBundle"] == bundle
    assert webhook["timeoutSeconds"] == 9


def test_a_webhook_that_nobody_answers_refuses_and_goes_with_the_release(cluster: Cluster, charts: Path) -> None:
    cluster.install(charts / "platform")
    with pytest.raises(ClusterError, match="failed calling webhook"):
        cluster.apply(memcached("cache", size=1))
    cluster.helm("uninstall", "platform")
    cluster.apply(memcached("cache", size=1))


def test_uninstalling_with_live_resources_ends_and_takes_nothing_of_theirs(cluster: Cluster, charts: Path) -> None:
    cluster.install(charts / "platform", everywhere(UNASKED))
    cluster.apply(memcached("cache", size=2))
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        wait_until(lambda: cluster.find("deployment", "cache") and cluster.get("memcached", "cache").get("status"))
    finally:
        operator.stop()
    kept = [cluster.get(kind, "cache") for kind in ("memcached", "deployment", "service")]
    started = time.monotonic()
    cluster.helm("uninstall", "platform")
    assert time.monotonic() - started < 20
    assert [cluster.get(kind, "cache") for kind in ("memcached", "deployment", "service")] == kept
    cluster.kubectl("label", "memcached", "cache", "team=shop")
    cluster.install(charts / "platform", everywhere(UNASKED))
    assert cluster.get("memcached", "cache")["metadata"]["uid"] == kept[0]["metadata"]["uid"]


RESOURCES = {
    "memcached": memcached("cache", size=2),
    "etcd": etcd("cache", size=3, version="3.6.16"),
    "redis": redis("cache", replicas=6, version="8.0.2"),
}
"""One of each operator."""


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_that_is_disabled_goes_and_its_resources_stay(cluster: Cluster, charts: Path, name: str) -> None:
    cluster.install(charts / "platform", everywhere(UNASKED))
    resource = RESOURCES[name]
    cluster.apply(resource)
    before = cluster.get(resource["kind"], "cache")
    cluster.install(charts / "platform", everywhere(UNASKED) | {name: {"enabled": False}})
    assert not [each for each in cluster.ours() if f"{name}-operator" in each]
    assert cluster.get(resource["kind"], "cache") == before


def test_nothing_is_installed_where_uninstalling_would_take_data(cluster: Cluster, charts: Path) -> None:
    with pytest.raises(ClusterError, match="would delete every resource of these kinds"):
        cluster.install(charts / "platform", everywhere({"crds": {"keep": False}}))
    assert cluster.ours() == set()


# From the previous release.


def recorded() -> list[list[Obj]]:
    """Resources of the previous release, each with the objects that it made for them."""
    groups: list[list[Obj]] = []
    for obj in yaml.safe_load_all((RELEASED / "memcached-0.1.0.yaml").read_text()):
        if obj["kind"] == "Memcached":
            groups.append([])
        groups[-1].append({**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}})
    return groups


def as_previously(cluster: Cluster) -> list[str]:
    """Make resources and their objects as the previous release's operator did; their names."""
    for resource, *made in recorded():
        cluster.apply(resource)
        name = resource["metadata"]["name"]
        owner = {
            "apiVersion": resource["apiVersion"],
            "kind": resource["kind"],
            "name": name,
            "uid": cluster.get("memcached", name)["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        for obj in made:
            obj["metadata"]["ownerReferences"] = [owner]
        manager = ["--server-side", "--field-manager=memcached-operator"]
        cluster.kubectl("apply", *manager, "--filename", "-", stdin=yaml.safe_dump_all(made))
    return [group[0]["metadata"]["name"] for group in recorded()]


def test_the_upgrade_from_the_previous_release_touches_no_pod(cluster: Cluster, charts: Path) -> None:
    cluster.install(PREVIOUS)
    names = as_previously(cluster)
    resources = {name: cluster.get("memcached", name) for name in names}
    deployments = {name: cluster.get("deployment", name) for name in names}
    cluster.install(charts / "platform")
    for name, before in resources.items():
        now = cluster.get("memcached", name)
        assert (now["metadata"]["uid"], now["metadata"]["generation"]) == (before["metadata"]["uid"], 1)
        assert before["spec"].items() <= now["spec"].items(), "what is more are defaults of new fields"
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        wait_until(lambda: all(observed(cluster, name) for name in names))
    finally:
        operator.stop()
    for name, before in deployments.items():
        now = cluster.get("deployment", name)
        assert now["metadata"]["uid"] == before["metadata"]["uid"]
        assert now["spec"] == before["spec"], "a change would replace the servers"
        assert now["metadata"]["generation"] == before["metadata"]["generation"]
    assert not [asked for asked in operator.wire.writes if asked.path.startswith(DEPLOYMENT.path(NAMESPACE))]


def test_values_given_to_the_previous_release_are_kept(cluster: Cluster, charts: Path) -> None:
    cluster.install(PREVIOUS, {"memcached": {"logLevel": "debug", "workers": 4}})
    cluster.helm("upgrade", "platform", charts / "platform", "--reset-then-reuse-values")
    container = cluster.get("deployment", "platform-memcached-operator")["spec"]["template"]["spec"]["containers"][0]
    assert {"--log-level=debug", "--workers=4", "--leader-elect"} <= set(container["args"])
    assert cluster.find("deployment", "platform-etcd-operator"), "what is new comes along"


def test_a_changed_builder_would_be_noticed(cluster: Cluster, charts: Path) -> None:
    """The test above can fail: one that wants another template writes."""
    cluster.install(charts / "platform", everywhere(UNASKED))
    name, *_ = as_previously(cluster)
    cluster.kubectl("patch", "memcached", name, "--type=merge", "--patch", '{"spec":{"threads":8}}')
    before = cluster.get("deployment", name)
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        wait_until(lambda: cluster.get("deployment", name)["spec"] != before["spec"])
    finally:
        operator.stop()
    assert [asked for asked in operator.wire.writes if asked.path.startswith(DEPLOYMENT.path(NAMESPACE))]


def test_the_upgrade_can_be_taken_back(cluster: Cluster, charts: Path) -> None:
    cluster.install(PREVIOUS)
    cluster.apply(memcached("cache", size=2))
    before = cluster.get("memcached", "cache")
    cluster.install(charts / "platform")
    cluster.helm("rollback", "platform", "1")
    assert cluster.ours() == expected(PREVIOUS)
    assert cluster.get("memcached", "cache") == before
    cluster.install(charts / "platform")
    assert cluster.ours() == expected(charts / "platform")


def observed(cluster: Cluster, name: str) -> bool:
    resource = cluster.get("memcached", name)
    return bool(resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"])


def wait_until(holds: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
