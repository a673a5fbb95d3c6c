"""What rules are made of. An expression may name a threshold as ${name}: people set these by the charts' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Literal

from charts.values.rules import Thresholds

Severity = Literal["critical", "warning", "info"]
"""critical: data or service is lost or about to be, wake somebody; warning: within the day; info: to be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What is told when an expression has series.

    Attributes:
        name: also a heading of docs/runbook/alerts.md.
        expr: in PromQL, with thresholds as ${name}; each series of it is an alert.
        wait: for how long it must have held, such as 5m.
        summary: one line; labels of the series as {{ $labels.name }}.
        description: what it means for people, and the number.
        dashboard: the uid of the one that shows it.
        of: labels of the series by which that is narrowed, by its variables.
        labels: further ones of the alert.
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
    """What several alerts are about.

    Attributes:
        dashboard: the uid of the one that shows it.
        of: as an alert's.
        labels: as an alert's.
    """

    dashboard: str
    of: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def alert(
        self, name: str, severity: Severity, expr: str, wait: str, summary: str, description: str, **labels: str
    ) -> Alert:
        """An alert about it, with further labels."""
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
    """A series that is kept because it is asked for often or over long times.

    Attributes:
        name: level:metric:operation.
    """

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other."""

    name: str
    rules: tuple[Alert | Recording, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules that one operator's chart brings.

    Attributes:
        operator: such as etcd.
        thresholds: what its expressions name, with their defaults.
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
        """The thresholds as they are unless somebody says otherwise, by name."""
        return self.thresholds.model_dump(by_alias=True)


def filled(expr: str, thresholds: Mapping[str, float]) -> str:
    """An expression with numbers in the place of its thresholds' names.

    Raises:
        KeyError: it names one that is not there.
    """
    return Template(expr).substitute({name: f"{value:.15g}" for name, value in thresholds.items()})
