"""Rules as files: for a Prometheus, and for a chart, which fills in what its values say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import yaml

from dashboards.rules.model import Alert, Recording, RuleSet, filled

HEADER = "# Generated from dashboards/rules by `make manifests`. Do not edit.\n"
RUNBOOK = "docs/runbook/alerts.md"


def plain(rules: RuleSet) -> str:
    """A rule file of Prometheus, with the thresholds' defaults."""
    return HEADER + _yaml(groups(rules, rules.defaults))


def for_chart(rules: RuleSet) -> str:
    """The same with thresholds by their names: the chart's template fills them in, and says where links begin."""
    return HEADER + _yaml(groups(rules, {}))


def groups(rules: RuleSet, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """The content of a rule file.

    Args:
        thresholds: what the names in expressions stand for; empty to leave them.
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
    """The path of the page that shows it, narrowed to what it is about."""
    chosen = [f"var-{quote(name)}={{{{ $labels.{label} }}}}" for name, label in alert.of.items()]
    return f"/d/{alert.dashboard}" + ("?" + "&".join(chosen) if chosen else "")


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
