"""Alerts as promtool tries them: a case is what the series are while it is bad, and what they are while all is well."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboards.rules.files import groups
from dashboards.rules.model import Alert, Group, Recording, RuleSet
from e2e.cluster.machine import debian

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    """Of 5m."""
    return int(duration[:-1]) * UNITS[duration[-1]]


@dataclass(frozen=True)
class Gauge:
    """A value while it is bad, and one while all is well; None: there is no such series then."""

    bad: float | None
    good: float | None

    def told(self, bad: int, good: int, *, vanishes: bool = False) -> str:
        return f"{_held(self.bad, bad)} {'stale' if vanishes else _held(self.good, good)}"


@dataclass(frozen=True)
class Counter:
    """How much it grows from sample to sample while it is bad, and while all is well."""

    bad: float
    good: float

    def told(self, bad: int, good: int, *, vanishes: bool = False) -> str:
        after = "stale" if vanishes else f"{self.bad * bad + self.good:g}{self.good:+g}x{good}"
        return f"0{self.bad:+g}x{bad} {after}"


def _held(value: float | None, times: int) -> str:
    return f"_x{times + 1}" if value is None else f"{value:g}x{times}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """How an alert comes and goes.

    Attributes:
        series: by name and labels.
        who: labels of the alert that come from the series.
        lead: time from the first bad sample until the expression holds.
        window: how far back it looks.
        every: time between samples.
        without: whether it fires where there is no series at all: only what says "gone" may.
        which: labels by which alerts of the same name are told apart.
    """

    name: str
    series: Mapping[str, Gauge | Counter]
    who: Mapping[str, str] = field(default_factory=dict)
    lead: str = "0s"
    window: str = "5m"
    every: str = "1m"
    without: bool = False
    which: Mapping[str, str] = field(default_factory=dict)

    def of(self, rules: RuleSet) -> Alert:
        """The alert that it is about."""
        wanted = self.which.items()
        [found] = [alert for alert in rules.alerts if alert.name == self.name and wanted <= alert.labels.items()]
        return found


def rules_of(rules: RuleSet, alert: Alert) -> RuleSet:
    """Only the alert, with the recordings that it asks for."""
    recorded = [rule for group in rules.groups for rule in group.rules if isinstance(rule, Recording)]
    needed = tuple(rule for rule in recorded if re.search(rf"{re.escape(rule.name)}\b", alert.expr))
    return RuleSet(rules.operator, (Group("tried", (*needed, alert)),), rules.thresholds)


def trials(case: Case, alert: Alert) -> Iterator[dict[str, Any]]:
    """What promtool is to try: it fires, is silent when healthy, clears, and is right where there are no series."""
    every = seconds(case.every)
    bad = -(-(seconds(case.lead) + seconds(alert.wait)) // every) + 2
    good = -(-seconds(case.window) // every) + 3
    early = seconds(alert.wait) - every
    firing = {**_labels(alert, case.who), "alertname": alert.name, "alertstate": "firing"}

    def trial(what: str, told: Mapping[str, str], expected: Sequence[tuple[int, bool]]) -> dict[str, Any]:
        sample = {"labels": _written("ALERTS", firing), "value": 1}
        return {
            "name": f"{alert.name} {what}",
            "interval": f"{every}s",
            "input_series": [{"series": name, "values": values} for name, values in told.items()],
            "promql_expr_test": [
                {
                    "expr": f'ALERTS{{alertname="{alert.name}",alertstate="firing"}}',
                    "eval_time": f"{moment}s",
                    "exp_samples": [sample] if fires else [],
                }
                for moment, fires in expected
            ],
        }

    fires = [*([(early, False)] if early > 0 else []), (bad * every, True)]
    end = (bad + good) * every
    well = {name: values.__class__(values.good, values.good) for name, values in case.series.items()}  # type: ignore[arg-type]
    yield trial("fires", {name: values.told(bad, 0) for name, values in case.series.items()}, fires)
    yield trial(
        "is silent when all is well",
        {name: values.told(bad, good) for name, values in well.items()},
        [(bad * every, False), (end, False)],
    )
    yield trial(
        "clears", {name: values.told(bad, good) for name, values in case.series.items()}, [*fires, (end, False)]
    )
    yield trial("is right without its series", {}, [(end, case.without)])
    yield trial(
        "is right when its series vanish",
        {name: values.told(bad, good, vanishes=True) for name, values in case.series.items()},
        [*fires, (end, case.without)],
    )


def _labels(alert: Alert, who: Mapping[str, str]) -> dict[str, str]:
    """The labels that it has, its own templates filled in."""
    own = {
        name: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: who[found[1]], value)
        for name, value in alert.labels.items()
    }
    return {**who, "severity": alert.severity, **own}


def _written(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in sorted(labels.items())) + "}"


def written(directory: Path, name: str, rules: RuleSet, tried: Sequence[dict[str, Any]]) -> Path:
    """A test file of promtool, and the rule file that it is about. JSON is YAML."""
    (directory / f"{name}.rules.json").write_text(json.dumps(groups(rules, rules.defaults)))
    content = {
        "rule_files": [f"{name}.rules.json"],
        "evaluation_interval": tried[0]["interval"],
        "tests": tried,
    }
    file = directory / f"{name}.test.json"
    file.write_text(json.dumps(content))
    return file


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    program = debian.program("promtool", "prometheus")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
