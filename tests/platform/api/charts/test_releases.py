"""Releases on a real API server: install, upgrade, roll back and uninstall while resources are preserved."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.kubernetes.kinds import DEPLOYMENT
from tests.platform.api.charts.cluster import IGNORE_WEBHOOK, MEMCACHEDS, Cluster, etcd, memcached, redis
from tests.platform.api.support.running import Operator
from tests.support.charts import EVERYTHING, NAMES, NAMESPACE, OPERATORS, Obj, Values, helm, is_hook, of_kind, render
from tests.support.memcached.released import RELEASED_STATUS
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

pytestmark = pytest.mark.nightly

RELEASED = REPOSITORY / "tests" / "released"
PREVIOUS = RELEASED / "platform-0.1.0.tgz"

RELEASE_LIMIT = 700_000
"""Limit for a release's Secret in bytes, well below the API server's limit of 1 MiB."""


def everywhere(values: Values) -> dict[str, Values]:
    """Return the same values for every operator of the umbrella chart."""
    return dict.fromkeys(NAMES, values)


def expected(chart: Path, values: Values | None = None, release: str = "platform") -> set[str]:
    """Return the objects of a chart that `helm uninstall` deletes, in the form of `Cluster.installed`."""
    others = ("CustomResourceDefinition", "Certificate", "Issuer", "ServiceMonitor", "PrometheusRule")
    made = (obj for obj in render(chart, values, release=release) if obj["kind"] not in others and not is_hook(obj))
    return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in made}


@pytest.mark.parametrize("chart", ["platform", *OPERATORS])
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_charts_install_and_uninstall_completely(cluster: Cluster, charts: Path, chart: str, values: Values) -> None:
    given = everywhere(values) if chart == "platform" else values
    cluster.install(charts / chart, given)
    assert cluster.installed() == expected(charts / chart, given)
    assert cluster.release_bytes() < RELEASE_LIMIT
    cluster.helm("uninstall", "platform")
    assert cluster.installed() == set()
    crds = of_kind(render(charts / chart, given), "CustomResourceDefinition")
    assert all(cluster.find("crd", crd["metadata"]["name"]) for crd in crds), (
        "deleting a CRD deletes all of its resources"
    )
    assert crds


def test_upgrade_updates_crds_and_keeps_resources(cluster: Cluster, charts: Path, tmp_path: Path) -> None:
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK))
    cluster.apply(memcached("cache", size=2))
    before = cluster.get("memcached", "cache")
    shutil.copytree(charts, tmp_path / "next")
    add_to_every_crd(tmp_path / "next")
    cluster.install(tmp_path / "next" / "platform", everywhere(IGNORE_WEBHOOK))
    columns = cluster.get("crd", MEMCACHEDS)["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns[-1]["name"] == "Added"
    assert cluster.get("memcached", "cache") == before


def add_to_every_crd(charts: Path) -> None:
    """Simulate a new version of every CRD by adding a printer column."""
    for path in charts.glob("*-operator/files/crds/*.yaml"):
        crd = yaml.safe_load(path.read_text())
        columns = crd["spec"]["versions"][0].setdefault("additionalPrinterColumns", [])
        columns.append({"name": "Added", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
        path.write_text(yaml.safe_dump(crd))
    helm("dependency", "update", charts / "platform")


def test_upgrade_keeps_ca_bundle_and_certificate_of_the_operator(cluster: Cluster, charts: Path) -> None:
    """The operator owns these fields; an upgrade neither conflicts with them nor resets them."""
    name = "platform-memcached-operator"
    bundle = "Y2VydGlmaWNhdGU="
    cluster.install(charts / "platform")
    manager = ["--server-side", "--field-manager=memcached-operator"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-certificates"}}
    cluster.kubectl("apply", *manager, "-f", "-", stdin=yaml.safe_dump({**secret, "data": {"ca.crt": bundle}}))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (webhook,) = cluster.get(kind, name)["webhooks"]
        patch = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [{"name": webhook["name"], "clientConfig": {"caBundle": bundle}}],
        }
        cluster.kubectl("apply", *manager, "-f", "-", stdin=yaml.safe_dump(patch))
    for values in ({"logLevel": "debug"}, {"replicas": 3, "webhook": {"timeoutSeconds": 9}}):
        cluster.install(charts / "platform", everywhere(values))
        assert cluster.get("secret", f"{name}-certificates")["data"] == {"ca.crt": bundle}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            (webhook,) = cluster.get(kind, name)["webhooks"]
            assert webhook["clientConfig"]["caBundle"] == bundle
    assert webhook["timeoutSeconds"] == 9


def test_unserved_webhook_rejects_changes_until_the_release_is_uninstalled(cluster: Cluster, charts: Path) -> None:
    cluster.install(charts / "platform")
    with pytest.raises(ClusterError, match="failed calling webhook"):
        cluster.apply(memcached("cache", size=1))
    cluster.helm("uninstall", "platform")
    cluster.apply(memcached("cache", size=1))


def test_uninstall_with_existing_resources_completes_and_keeps_their_objects(cluster: Cluster, charts: Path) -> None:
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK))
    cluster.apply(memcached("cache", size=2))
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        wait_until(lambda: cluster.find("statefulset", "cache") and cluster.get("memcached", "cache").get("status"))
    finally:
        operator.stop()
    kept = [cluster.get(kind, "cache") for kind in ("memcached", "statefulset", "service")]
    started = time.monotonic()
    cluster.helm("uninstall", "platform")
    assert time.monotonic() - started < 20
    assert [cluster.get(kind, "cache") for kind in ("memcached", "statefulset", "service")] == kept
    cluster.kubectl("label", "memcached", "cache", "team=shop")
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK))
    assert cluster.get("memcached", "cache")["metadata"]["uid"] == kept[0]["metadata"]["uid"]


RESOURCES = {
    "memcached": memcached("cache", size=2),
    "etcd": etcd("cache", size=3, version="3.6.16"),
    "redis": redis("cache", replicas=6, version="8.0.2"),
}
"""One resource of each operator."""


@pytest.mark.parametrize("name", NAMES)
def test_disabled_operator_is_removed_and_its_resources_stay(cluster: Cluster, charts: Path, name: str) -> None:
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK))
    resource = RESOURCES[name]
    cluster.apply(resource)
    before = cluster.get(resource["kind"], "cache")
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK) | {name: {"enabled": False}})
    assert not [each for each in cluster.installed() if f"{name}-operator" in each]
    assert cluster.get(resource["kind"], "cache") == before


def test_crds_keep_false_is_rejected_before_anything_is_installed(cluster: Cluster, charts: Path) -> None:
    with pytest.raises(ClusterError, match="would delete all resources of these kinds"):
        cluster.install(charts / "platform", everywhere({"crds": {"keep": False}}))
    assert cluster.installed() == set()


# From the previous release.


def recorded() -> list[list[Obj]]:
    """Return recorded resources of the previous release, each with the objects created for it."""
    groups: list[list[Obj]] = []
    for obj in yaml.safe_load_all((RELEASED / "memcached-0.1.0.yaml").read_text()):
        if obj["kind"] == "Memcached":
            groups.append([])
        groups[-1].append({**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}})
    return groups


def as_previously(cluster: Cluster) -> list[str]:
    """Create resources and objects as the operator of the previous release did; return the resources' names."""
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


