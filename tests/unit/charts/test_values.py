"""What the charts can be told: closed at every depth, described, and shown in the READMEs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.values.__main__ import write
from charts.values.charts import CHARTS as MODELS
from e2e.cluster import binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.commands import run
from tests.support.charts import CHARTS, NAMES, OPERATORS, Obj, Values, manifest, render

WITH_VALUES = [*OPERATORS, "platform"]
TYPO = "tpyo"
MAPS = ("resources.", "metrics.dashboards.")
"""Where values are maps that are given whole."""


def schema(chart: str) -> Obj:
    found: Obj = json.loads((CHARTS / chart / "values.schema.json").read_text())
    return found


def table(chart: str) -> dict[str, tuple[str, str]]:
    """Each row of a README's table: its key, default and meaning."""
    readme = (CHARTS / chart / "README.md").read_text()
    return {
        key: (default, meaning)
        for key, default, meaning in re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| (.*) \|$", readme, re.MULTILINE)
    }


def leaves(values: Obj, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and prefix not in MAPS:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def resolved(node: Obj, definitions: Obj) -> Obj:
    return {**definitions[node["$ref"].rpartition("/")[2]], **node} if "$ref" in node else node


def misspelt(node: Obj, definitions: Obj, path: str = "") -> tuple[Any, list[str]]:
    """A value with a misspelt key in every object that it can hold, and the paths of those objects."""
    node = resolved(node, definitions)
    if node.get("additionalProperties") is True:
        return {}, []
    if node.get("properties"):
        value: Obj = {TYPO: 1}
        paths = [path]
        for key, inner in node["properties"].items():
            below, found = misspelt(inner, definitions, f"{path}/{key}")
            if found:
                value[key] = below
                paths += found
        return value, paths
    if "items" in node:
        below, found = misspelt(node["items"], definitions, f"{path}/0")
        return [below], found
    return None, []


def test_every_chart_that_takes_values_has_a_model() -> None:
    assert sorted(MODELS) == sorted(WITH_VALUES)


def test_the_generated_files_are_as_their_models_say(tmp_path: Path) -> None:
    write(tmp_path)
    for made in (path for path in tmp_path.rglob("*") if path.is_file()):
        committed = CHARTS.parent / made.relative_to(tmp_path)
        assert committed.read_text() == made.read_text(), f"{committed}; mend: make manifests"


@pytest.mark.parametrize("chart", WITH_VALUES)
def test_the_readme_has_every_value_its_default_and_what_it_means(chart: str) -> None:
    rows = table(chart)
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    assert {key: yaml.safe_load(default) for key, (default, _) in rows.items()} == dict(leaves(values))
    assert all(meaning.strip() for _, meaning in rows.values())


@pytest.mark.parametrize("chart", WITH_VALUES)
def test_every_value_has_a_schema_and_a_description_in_it(chart: str) -> None:
    whole = schema(chart)
    for key in table(chart):
        node = whole
        for part in key.split("."):
            node = resolved(node["properties"][part], whole["$defs"])
            assert node.get("description"), key
        assert {"type", "enum", "anyOf"} & node.keys(), key


@pytest.mark.parametrize("chart", WITH_VALUES)
def test_a_typo_at_any_depth_is_refused_with_its_path(chart: str, charts: Path, tmp_path: Path) -> None:
    whole = schema(chart)
    values, paths = misspelt(whole, whole["$defs"])
    given, said = tmp_path / "values.json", tmp_path / "said"
    given.write_text(json.dumps(values))
    with pytest.raises(ClusterError):
        run(binaries.find("helm"), "template", "platform", charts / chart, "--values", given, log=said)
    refused = re.findall(rf"at '(.*)': additional properties '{TYPO}' not allowed", said.read_text())
    assert sorted(refused) == sorted(paths)
    assert len(paths) > 40 or chart == "platform", "the search for objects found next to none"


@pytest.mark.parametrize("name", NAMES)
def test_a_typo_in_an_operators_values_is_refused_through_the_umbrella(charts: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=f"at '/image': additional properties '{TYPO}' not allowed"):
        render(charts / "platform", {name: {"image": {TYPO: 1}}})


def test_global_values_and_a_parts_switch_pass_the_closed_schemas(charts: Path) -> None:
    assert render(charts / "platform", {"global": {"team": "storage"}}) == render(charts / "platform")
    for chart in OPERATORS:
        given = {"enabled": True, "global": {"team": "storage"}}
        assert render(charts / chart, given) == render(charts / chart)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"memcache": {"enabled": True}}, "memcache"),
        ({"memcached": {"enabled": "yes"}}, "/memcached/enabled"),
        ({"memcached": {"logLevel": "loud"}}, "/logLevel"),
        ({"memcached": {"replicas": 0}}, "/replicas"),
        ({"memcached": {"image": {"digest": "abc"}}}, "/image/digest"),
        ({"memcached": {"watchNamespaces": "shop"}}, "/watchNamespaces"),
        ({"memcached": {"watchNamespaces": ["Shop"]}}, "/watchNamespaces/0"),
        ({"memcached": {"watchNamespaces": ["shop", "shop"]}}, "/watchNamespaces"),
        ({"memcached": {"metrics": {"port": 8081}}}, "/metrics/port"),
        ({"memcached": {"webhook": {"port": 443}}}, "/webhook/port"),
        ({"memcached": {"webhook": {"timeoutSeconds": 31}}}, "/webhook/timeoutSeconds"),
        ({"memcached": {"webhook": {"failurePolicy": "Pass"}}}, "/webhook/failurePolicy"),
        ({"memcached": {"certificates": {"source": "vault"}}}, "/certificates/source"),
        ({"memcached": {"metrics": {"serviceMonitor": {"interval": "often"}}}}, "/metrics/serviceMonitor/interval"),
        ({"memcached": {"networkPolicy": {"apiServerPorts": []}}}, "/networkPolicy/apiServerPorts"),
        ({"memcached": {"otlpEndpoint": "collector:4317"}}, "/otlpEndpoint"),
        ({"memcached": {"workers": 0}}, "/workers"),
        ({"memcached": {"resources": {"limits": {"memory": "much"}}}}, "/resources/limits/memory"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(charts: Path, values: Values, complaint: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(complaint)):
        render(charts / "platform", values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"leaderElection": {"renewDeadline": 15}}, r"renewDeadline \(15\) must be below .*leaseDuration \(15\)"),
        ({"leaderElection": {"retryPeriod": 6}}, r"retryPeriod \(6\) must be at most half .*renewDeadline \(10\)"),
        ({"webhook": {"port": 8443}}, "webhook.port and metrics.port are both 8443"),
        ({"certificates": {"source": "secret"}}, "certificates.secretName is empty. Name your Secret"),
        ({"crds": {"keep": False}}, "crds.keep=false is no longer taken: .* delete every resource"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("chart", OPERATORS)
def test_values_that_contradict_each_other_are_refused_with_what_mends_them(
    charts: Path, chart: str, values: Values, sentence: str
) -> None:
    with pytest.raises(ClusterError, match=sentence):
        manifest(charts / chart, values)


@pytest.mark.parametrize("chart", OPERATORS)
def test_values_of_the_first_release_that_still_mean_something_are_taken(charts: Path, chart: str) -> None:
    assert render(charts / chart, {"crds": {"keep": True}}) == render(charts / chart)
