"""Values of the charts: unknown keys are rejected, every value is described and listed in the README."""

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
from tests.support.charts import NAMES, OPERATORS, Obj, Values, manifest, render
from tools.local import binaries
from tools.local.errors import ClusterError
from tools.local.machine.commands import run
from tools.local.release import CHARTS

WITH_VALUES = [*OPERATORS, "platform"]
TYPO = "tpyo"
MAPS = ("resources.", "metrics.dashboards.")
"""Prefixes of values that are maps."""


def schema(chart: str) -> Obj:
    found: Obj = json.loads((CHARTS / chart / "values.schema.json").read_text())
    return found


def table(chart: str) -> dict[str, tuple[str, str]]:
    """Return the rows of a README's table: default and description by key."""
    readme = (CHARTS / chart / "README.md").read_text()
    return {
        key: (default, description)
        for key, default, description in re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| (.*) \|$", readme, re.MULTILINE)
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
    """Return a value with an unknown key in every object that it can contain, and the paths of these objects."""
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


def test_charts_with_values_have_a_model() -> None:
    assert sorted(MODELS) == sorted(WITH_VALUES)


def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    write(tmp_path)
    for made in (path for path in tmp_path.rglob("*") if path.is_file()):
        committed = CHARTS.parent / made.relative_to(tmp_path)
        assert committed.read_text() == made.read_text(), f"{committed} is outdated; run `make manifests`"


@pytest.mark.parametrize("chart", WITH_VALUES)
def test_readme_lists_every_value_with_default_and_description(chart: str) -> None:
    rows = table(chart)
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    assert {key: yaml.safe_load(default) for key, (default, _) in rows.items()} == dict(leaves(values))
    assert all(description.strip() for _, description in rows.values())


@pytest.mark.parametrize("chart", WITH_VALUES)
def test_schema_has_type_and_description_of_every_value(chart: str) -> None:
    whole = schema(chart)
    for key in table(chart):
        node = whole
        for part in key.split("."):
            node = resolved(node["properties"][part], whole["$defs"])
            assert node.get("description"), key
        assert {"type", "enum", "anyOf"} & node.keys(), key


@pytest.mark.parametrize("chart", WITH_VALUES)
def test_unknown_keys_are_rejected_with_their_path_at_any_depth(chart: str, charts: Path, tmp_path: Path) -> None:
    whole = schema(chart)
    values, paths = misspelt(whole, whole["$defs"])
    given, output = tmp_path / "values.json", tmp_path / "output"
    given.write_text(json.dumps(values))
    with pytest.raises(ClusterError):
        run(binaries.find("helm"), "template", "platform", charts / chart, "--values", given, log=output)
    rejected = re.findall(rf"at '(.*)': additional properties '{TYPO}' not allowed", output.read_text())
    assert sorted(rejected) == sorted(paths)
    assert len(paths) > 40 or chart == "platform", "the search found too few objects"


@pytest.mark.parametrize("name", NAMES)
def test_umbrella_rejects_unknown_keys_in_an_operators_values(charts: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=f"at '/image': additional properties '{TYPO}' not allowed"):
        render(charts / "platform", {name: {"image": {TYPO: 1}}})


def test_schemas_accept_global_values_and_the_enabled_switch(charts: Path) -> None:
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
        ({"memcached": {"replicaCount": 0}}, "/replicaCount"),
        ({"memcached": {"image": {"digest": "abc"}}}, "/image/digest"),
        ({"memcached": {"watchNamespaces": "shop"}}, "/watchNamespaces"),
        ({"memcached": {"watchNamespaces": ["Shop"]}}, "/watchNamespaces/0"),
        ({"memcached": {"watchNamespaces": ["shop", "shop"]}}, "/watchNamespaces"),
        ({"memcached": {"probePort": 80}}, "/probePort"),
        ({"memcached": {"policy": {"requireTls": True}}}, "/policy"),
        ({"memcached": {"operatorPeers": [{"cidr": "10.0.0.0/8"}]}}, "/operatorPeers/0"),
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
def test_invalid_values_are_rejected_with_their_path(charts: Path, values: Values, complaint: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(complaint)):
        render(charts / "platform", values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"leaderElection": {"renewDeadline": 15}}, r"renewDeadline \(15\) must be less than .*leaseDuration \(15\)"),
        ({"leaderElection": {"retryPeriod": 6}}, r"retryPeriod \(6\) must be at most half .*renewDeadline \(10\)"),
        ({"webhook": {"port": 8443}}, "webhook.port and metrics.port are both 8443"),
        ({"metrics": {"port": 8081}}, "metrics.port and probePort are both 8081"),
        ({"probePort": 9443}, "webhook.port and probePort are both 9443"),
        ({"certificates": {"source": "secret"}}, "certificates.secretName is empty. Set certificates.secretName"),
        ({"crds": {"keep": False}}, "crds.keep=false is no longer supported: .* delete all resources"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("chart", OPERATORS)
def test_contradictory_values_are_rejected_with_the_value_to_change(
    charts: Path, chart: str, values: Values, sentence: str
) -> None:
    with pytest.raises(ClusterError, match=sentence):
        manifest(charts / chart, values)


@pytest.mark.parametrize("chart", OPERATORS)
def test_crds_keep_true_is_accepted_for_compatibility(charts: Path, chart: str) -> None:
    assert render(charts / chart, {"crds": {"keep": True}}) == render(charts / chart)
