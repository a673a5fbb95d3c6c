from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import REPOSITORY
from shared.options import Options, parse_options
from tests.charts import CHARTS, OPERATORS, Obj, Values, helm, manifest, only, render

NAMES = [name.removesuffix("-operator") for name in OPERATORS]
COMBINATIONS = [
    dict(zip(NAMES, ({"enabled": on} for on in choice), strict=True))
    for choice in itertools.product((True, False), repeat=len(NAMES))
]
"""Values of the umbrella chart: each operator in or out."""

RIGHTS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def shown(values: Values) -> str:
    return "+".join(name for name, value in values.items() if value["enabled"]) or "none"


def options_of(objects: list[Obj]) -> Options:
    """How the operator would run, by its own reading of the flags it is given."""
    container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return parse_options("not-the-default", "not-the-default", container["args"], {})


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def test_no_chart_has_anything_for_lint_to_say(charts: Path) -> None:
    helm("lint", "--strict", *sorted(charts.iterdir()))


@pytest.mark.parametrize("values", COMBINATIONS, ids=shown)
def test_the_umbrella_brings_exactly_the_operators_enabled(charts: Path, values: Values) -> None:
    objects = render(charts / "platform", values)
    deployed = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Deployment"}
    assert deployed == {f"platform-{name}-operator" for name, value in values.items() if value["enabled"]}
    assert bool(objects) == bool(deployed)


@pytest.mark.parametrize("values", COMBINATIONS, ids=shown)
def test_rendering_twice_gives_the_same_bytes(charts: Path, values: Values) -> None:
    assert manifest(charts / "platform", values) == manifest(charts / "platform", values)


def test_the_umbrella_and_a_chart_alone_agree(charts: Path) -> None:
    for name in NAMES:
        enabled = {other: {"enabled": other == name} for other in NAMES}
        assert render(charts / "platform", enabled) == render(charts / f"{name}-operator")


def test_global_values_pass_the_closed_schemas(charts: Path) -> None:
    assert render(charts / "platform", {"global": {"team": "storage"}}) == render(charts / "platform")


def test_no_right_is_a_wildcard(charts: Path) -> None:
    roles = [obj for obj in render(charts / "platform") if obj["kind"] in RIGHTS and "rules" in obj]
    assert roles
    for rule in itertools.chain.from_iterable(role["rules"] for role in roles):
        assert "*" not in "".join([*rule["apiGroups"], *rule["resources"], *rule["verbs"]]), rule
        assert "secrets" not in rule["resources"], rule


def test_listed_namespaces_bound_the_operators_rights(operator_chart: Path) -> None:
    everywhere, bounded = render(operator_chart), render(operator_chart, {"watchNamespaces": ["shop", "search"]})
    assert [obj["kind"] for obj in bounded if obj["kind"].startswith("ClusterRole") and not for_people(obj)] == []
    for kind in ("Role", "RoleBinding"):
        assert [obj["metadata"]["namespace"] for obj in bounded if obj["kind"] == kind] == ["shop", "search"]
    (full,) = (obj for obj in everywhere if obj["kind"] == "ClusterRole" and not for_people(obj))
    assert all(obj["rules"] == full["rules"] for obj in bounded if obj["kind"] == "Role")
    assert options_of(bounded).namespaces == ("search", "shop")


def for_people(obj: Obj) -> bool:
    """Whether it is a role that Kubernetes' own roles for people aggregate."""
    return any("aggregate-to-" in label for label in obj["metadata"]["labels"])


