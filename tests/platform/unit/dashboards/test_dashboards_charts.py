"""Dashboards in the charts."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from dashboards.catalogue import DASHBOARDS
from tests.support.charts import CHOICES, EVERYTHING, NAMES, NAMESPACE, Obj, Values, helm, of_kind, render
from tools.local.paths import REPOSITORY

ON: Obj = {"metrics": {"dashboards": {"enabled": True}}}
MAX_RELEASE_BYTES = 700_000
"""Limit for a release, below the 1 MiB limit of a Secret."""


def files(chart: Path, values: Values) -> Counter[str]:
    """Count the occurrences of each dashboard file in the rendered ConfigMaps."""
    return Counter(name for found in of_kind(render(chart, values), "ConfigMap") for name in found["data"])


def umbrella(choice: Values) -> Obj:
    return {name: {"enabled": enabled, **ON} for name, enabled in choice.items()}


@pytest.mark.parametrize("name", NAMES)
def test_operator_chart_renders_its_own_and_the_operators_dashboard(charts: Path, name: str) -> None:
    expected = {f"platform-{name}.json": 1, "platform-operators.json": 1}
    assert files(charts / f"{name}-operator", ON) == expected


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_umbrella_renders_each_dashboard_once_and_the_overview(charts: Path, choice: dict[str, bool]) -> None:
    chosen = [name for name, enabled in choice.items() if enabled]
    expected = [f"platform-{part}.json" for part in (*chosen, *(("operators", "overview") if chosen else ()))]
    assert files(charts / "platform", umbrella(choice)) == Counter(expected)


def test_no_dashboards_by_default(charts: Path) -> None:
    for chart in ("platform", *(f"{name}-operator" for name in NAMES)):
        assert not files(charts / chart, {}), chart


def test_dashboards_of_one_operator_include_the_common_ones(charts: Path) -> None:
    expected = {"platform-redis.json", "platform-operators.json", "platform-overview.json"}
    assert set(files(charts / "platform", {"redis": ON})) == expected


def test_rendered_dashboards_equal_the_generated_ones(charts: Path) -> None:
    generated = {f"{page.uid}.json" for page in DASHBOARDS}
    found = of_kind(render(charts / "platform", umbrella(dict.fromkeys(NAMES, True))), "ConfigMap")
    rendered = {name: json.loads(text) for obj in found for name, text in obj["data"].items()}
    assert set(rendered) == generated
    for name, page in rendered.items():
        assert page == json.loads((REPOSITORY / "dashboards/generated" / name).read_text()), name
        assert name == f"{page['uid']}.json"


def test_values_set_labels_and_annotations_of_dashboards(charts: Path) -> None:
    dashboards = {"enabled": True, "labels": {"custom": "yes"}, "annotations": {"folder": "Databases"}}
    given = {"metrics": {"dashboards": dashboards}}
    for objects in (
        render(charts / "platform", {"memcached": given}),
        render(charts / "memcached-operator", given),
    ):
        for found in of_kind(objects, "ConfigMap"):
            labels = found["metadata"]["labels"]
            assert (labels["grafana_dashboard"], labels["custom"]) == ("1", "yes")
            assert labels["app.kubernetes.io/part-of"] == "platform"
            assert found["metadata"]["annotations"] == {"grafana_folder": "Platform", "folder": "Databases"}
            assert found["metadata"]["namespace"] == NAMESPACE


def test_config_maps_are_small_enough_for_kubectl_apply(charts: Path) -> None:
    for found in of_kind(render(charts / "platform", umbrella(dict.fromkeys(NAMES, True))), "ConfigMap"):
        assert len(json.dumps(found)) < 262_144, "kubectl apply stores a copy in an annotation, which has this limit"


@pytest.mark.parametrize("chart", ["platform", *(f"{name}-operator" for name in NAMES)])
def test_release_with_everything_enabled_fits_into_a_secret(charts: Path, chart: str) -> None:
    everything = dict.fromkeys(NAMES, EVERYTHING) if chart == "platform" else EVERYTHING
    given = ("--dry-run=client", "--output", "json", "--namespace", NAMESPACE)
    release = helm("install", "platform", charts / chart, *given, values=everything)
    assert json.loads(release)["manifest"].count("grafana_dashboard") == (4 if chart == "platform" else 1)
    stored = base64.b64encode(gzip.compress(release.encode()))  # the encoding that Helm uses
    assert 10_000 < len(stored) < MAX_RELEASE_BYTES, f"{len(stored):,} bytes"
