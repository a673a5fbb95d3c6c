"""The rules in quick motion that end-to-end tests have: the charts' own with shorter times, and nothing else new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.rules.catalogue import RULES
from dashboards.rules.files import groups
from e2e.scenarios.observability.watch import FACTOR, shortened
from tests.unit.dashboards.promtool import promtool


def test_waits_and_windows_are_divided_and_no_window_is_too_short_for_a_rate() -> None:
    rule = {"alert": "Slow", "expr": "rate(a[5m]) / rate(b[1h]) > 0.5", "for": "15m", "labels": {"severity": "info"}}
    [group] = shortened([{"name": "one", "rules": [rule, {"record": "r", "expr": "rate(a[1m])"}]}])
    assert group["rules"] == [
        {**rule, "expr": "rate(a[5s]) / rate(b[60s]) > 0.5", "for": "15s"},
        {"record": "r", "expr": "rate(a[5s])"},
    ]
    assert rule["for"] == "15m", "what was given stays"


@pytest.mark.parametrize("operator", RULES)
def test_prometheus_takes_them(operator: str, tmp_path: Path) -> None:
    given = groups(RULES[operator], RULES[operator].defaults)["groups"]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": shortened(given)}))
    said = promtool("check", "rules", file)
    assert said.returncode == 0, said.stdout + said.stderr
    waits = [rule["for"] for group in given for rule in group["rules"] if "for" in rule]
    assert len(waits) > 15
    assert FACTOR == 60
