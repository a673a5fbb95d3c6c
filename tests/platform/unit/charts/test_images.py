"""Images of the charts: refused if unset, mapped by global.imageRegistry, filled in by a release."""

from __future__ import annotations

import base64
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from charts.values.metadata import with_release
from operators import installed
from tests.support import charts as rendering
from tests.support.charts import IMAGES, NAMES, OPERATORS, Obj, Values, helm, manifest, only, pods, render
from tools.local.errors import ClusterError
from tools.local.release import CHARTS

DIGEST = "sha256:" + 64 * "a"
RELEASED = {name: f"ghcr.example.com/acme/{name}-operator@{DIGEST}" for name in NAMES}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The charts of a source checkout."""
    return rendering.copy_to(tmp_path_factory.mktemp("source"), images=None)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The charts of a release with images by digest."""
    return rendering.copy_to(tmp_path_factory.mktemp("released"), images=RELEASED)


def images(objects: list[Obj]) -> set[str]:
    """Return the images of the operators' pods and of their test pods."""
    return {pod["spec"]["containers"][0]["image"] for pod in pods(objects)}


def flag(objects: list[Obj], name: str) -> str:
    """Return the value of a flag of the operator."""
    arguments = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    (found,) = (each.partition("=")[2] for each in arguments if each.startswith(f"--{name}="))
    return str(found)


@pytest.mark.parametrize("name", NAMES)
def test_chart_of_a_source_checkout_is_refused_without_an_image(source: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=rf"image\.repository of {name}-operator is empty.*Set image\.repository"):
        manifest(source / f"{name}-operator")
    others = {other: {"enabled": other == name} for other in NAMES}
    with pytest.raises(ClusterError, match=rf"Set {name}\.image\.repository to an image that the nodes can pull"):
        manifest(source / "platform", others)


@pytest.mark.parametrize("name", NAMES)
def test_chart_of_a_source_checkout_renders_with_a_given_image(source: Path, name: str) -> None:
    given = {"image": {"repository": f"localhost:5000/{name}", "tag": "dev"}}
    assert images(render(source / f"{name}-operator", given)) == {f"localhost:5000/{name}:dev"}


def test_no_default_names_an_image_of_an_operator() -> None:
    for chart in OPERATORS:
        values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
        assert values["image"] == {"repository": "", "tag": "", "digest": "", "pullPolicy": "IfNotPresent"}


@pytest.mark.parametrize("name", NAMES)
def test_operands_are_upstreams_images_by_default(released: Path, name: str) -> None:
    (operator,) = (each for each in installed() if each.name == name)
    assert flag(render(released / f"{name}-operator"), "image-repository") == operator.image_repository


@pytest.mark.parametrize(
    ("registry", "name", "mapped"),
    [
        ("", "redis", "redis"),
        ("mirror.example.com", "redis", "mirror.example.com/library/redis"),
        ("mirror.example.com", "docker.io/redis", "mirror.example.com/library/redis"),
        ("mirror.example.com", "valkey/valkey", "mirror.example.com/valkey/valkey"),
        ("mirror.example.com/hub/", "valkey/valkey", "mirror.example.com/hub/valkey/valkey"),
        ("mirror.example.com/hub", "gcr.io/etcd-development/etcd", "mirror.example.com/hub/etcd-development/etcd"),
        ("mirror.example.com", "registry.example.com/redis", "mirror.example.com/redis"),
        ("mirror.example.com:5000", "localhost/redis", "mirror.example.com:5000/redis"),
        ("mirror.example.com", "localhost:5000/a/redis", "mirror.example.com/a/redis"),
        ("mirror.example.com/hub", "mirror.example.com/hub/redis", "mirror.example.com/hub/redis"),
    ],
)
def test_global_registry_replaces_the_host_of_every_image(
    released: Path, registry: str, name: str, mapped: str
) -> None:
    given = {"global": {"imageRegistry": registry}, "operandImageRepository": name, "agentImage": f"{name}:1"}
    objects = render(released / "memcached-operator", given)
    assert flag(objects, "image-repository") == mapped
    assert flag(objects, "agent-image") == f"{mapped}:1"
    host = registry.rstrip("/") or "ghcr.example.com"
    assert images(objects) == {f"{host}/acme/memcached-operator@{DIGEST}"}