def test_upgrade_from_the_previous_release_changes_no_pods(cluster: Cluster, charts: Path) -> None:
    cluster.install(PREVIOUS)
    names = as_previously(cluster)
    resources = {name: cluster.get("memcached", name) for name in names}
    deployments = {name: cluster.get("deployment", name) for name in names}
    cluster.install(charts / "platform")
    for name, before in resources.items():
        now = cluster.get("memcached", name)
        assert (now["metadata"]["uid"], now["metadata"]["generation"]) == (before["metadata"]["uid"], 1)
        assert before["spec"].items() <= now["spec"].items(), "only defaults of new fields may be added"
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        wait_until(lambda: all(observed(cluster, name) for name in names))
    finally:
        operator.stop()
    for name, before in deployments.items():
        now = cluster.get("deployment", name)
        assert now["metadata"]["uid"] == before["metadata"]["uid"]
        pause = {"minReadySeconds": 300, "progressDeadlineSeconds": 900}  # of the next change
        assert now["spec"] == before["spec"] | pause, "another change would restart the servers"
    writes = Counter(write.path for write in operator.wire.writes if write.path.startswith(DEPLOYMENT.path(NAMESPACE)))
    assert set(writes.values()) <= {1}, "each is applied once, to record the digest of what was applied"


def test_upgrade_keeps_the_kind_of_the_workload(cluster: Cluster, charts: Path) -> None:
    """The previous release made Deployments, one of which was deleted; a new resource gets a StatefulSet."""
    cluster.install(PREVIOUS)
    kept, lost, *_ = as_previously(cluster)
    status = json.dumps({"status": RELEASED_STATUS})
    cluster.kubectl("patch", "memcached", lost, "--subresource=status", "--type=merge", "--patch", status)
    cluster.kubectl("delete", "deployment", lost)
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK))
    cluster.apply(memcached("new", size=1))
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        for name, kind in ((kept, "Deployment"), (lost, "Deployment"), ("new", "StatefulSet")):
            wait_until(lambda name=name: cluster.get("memcached", name).get("status", {}).get("workload"))  # type: ignore[misc]
            assert cluster.get("memcached", name)["status"]["workload"] == kind
            assert [of for of in ("Deployment", "StatefulSet") if cluster.find(of, name)] == [kind]
    finally:
        operator.stop()


