"""PrometheusRules of the charts: the generated rules with thresholds, labels and URLs from the values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.rules.catalogue import RULES
from dashboards.rules.files import groups
from tests.platform.unit.dashboards.promtool import promtool
from tests.support import charts as rendering
from tests.support.charts import NAMES, Obj, of_kind, only, render
from tools.local.errors import ClusterError
from tools.local.release import CHARTS


def values(**given: Any) -> Obj:
    return {"metrics": {"prometheusRule": {"enabled": True, **given}}}


def rules(rendered: Obj) -> list[Obj]:
    return [rule for group in rendered["spec"]["groups"] for rule in group["rules"]]


def rule_of(charts: Path, name: str, **given: Any) -> Obj:
    return only(render(charts / f"{name}-operator", values(**given)), "PrometheusRule")


@pytest.mark.parametrize("name", NAMES)
def test_idle_resources_are_reconciled_before_the_alert_about_it_fires(charts: Path, name: str) -> None:
    """One resource waits up to 1.55 intervals: the start of the resync varies by a tenth, its part of a half by all."""
    schema = json.loads((charts / f"{name}-operator/values.schema.json").read_text())["properties"]["resync"]
    (rule,) = [each for each in rules(rule_of(charts, name)) if each.get("alert") == "PlatformOperatorNotReconciling"]
    (window,) = re.findall(r"\[(\d+)m\]", rule["expr"])
    minutes = int(window) + int(rule["for"].removesuffix("m"))
    assert 1.55 * schema.get("maximum", 10**9) < minutes * 60


@pytest.mark.parametrize("name", NAMES)
def test_no_prometheus_rule_by_default(charts: Path, name: str) -> None:
    assert not of_kind(render(charts / f"{name}-operator"), "PrometheusRule")


def same_numbers(text: str) -> str:
    """Normalize numbers: Helm renders 1209600 as 1.2096e+06."""
    return " ".join(f"{float(word):g}" if word[0].isdigit() and _is_number(word) else word for word in text.split())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_default_rules_equal_the_generated_ones(charts: Path, name: str) -> None:
    rendered, plain = rule_of(charts, name)["spec"]["groups"], groups(RULES[name], RULES[name].defaults)["groups"]
    for group in (*rendered, *plain):
        for rule in group["rules"]:
            rule["expr"] = same_numbers(rule["expr"])
            rule.get("annotations", {}).pop("dashboard_url", None)  # only with a base URL of Grafana
    assert rendered == plain


@pytest.mark.parametrize("name", NAMES)
def test_rendered_rules_pass_promtool(charts: Path, name: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(rule_of(charts, name)["spec"]))
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "${" not in file.read_text()


def test_values_set_thresholds_labels_and_urls(charts: Path) -> None:
    made = rule_of(
        charts,
        "etcd",
        labels={"release": "prometheus"},
        alertLabels={"team": "storage", "severity": "ignored"},
        dashboardsUrl="https://grafana.example.com/",
        runbooksUrl="https://git.example.com/",
        thresholds={"quotaUsed": 0.5, "leaderChanges": 7},
    )
    assert made["metadata"]["labels"]["release"] == "prometheus"
    found = {rule["alert"]: rule for rule in rules(made) if "alert" in rule}
    assert found["EtcdDatabaseNearQuota"]["expr"] == "resource:etcd_database_used:ratio > 0.5"
    assert found["EtcdLeaderChanges"]["expr"].endswith("> 7")
    near = found["EtcdDatabaseNearQuota"]
    assert near["labels"]["team"] == "storage"
    assert near["labels"]["severity"] == "warning", "alertLabels must not override the severity"
    assert near["annotations"]["runbook_url"] == "https://git.example.com/docs/runbook/alerts.md#etcddatabasenearquota"
    assert near["annotations"]["dashboard_url"].startswith("https://grafana.example.com/d/platform-etcd?var-namespace=")


def test_runbook_links_of_a_release_are_absolute_by_default(tmp_path: Path) -> None:
    released = rendering.copy_to(tmp_path)
    chart = released / "redis-operator/Chart.yaml"
    chart.write_text(chart.read_text() + "home: https://git.example.com/acme/platform\n")
    found = [rule["annotations"] for rule in rules(rule_of(released, "redis")) if "alert" in rule]
    version = yaml.safe_load(chart.read_text())["version"]
    base = f"https://git.example.com/acme/platform/blob/v{version}/docs/runbook/alerts.md#"
    assert found
    assert {each["runbook_url"].partition("#")[0] + "#" for each in found} == {base}


def test_alerts_have_no_relative_dashboard_links(charts: Path) -> None:
    found = [rule["annotations"] for rule in rules(rule_of(charts, "redis")) if "alert" in rule]
    assert found
    assert not [each for each in found if "dashboard_url" in each]


def test_disabled_alerts_are_omitted_and_unknown_names_rejected(charts: Path) -> None:
    left = {rule.get("alert") for rule in rules(rule_of(charts, "redis", disabled=["RedisEvicting"]))}
    assert "RedisEvicting" not in left
    assert "RedisMemoryHigh" in left
    with pytest.raises(ClusterError, match="disabled: unknown alert RedisEvictng"):
        rule_of(charts, "redis", disabled=["RedisEvictng"])


@pytest.mark.parametrize(
    "thresholds", [{"quotaUsed": 2}, {"quotaUsed": "much"}, {"quota": 0.5}, {"evictionsPerSecond": 1}]
)
def test_invalid_thresholds_are_rejected(charts: Path, thresholds: Obj) -> None:
    with pytest.raises(ClusterError, match="/metrics/prometheusRule/thresholds"):
        rule_of(charts, "etcd", thresholds=thresholds)


def test_umbrella_renders_the_rules_of_each_enabled_operator(charts: Path) -> None:
    given = {name: {"enabled": name != "redis", **values()} for name in NAMES}
    found = of_kind(render(charts / "platform", given), "PrometheusRule")
    assert [obj["metadata"]["name"] for obj in found] == [
        f"platform-{name}-operator" for name in NAMES if name != "redis"
    ]


def test_rules_of_different_charts_are_distinct(charts: Path) -> None:
    """Rules with the same name select different resources or operators, so none fires twice in one Prometheus."""
    seen = [
        (rule.get("alert", rule.get("record")), rule["expr"]) for name in NAMES for rule in rules(rule_of(charts, name))
    ]
    assert len(seen) == len(set(seen))


def test_charts_contain_the_generated_rules() -> None:
    for name in NAMES:
        content = yaml.safe_load((CHARTS / f"{name}-operator/files/alerts.yaml").read_text())
        assert content == groups(RULES[name], {}), f"{name} is outdated; run `make manifests`"
