"""Render rule files: plain ones for Prometheus, and ones for the charts, which insert thresholds from values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import yaml

from dashboards.rules.model import Alert, Recording, RuleSet, filled

HEADER = "# Generated from dashboards/rules by `make manifests`. Do not edit.\n"
RUNBOOK = "docs/runbook/alerts.md"


def plain(rules: RuleSet) -> str:
    """Return a Prometheus rule file with the default thresholds."""
    return HEADER + _yaml(groups(rules, rules.defaults))


def for_chart(rules: RuleSet) -> str:
    """Return a rule file with threshold names; the chart's template inserts the values and the base URLs of links."""
    return HEADER + _yaml(groups(rules, {}))


def groups(rules: RuleSet, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Return the content of a rule file.

    Args:
        thresholds: values of the threshold names in expressions; empty to keep the names.
    """

    def expression(expr: str) -> str:
        return filled(expr, thresholds) if thresholds else expr

    def rule(made: Alert | Recording) -> dict[str, Any]:
        if isinstance(made, Recording):
            return {"record": made.name, "expr": expression(made.expr)}
        return {
            "alert": made.name,
            "expr": expression(made.expr),
            **({} if made.wait == "0s" else {"for": made.wait}),
            "labels": {"severity": made.severity, **made.labels},
            "annotations": {
                "summary": made.summary,
                "description": made.description,
                "dashboard_url": dashboard(made),
                "runbook_url": f"{RUNBOOK}#{made.name.lower()}",
            },
        }

    return {"groups": [{"name": group.name, "rules": [rule(each) for each in group.rules]} for group in rules.groups]}


def dashboard(alert: Alert) -> str:
    """Return the path of the alert's dashboard, filtered to the affected object."""
    chosen = [f"var-{quote(name)}={{{{ $labels.{label} }}}}" for name, label in alert.of.items()]
    return f"/d/{alert.dashboard}" + ("?" + "&".join(chosen) if chosen else "")


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
