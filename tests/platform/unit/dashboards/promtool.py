"""Run promtool's rule tests. A case has the series of an alert during a problem and while the system is healthy."""

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
from tools.local import debian

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    """Convert a duration such as 5m to seconds."""
    return int(duration[:-1]) * UNITS[duration[-1]]


@dataclass(frozen=True)
class Gauge:
    """A gauge's value during the problem and while healthy; None: the series does not exist."""

    bad: float | None
    good: float | None

    def samples(self, bad: int, good: int, *, vanishes: bool = False) -> str:
        """Return promtool's notation of `bad` samples of the problem and `good` healthy ones."""
        return f"{_constant(self.bad, bad)} {'stale' if vanishes else _constant(self.good, good)}"


@dataclass(frozen=True)
class Counter:
    """A counter's increase per sample during the problem and while healthy."""

    bad: float
    good: float

    def samples(self, bad: int, good: int, *, vanishes: bool = False) -> str:
        """Return promtool's notation of `bad` samples of the problem and `good` healthy ones."""
        after = "stale" if vanishes else f"{self.bad * bad + self.good:g}{self.good:+g}x{good}"
        return f"0{self.bad:+g}x{bad} {after}"


def _constant(value: float | None, times: int) -> str:
    return f"_x{times + 1}" if value is None else f"{value:g}x{times}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Input of an alert's tests.

    Attributes:
        series: samples by name and labels of the series.
        labels: labels of the alert that come from the series.
        lead: time from the first bad sample until the expression holds.
        window: longest range of the expression.
        every: time between samples.
        without: whether the alert fires if no series exists; only true for alerts on absence.
        alert_labels: labels that distinguish alerts with the same name.
    """

    name: str
    series: Mapping[str, Gauge | Counter]
    labels: Mapping[str, str] = field(default_factory=dict)
    lead: str = "0s"
    window: str = "5m"
    every: str = "1m"
    without: bool = False
    alert_labels: Mapping[str, str] = field(default_factory=dict)

    def of(self, rules: RuleSet) -> Alert:
        """Return the alert of this case."""
        required = self.alert_labels.items()
        [found] = [alert for alert in rules.alerts if alert.name == self.name and required <= alert.labels.items()]
        return found


def rules_of(rules: RuleSet, alert: Alert) -> RuleSet:
    """Return a rule set of one alert and the recording rules that it uses."""
    recorded = [rule for group in rules.groups for rule in group.rules if isinstance(rule, Recording)]
    needed = tuple(rule for rule in recorded if re.search(rf"{re.escape(rule.name)}\b", alert.expr))
    return RuleSet(rules.operator, (Group("tried", (*needed, alert)),), rules.thresholds)


def trials(case: Case, alert: Alert) -> Iterator[dict[str, Any]]:
    """Yield promtool tests: the alert fires, stays inactive when healthy, resolves, and handles missing series."""
    every = seconds(case.every)
    bad = -(-(seconds(case.lead) + seconds(alert.wait)) // every) + 2
    good = -(-seconds(case.window) // every) + 3
    early = seconds(alert.wait) - every
    firing = {**_labels(alert, case.labels), "alertname": alert.name, "alertstate": "firing"}

    def trial(what: str, series: Mapping[str, str], expected: Sequence[tuple[int, bool]]) -> dict[str, Any]:
        sample = {"labels": _written("ALERTS", firing), "value": 1}
        return {
            "name": f"{alert.name} {what}",
            "interval": f"{every}s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
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
    healthy = {name: values.__class__(values.good, values.good) for name, values in case.series.items()}  # type: ignore[arg-type]
    yield trial("fires", {name: values.samples(bad, 0) for name, values in case.series.items()}, fires)
    yield trial(
        "is inactive when healthy",
        {name: values.samples(bad, good) for name, values in healthy.items()},
        [(bad * every, False), (end, False)],
    )
    yield trial(
        "resolves", {name: values.samples(bad, good) for name, values in case.series.items()}, [*fires, (end, False)]
    )
    yield trial("handles missing series", {}, [(end, case.without)])
    yield trial(
        "handles vanishing series",
        {name: values.samples(bad, good, vanishes=True) for name, values in case.series.items()},
        [*fires, (end, case.without)],
    )


def _labels(alert: Alert, series: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a firing alert, with templates expanded."""
    own = {
        name: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: series[found[1]], value)
        for name, value in alert.labels.items()
    }
    return {**series, "severity": alert.severity, **own}


def _written(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in sorted(labels.items())) + "}"


def written(directory: Path, name: str, rules: RuleSet, tried: Sequence[dict[str, Any]]) -> Path:
    """Write a promtool test file and its rule file, as JSON, which is valid YAML; return the test file."""
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
    """Run promtool and return the completed process."""
    program = debian.program("promtool", "prometheus")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