def test_an_operator_can_come_without_rights_or_account(operator_chart: Path) -> None:
    objects = render(operator_chart, {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "theirs"}})
    assert not [obj for obj in objects if obj["kind"] in RIGHTS | {"ServiceAccount"}]
    assert only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"memcache": {"enabled": True}}, "memcache"),
        ({"memcached": {"enabled": "yes"}}, "/memcached/enabled"),
        ({"memcached": {"logLevl": "debug"}}, "logLevl"),
        ({"memcached": {"logLevel": "loud"}}, "/logLevel"),
        ({"memcached": {"replicas": 2}}, "replicas"),
        ({"memcached": {"image": {"tagg": "1"}}}, "tagg"),
        ({"memcached": {"image": {"digest": "abc"}}}, "/image/digest"),
        ({"memcached": {"watchNamespaces": "shop"}}, "/watchNamespaces"),
        ({"memcached": {"watchNamespaces": ["Shop"]}}, "/watchNamespaces/0"),
        ({"memcached": {"metrics": {"port": 8081}}}, "/metrics/port"),
        ({"memcached": {"workers": 0}}, "/workers"),
        ({"memcached": {"resources": {"limit": {}}}}, "limit"),
        ({"memcached": {"extraEnv": [{"nme": "A"}]}}, "nme"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(charts: Path, values: Values, complaint: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(complaint)):
        render(charts / "platform", values)


def test_the_crds_are_the_generated_ones_and_kept(operator_chart: Path) -> None:
    generated = [
        yaml.safe_load(path.read_text()) for path in sorted((CHARTS / operator_chart.name / "files/crds").iterdir())
    ]
    rendered = [obj for obj in render(operator_chart) if obj["kind"] == "CustomResourceDefinition"]
    assert [obj["spec"] for obj in rendered] == [obj["spec"] for obj in generated]
    assert [obj["metadata"]["name"] for obj in rendered] == [obj["metadata"]["name"] for obj in generated]
    assert {obj["metadata"]["annotations"]["helm.sh/resource-policy"] for obj in rendered} == {"keep"}


def test_crds_can_be_left_to_others_or_to_uninstall(operator_chart: Path) -> None:
    assert "CustomResourceDefinition" not in manifest(operator_chart, {"crds": {"enabled": False}})
    assert "helm.sh/resource-policy" not in manifest(operator_chart, {"crds": {"keep": False}})


def test_values_reach_the_operator(operator_chart: Path) -> None:
    given = {
        "resync": 1_000_000,
        "workers": 4,
        "logLevel": "debug",
        "logFormat": "text",
        "operandImageRepository": "registry:5000/library/cache",
        "metrics": {"port": 9090},
    }
    options = options_of(render(operator_chart, given))
    assert (options.resync, options.workers) == (1_000_000, 4)
    assert (options.log_level, options.log_format) == ("debug", "text")
    assert options.image_repository == "registry:5000/library/cache"
    assert (options.metrics_address, options.probe_address) == (":9090", ":8081")
    assert options.namespaces == ()
    assert not options.install_crds, "the chart brings the CRDs"


def test_metrics_can_be_off(operator_chart: Path) -> None:
    objects = render(operator_chart, {"metrics": {"enabled": False}})
    assert options_of(objects).metrics_address == "0"
    assert "Service" not in {obj["kind"] for obj in objects}


@pytest.mark.parametrize("values", [{}, {"nameOverride": "mc"}, {"fullnameOverride": "mine"}], ids=str)
def test_the_field_manager_is_the_same_under_every_name(operator_chart: Path, values: Values) -> None:
    options = options_of(render(operator_chart, values, release="green"))
    assert options.operator_name == operator_chart.name


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({"tag": "dev"}, "platform/{}:dev"),
        ({}, "platform/{}:0.1.0"),
        ({"tag": "dev", "digest": "sha256:" + 64 * "a"}, "platform/{}@sha256:" + 64 * "a"),
    ],
    ids=["tag", "default", "digest"],
)
def test_a_digest_wins_over_a_tag_and_a_tag_over_the_version(operator_chart: Path, image: Obj, reference: str) -> None:
    pod = only(render(operator_chart, {"image": image}), "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == reference.format(operator_chart.name)


def test_two_releases_share_neither_names_nor_pods(operator_chart: Path) -> None:
    blue, green = (render(operator_chart, release=release) for release in ("blue", "green"))
    names = [{(obj["kind"], obj["metadata"]["name"]) for obj in objects} for objects in (blue, green)]
    assert {kind for kind, _ in names[0] & names[1]} == {"CustomResourceDefinition"}
    selectors = [only(objects, "Deployment")["spec"]["selector"]["matchLabels"] for objects in (blue, green)]
    assert selectors[0] != selectors[1]


def test_names_that_yaml_would_take_for_something_else_stay_names(operator_chart: Path) -> None:
    values = {"fullnameOverride": "yes", "priorityClassName": "on", "watchNamespaces": ["y", "1"]}
    for obj in render(operator_chart, values, release="1", namespace="0"):
        metadata = obj["metadata"]
        assert all(isinstance(label, str) for label in metadata["labels"].values()), obj["kind"]
        assert isinstance(metadata["name"], str), obj["kind"]
        assert metadata.get("namespace") in (None, "0", "1", "y"), obj["kind"]
        for subject in obj.get("subjects", ()):
            assert (subject["namespace"], subject["name"]) == ("0", "yes")
        if obj["kind"] == "Deployment":
            pod = obj["spec"]["template"]["spec"]
            assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("yes", "on")


def test_every_object_is_labelled_and_every_selector_selects_the_pods(operator_chart: Path) -> None:
    theirs = {"app.kubernetes.io/instance": "another", "team": "storage"}
    objects = render(operator_chart, {"podLabels": theirs})
    for obj in objects:
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "platform"
        assert labels["app.kubernetes.io/instance"] == "platform", obj["kind"]
    deployment = only(objects, "Deployment")["spec"]
    pod_labels = deployment["template"]["metadata"]["labels"]
    assert pod_labels["team"] == "storage"
    for selector in (deployment["selector"]["matchLabels"], only(objects, "Service")["spec"]["selector"]):
        assert selector.items() <= pod_labels.items()


@pytest.mark.parametrize("chart", [*OPERATORS, "platform"])
def test_the_readme_has_every_value_and_its_default(chart: str) -> None:
    table = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", (CHARTS / chart / "README.md").read_text(), re.MULTILINE)
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    assert {key: yaml.safe_load(default) for key, default in table} == dict(leaves(values))


def leaves(values: Obj, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def test_all_charts_bear_the_projects_version() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    for path in CHARTS.glob("*/Chart.yaml"):
        chart = yaml.safe_load(path.read_text())
        versions = {chart["version"], chart.get("appVersion", version)}
        assert versions | {each["version"] for each in chart.get("dependencies", ())} == {version}, path
