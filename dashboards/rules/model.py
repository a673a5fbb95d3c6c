"""Types of alerting and recording rules. An expression may use ${name} for a threshold from the chart's values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from charts.values.rules import Thresholds

Severity = Literal["critical", "warning", "info"]
"""critical: pages, on evidence of the data plane that clients are not served or data is at risk; warning: act within
the day; info: no action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule.

    Attributes:
        name: name of the alert, also a heading of docs/runbook/alerts.md.
        expr: PromQL with thresholds as ${name}; each resulting series is an alert.
        wait: time that the expression must hold before the alert fires (`for`), such as 5m.
        summary: one line that names the object and the problem; labels as {{ $labels.name }}.
        description: impact, cause and the next action, with the measured value.
        dashboard: uid of the dashboard that the alert links to.
        of: labels of the series that filter the dashboard, by variable.
        labels: additional labels of the alert.
    """

    name: str
    severity: Severity
    expr: str
    wait: str = "0s"
    summary: str
    description: str
    dashboard: str
    of: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """Fields that several alerts share.

    Attributes:
        dashboard: uid of the dashboard that the alerts link to.
        of: labels of the series that filter the dashboard, by variable.
        labels: additional labels of the alerts.
    """

    dashboard: str
    of: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def alert(
        self, name: str, severity: Severity, expr: str, wait: str, summary: str, description: str, **labels: str
    ) -> Alert:
        """Create an alert with these fields and additional labels."""
        return Alert(
            name=name,
            severity=severity,
            expr=expr,
            wait=wait,
            summary=summary,
            description=description,
            dashboard=self.dashboard,
            of=self.of,
            labels={**self.labels, **labels},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording rule: a precomputed series for frequent queries or long ranges.

    Attributes:
        name: name of the series, as level:metric:operation.
    """

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rules, which Prometheus evaluates sequentially."""

    name: str
    rules: tuple[Alert | Recording, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules of one operator's chart.

    Attributes:
        operator: name of the operator, such as etcd.
        thresholds: thresholds that the expressions use, with their defaults.
    """

    operator: str
    groups: tuple[Group, ...]
    thresholds: Thresholds

    @property
    def alerts(self) -> Iterator[Alert]:
        for group in self.groups:
            yield from group.alerts

    @property
    def defaults(self) -> dict[str, float]:
        """Default thresholds, by name."""
        return self.thresholds.model_dump(by_alias=True)


def filled(expr: str, thresholds: Mapping[str, float]) -> str:
    """Replace the threshold names in an expression with numbers; $1 of label_replace stays.

    Raises:
        KeyError: the expression names an unknown threshold.
    """
    return re.sub(r"\$\{(\w+)\}", lambda found: f"{thresholds[found[1]]:.15g}", expr)
