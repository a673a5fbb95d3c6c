"""Rendered charts are valid for the API server (strict), kubeconform and the restricted Pod Security Standard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.platform.api.charts import schemas
from tests.platform.api.charts.cluster import Cluster
from tests.support.charts import COMBINATIONS, NAMESPACE, Obj, Values, is_hook, pods, render
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

pytestmark = pytest.mark.nightly

SAMPLES = sorted((REPOSITORY / "samples").rglob("*.yaml"))

RENDERING = {name: values for name, values in COMBINATIONS.items() if any(part["enabled"] for part in values.values())}


@pytest.fixture(scope="module")
def served(bare: Cluster, charts: Path) -> Cluster:
    """The API server with the platform's CRDs, so that it can validate resources."""
    bare.apply(*(obj for obj in render(charts / "platform") if obj["kind"] == "CustomResourceDefinition"))
    bare.await_established()
    return bare


@pytest.fixture(scope="module")
def known(served: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the schemas of all kinds."""
    directory = tmp_path_factory.mktemp("schemas")
    schemas.write(json.loads(served.kubectl("get", "--raw", "/openapi/v2")), directory)
    return directory


def kubeconform(objects: list[Obj], known: Path, directory: Path) -> None:
    manifest = directory / "manifest.yaml"
    manifest.write_text(yaml.safe_dump_all(objects))
    schemas.validate(manifest, known)


@pytest.mark.parametrize("values", RENDERING.values(), ids=RENDERING)
def test_api_server_accepts_rendered_charts_without_warnings(served: Cluster, charts: Path, values: Values) -> None:
    """Without the host network, which the restricted standard forbids."""
    objects = render(charts / "platform", {name: {**part, "hostNetwork": False} for name, part in values.items()})
    served.dry_run(*objects, *(pod for pod in pods(objects) if not is_hook(pod)))


@pytest.mark.parametrize("values", RENDERING.values(), ids=RENDERING)
def test_kubeconform_accepts_rendered_charts(known: Path, charts: Path, tmp_path: Path, values: Values) -> None:
    kubeconform(render(charts / "platform", values), known, tmp_path)


def test_api_server_rejects_pods_that_violate_pod_security(served: Cluster, charts: Path) -> None:
    """The checks above can fail: privilege escalation in the Deployment's or the test's pod is rejected."""
    for pod in pods(render(charts / "platform")):
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(ClusterError, match="allowPrivilegeEscalation"):
            served.dry_run(pod)


@pytest.mark.parametrize("kind", ["Deployment", "ServiceMonitor", "PrometheusRule", "Certificate", "NetworkPolicy"])
def test_unknown_fields_are_rejected(served: Cluster, known: Path, charts: Path, tmp_path: Path, kind: str) -> None:
    objects = render(charts / "platform", COMBINATIONS["everything+memcached"])
    obj = next(obj for obj in objects if obj["kind"] == kind and not is_hook(obj))
    obj["spec"]["tpyo"] = 1
    with pytest.raises(ClusterError, match="tpyo"):
        served.dry_run(obj)
    with pytest.raises(ClusterError, match="tpyo"):
        kubeconform([obj], known, tmp_path)


def test_unknown_kinds_are_rejected(known: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="could not find schema"):
        kubeconform([{"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "a"}}], known, tmp_path)


@pytest.mark.commit
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_samples_are_valid(served: Cluster, known: Path, tmp_path: Path, sample: Path) -> None:
    objects = [obj for obj in yaml.safe_load_all(sample.read_text()) if obj]
    served.dry_run(*({**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}} for obj in objects))
    kubeconform(objects, known, tmp_path)


def test_operator_runs_as_non_root_with_a_read_only_file_system(charts: Path) -> None:
    for pod in pods(render(charts / "platform")):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
