"""The dashboards as the charts bring them."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from dashboards.catalogue import DASHBOARDS
from e2e.cluster.paths import REPOSITORY
from tests.support.charts import CHOICES, EVERYTHING, NAMES, NAMESPACE, Obj, Values, helm, of_kind, render

ON: Obj = {"metrics": {"dashboards": {"enabled": True}}}
MOST = 700_000
"""Bytes that a release may take, of the 1 MiB that a Secret may."""


def files(chart: Path, values: Values) -> Counter[str]:
    """How often each file of a dashboard comes."""
    return Counter(name for found in of_kind(render(chart, values), "ConfigMap") for name in found["data"])


def umbrella(choice: Values) -> Obj:
    return {name: {"enabled": enabled, **ON} for name, enabled in choice.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_alone_brings_its_own_dashboard_and_that_of_operators(charts: Path, name: str) -> None:
    wanted = {f"platform-{name}.json": 1, "platform-operators.json": 1}
    assert files(charts / f"{name}-operator", ON) == wanted


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_umbrella_brings_each_dashboard_once_and_the_overview(charts: Path, choice: dict[str, bool]) -> None:
    chosen = [name for name, enabled in choice.items() if enabled]
    wanted = [f"platform-{part}.json" for part in (*chosen, *(("operators", "overview") if chosen else ()))]
    assert files(charts / "platform", umbrella(choice)) == Counter(wanted)


def test_no_dashboard_comes_unasked(charts: Path) -> None:
    for chart in ("platform", *(f"{name}-operator" for name in NAMES)):
        assert not files(charts / chart, {}), chart


def test_one_operator_that_is_asked_for_its_own_brings_those_of_all(charts: Path) -> None:
    wanted = {"platform-redis.json", "platform-operators.json", "platform-overview.json"}
    assert set(files(charts / "platform", {"redis": ON})) == wanted


def test_what_a_chart_brings_is_what_is_generated(charts: Path) -> None:
    generated = {f"{page.uid}.json" for page in DASHBOARDS}
    found = of_kind(render(charts / "platform", umbrella(dict.fromkeys(NAMES, True))), "ConfigMap")
    brought = {name: json.loads(text) for obj in found for name, text in obj["data"].items()}
    assert set(brought) == generated
    for name, page in brought.items():
        assert page == json.loads((REPOSITORY / "dashboards/generated" / name).read_text()), name
        assert name == f"{page['uid']}.json"


def test_grafanas_sidecar_finds_them_by_what_is_asked_for(charts: Path) -> None:
    given = {"metrics": {"dashboards": {"enabled": True, "labels": {"mine": "yes"}, "annotations": {"folder": "Ours"}}}}
    for objects in (
        render(charts / "platform", {"memcached": given}),
        render(charts / "memcached-operator", given),
    ):
        for found in of_kind(objects, "ConfigMap"):
            labels = found["metadata"]["labels"]
            assert (labels["grafana_dashboard"], labels["mine"]) == ("1", "yes")
            assert labels["app.kubernetes.io/part-of"] == "platform"
            assert found["metadata"]["annotations"] == {"grafana_folder": "Platform", "folder": "Ours"}
            assert found["metadata"]["namespace"] == NAMESPACE


def test_a_config_map_is_small_enough_for_kubectl_apply(charts: Path) -> None:
    for found in of_kind(render(charts / "platform", umbrella(dict.fromkeys(NAMES, True))), "ConfigMap"):
        assert len(json.dumps(found)) < 262_144, "kubectl apply keeps a copy in an annotation, which ends there"


@pytest.mark.parametrize("chart", ["platform", *(f"{name}-operator" for name in NAMES)])
def test_a_release_with_everything_fits_its_secret(charts: Path, chart: str) -> None:
    everything = dict.fromkeys(NAMES, EVERYTHING) if chart == "platform" else EVERYTHING
    given = ("--dry-run=client", "--output", "json", "--namespace", NAMESPACE)
    release = helm("install", "platform", charts / chart, *given, values=everything)
    assert json.loads(release)["manifest"].count("grafana_dashboard") == (4 if chart == "platform" else 1)
    kept = base64.b64encode(gzip.compress(release.encode()))  # as Helm keeps it
    assert 10_000 < len(kept) < MOST, f"{len(kept):,} bytes"
