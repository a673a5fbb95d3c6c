"""Accelerated alert rules of the end-to-end tests: those of the charts with shorter durations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.rules.catalogue import RULES
from dashboards.rules.files import groups
from e2e.scenarios.observability.watch import FACTOR, FORGOTTEN, only_alerts, shortened
from tests.platform.unit.dashboards.promtool import promtool


def test_durations_are_divided_but_rate_windows_keep_a_minimum() -> None:
    rule = {"alert": "Slow", "expr": "rate(a[5m]) / rate(b[1h]) > 0.5", "for": "15m", "labels": {"severity": "info"}}
    [group] = shortened([{"name": "one", "rules": [rule, {"record": "r", "expr": "rate(a[1m])"}]}])
    paced = {"severity": "info", "pace": "fast"}
    assert group["rules"] == [
        {**rule, "expr": "rate(a[10s]) / rate(b[60s]) > 0.5", "for": "15s", "labels": paced},
        {"record": "r", "expr": "rate(a[10s])"},
    ]
    assert rule["for"] == "15m", "the input is unchanged"


def test_an_alert_about_up_waits_until_prometheus_has_forgotten_a_removed_pod() -> None:
    down = {"alert": "Down", "expr": 'max by (pod) (up{job="a"}) == 0', "for": "10m", "labels": {}}
    other = {**down, "expr": "max by (pod) (started == 0)"}
    [group] = shortened([{"name": "one", "rules": [down, other]}])
    assert [rule["for"] for rule in group["rules"]] == [f"{FORGOTTEN}s", "10s"]


def test_real_rules_are_alerts_with_the_durations_of_the_charts() -> None:
    rule = {"alert": "Slow", "expr": "rate(a[5m]) > 0.5", "for": "15m", "labels": {"severity": "info"}}
    [group] = only_alerts([{"name": "one", "rules": [rule, {"record": "r", "expr": "rate(a[1m])"}]}])
    assert group["name"] == "one-real"
    assert group["rules"] == [{**rule, "labels": {"severity": "info", "pace": "real"}}]


@pytest.mark.parametrize("operator", RULES)
def test_prometheus_accepts_the_accelerated_rules(operator: str, tmp_path: Path) -> None:
    given = groups(RULES[operator], RULES[operator].defaults)["groups"]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": shortened(given)}))
    result = promtool("check", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr
    waits = [rule["for"] for group in given for rule in group["rules"] if "for" in rule]
    assert len(waits) > 15
    assert FACTOR == 60
