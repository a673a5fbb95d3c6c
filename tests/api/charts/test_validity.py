"""What the charts render is valid: by the API server, strictly; by kubeconform; and under restricted Pod Security."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import REPOSITORY
from tests.api.charts import schemas
from tests.api.charts.cluster import Cluster
from tests.support.charts import COMBINATIONS, NAMESPACE, Obj, Values, is_hook, pods, render

SAMPLES = sorted((REPOSITORY / "samples").rglob("*.yaml"))

RENDERING = {name: values for name, values in COMBINATIONS.items() if any(part["enabled"] for part in values.values())}


@pytest.fixture(scope="module")
def served(bare: Cluster, charts: Path) -> Cluster:
    """With our CRDs, so that resources can be judged."""
    bare.apply(*(obj for obj in render(charts / "platform") if obj["kind"] == "CustomResourceDefinition"))
    bare.await_established()
    return bare


@pytest.fixture(scope="module")
def known(served: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Schemas of all kinds."""
    directory = tmp_path_factory.mktemp("schemas")
    schemas.write(json.loads(served.kubectl("get", "--raw", "/openapi/v2")), directory)
    return directory


def kubeconform(objects: list[Obj], known: Path, directory: Path) -> None:
    manifest = directory / "manifest.yaml"
    manifest.write_text(yaml.safe_dump_all(objects))
    schemas.validate(manifest, known)


@pytest.mark.parametrize("values", RENDERING.values(), ids=RENDERING)
def test_the_api_server_takes_every_rendering_without_a_warning(served: Cluster, charts: Path, values: Values) -> None:
    objects = render(charts / "platform", values)
    served.dry_run(*objects, *(pod for pod in pods(objects) if not is_hook(pod)))


@pytest.mark.parametrize("values", RENDERING.values(), ids=RENDERING)
def test_kubeconform_takes_every_rendering(known: Path, charts: Path, tmp_path: Path, values: Values) -> None:
    kubeconform(render(charts / "platform", values), known, tmp_path)


def test_what_is_not_restricted_would_be_told(served: Cluster, charts: Path) -> None:
    """The checks above can fail: a container that may become root, in the Deployment and in the test's pod."""
    for pod in pods(render(charts / "platform")):
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(ClusterError, match="allowPrivilegeEscalation"):
            served.dry_run(pod)


@pytest.mark.parametrize("kind", ["Deployment", "ServiceMonitor", "PrometheusRule", "Certificate", "NetworkPolicy"])
def test_what_is_misspelt_would_be_told(served: Cluster, known: Path, charts: Path, tmp_path: Path, kind: str) -> None:
    objects = render(charts / "platform", COMBINATIONS["everything+memcached"])
    obj = next(obj for obj in objects if obj["kind"] == kind and not is_hook(obj))
    obj["spec"]["tpyo"] = 1
    with pytest.raises(ClusterError, match="tpyo"):
        served.dry_run(obj)
    with pytest.raises(ClusterError, match="tpyo"):
        kubeconform([obj], known, tmp_path)


def test_a_kind_that_nobody_knows_would_be_told(known: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="could not find schema"):
        kubeconform([{"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "a"}}], known, tmp_path)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_sample_is_valid(served: Cluster, known: Path, tmp_path: Path, sample: Path) -> None:
    objects = [obj for obj in yaml.safe_load_all(sample.read_text()) if obj]
    served.dry_run(*({**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}} for obj in objects))
    kubeconform(objects, known, tmp_path)


def test_the_operator_runs_as_nobody_on_a_file_system_to_read_only(charts: Path) -> None:
    for pod in pods(render(charts / "platform")):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