def test_global_registry_of_the_platform_applies_to_every_operator(released: Path) -> None:
    given: Values = {"global": {"imageRegistry": "mirror.example.com:5000"}}
    found = images(render(released / "platform", given))
    assert found == {f"mirror.example.com:5000/acme/{name}-operator@{DIGEST}" for name in NAMES}
    assert "gcr.io" not in manifest(released / "platform", given)


@pytest.mark.parametrize("registry", ["https://mirror.example.com", "mirror.example.com/hub:tag", "a b", 5])
def test_global_registry_that_is_no_registry_is_refused(released: Path, registry: object) -> None:
    with pytest.raises(ClusterError, match="/global/imageRegistry"):
        manifest(released / "redis-operator", {"global": {"imageRegistry": registry}})


def test_release_names_its_images_by_digest(released: Path) -> None:
    assert images(render(released / "platform")) == set(RELEASED.values())
    readme = (released / "redis-operator/README.md").read_text()
    assert "| `image.repository` | `ghcr.example.com/acme/redis-operator` |" in readme


def test_release_writes_version_and_artifact_hub_metadata(tmp_path: Path) -> None:
    charts = rendering.copy_to(tmp_path)
    for chart in ("operator-library", *OPERATORS, "platform"):
        with_release(charts / chart, "1.2.0-rc.1", RELEASED, ["Added: a value"], home="https://platform.example.com")
    for chart in (*OPERATORS, "platform"):
        metadata = yaml.safe_load((charts / chart / "Chart.yaml").read_text())
        assert (metadata["version"], metadata["appVersion"]) == ("1.2.0-rc.1", "1.2.0-rc.1")
        assert {each["version"] for each in metadata["dependencies"]} == {"1.2.0-rc.1"}
        assert metadata["home"] == "https://platform.example.com"
        annotations = metadata["annotations"]
        assert yaml.safe_load(annotations["artifacthub.io/changes"]) == ["Added: a value"]
        assert annotations["artifacthub.io/prerelease"] == "true"
        named = {each["image"] for each in yaml.safe_load(annotations["artifacthub.io/images"])}
        assert named == (set(RELEASED.values()) if chart == "platform" else {RELEASED[chart.removesuffix("-operator")]})
    redis = yaml.safe_load((charts / "redis-operator/Chart.yaml").read_text())["annotations"]
    (crd,) = yaml.safe_load(redis["artifacthub.io/crds"])
    assert (crd["kind"], crd["version"]) == ("RedisCluster", "v1alpha1")
    assert redis["platform/operator"] == "redis"
    helm("dependency", "update", charts / "platform")
    helm("lint", "--strict", charts / "platform")


@pytest.mark.parametrize("chart", [*OPERATORS, "platform", "operator-library"])
def test_charts_have_a_license_and_a_category(chart: str) -> None:
    annotations = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())["annotations"]
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    assert annotations["artifacthub.io/category"] == "database"
    assert ("artifacthub.io/operatorCapabilities" in annotations) == (chart in OPERATORS)


@pytest.mark.parametrize("chart", [*OPERATORS, "platform"])
def test_charts_contain_their_icon(chart: str, tmp_path: Path) -> None:
    """A picture within the chart needs no server; Artifact Hub and browsers accept the URL."""
    icon = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())["icon"]
    kind, _, content = icon.partition(";base64,")
    assert kind == "data:image/svg+xml"
    assert ElementTree.fromstring(base64.b64decode(content)).tag == "{http://www.w3.org/2000/svg}svg"
    copy = rendering.copy_to(tmp_path) / chart
    helm("dependency", "update", copy)
    assert "[INFO] Chart.yaml" not in helm("lint", copy), "nothing is recommended in addition"


def test_a_tag_is_kept_only_without_a_digest(tmp_path: Path) -> None:
    charts = rendering.copy_to(tmp_path)
    for reference, image in (
        ("localhost:5000/redis-operator:dev", "localhost:5000/redis-operator:dev"),
        (f"localhost:5000/redis-operator:dev@{DIGEST}", f"localhost:5000/redis-operator@{DIGEST}"),
    ):
        with_release(charts / "redis-operator", "1.2.0", {**IMAGES, "redis": reference})
        assert images(yaml_objects(charts / "redis-operator")) == {image}


def yaml_objects(chart: Path) -> list[Obj]:
    """Render a chart that changes between two renderings."""
    return [obj for obj in yaml.safe_load_all(manifest(chart)) if obj]