def test_upgrade_keeps_the_values_of_the_previous_release(cluster: Cluster, charts: Path) -> None:
    cluster.install(PREVIOUS, {"memcached": {"logLevel": "debug", "workers": 4}})
    cluster.helm("upgrade", "platform", charts / "platform", "--reset-then-reuse-values")
    container = cluster.get("deployment", "platform-memcached-operator")["spec"]["template"]["spec"]["containers"][0]
    assert {"--log-level=debug", "--workers=4", "--leader-elect"} <= set(container["args"])
    assert cluster.find("deployment", "platform-etcd-operator"), "new operators are installed"


def test_changed_spec_is_written_to_the_recorded_deployment(cluster: Cluster, charts: Path) -> None:
    """The check for unchanged pods can fail: a different desired pod template is written."""
    cluster.install(charts / "platform", everywhere(IGNORE_WEBHOOK))
    name, *_ = as_previously(cluster)
    cluster.kubectl("patch", "memcached", name, "--type=merge", "--patch", '{"spec":{"threads":8}}')
    before = cluster.get("deployment", name)
    operator = Operator(cluster.kubeconfig, NAMESPACE)
    operator.start()
    try:
        wait_until(lambda: cluster.get("deployment", name)["spec"] != before["spec"])
    finally:
        operator.stop()
    assert [write for write in operator.wire.writes if write.path.startswith(DEPLOYMENT.path(NAMESPACE))]


def test_upgrade_can_be_rolled_back(cluster: Cluster, charts: Path) -> None:
    cluster.install(PREVIOUS)
    cluster.apply(memcached("cache", size=2))
    before = cluster.get("memcached", "cache")
    cluster.install(charts / "platform")
    cluster.helm("rollback", "platform", "1")
    assert cluster.installed() == expected(PREVIOUS)
    assert cluster.get("memcached", "cache") == before
    cluster.install(charts / "platform")
    assert cluster.installed() == expected(charts / "platform")


def observed(cluster: Cluster, name: str) -> bool:
    resource = cluster.get("memcached", name)
    return bool(resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"])


def wait_until(holds: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
