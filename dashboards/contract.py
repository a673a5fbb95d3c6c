"""The contract of names: each metric and label that panels and rules ask for is in a recorded scrape of a real program.

The recordings are in scrapes/ (record.py). A name that is no program's is found here, before a dashboard stays empty or
an alert silent; so is one that a new version of a program no longer has, once it is recorded anew.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import promql_parser
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, BinaryExpr, Call, Expr, Matcher, MatchOp, StringLiteral, VectorSelector

import operators

SCRAPES = Path(__file__).parent / "scrapes"

TARGET = frozenset({"cluster", "namespace", "job", "instance", "pod", "app_kubernetes_io_instance"})
"""Labels that Prometheus gives each target's series: by the charts' ServiceMonitors, and cluster from outside."""

ALERTS = ("alertname", "alertstate", "severity", "kind", "name", "operator")
"""Labels of the series that Prometheus itself makes of alerts."""

OPEN = frozenset(
    {"cmd", "code", "err", "kind", "le", "name", "phase", "quantile", "reason", "severity", "version", "webhook"}
)
"""Labels whose values depend on what happens; of others, a value that is asked for must have been seen."""

Labels = dict[str, set[str]]
"""Values that were seen, by label."""


@dataclass
class Recorded:
    """What was scraped: labels and their values by the name of each series."""

    series: dict[str, Labels] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Recorded:
        """What scrapes hold, in Prometheus's text format."""
        found = cls({"ALERTS": {label: set() for label in ALERTS}})
        for text in texts:
            # Without types, for the library would give each counter the ending _total.
            plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
            for family in text_string_to_metric_families(plain):
                for sample in family.samples:
                    labels = found.series.setdefault(sample.name, {})
                    for label, value in sample.labels.items():
                        labels.setdefault(label, set()).add(value)
        return found

    def with_recordings(self, recordings: Mapping[str, str]) -> Recorded:
        """With the series that recording rules make, in order.

        Args:
            recordings: expressions by the names of what they make.
        """
        found = Recorded(dict(self.series))
        for name, expr in recordings.items():
            labels = {label for asked in asked_by(expr) for label in found.series.get(asked.name, {})}
            found.series[name] = {label: set() for label in labels}
        return found

    def breaches(self, expr: str) -> Iterator[str]:
        """What an expression asks for that was never scraped, in words.

        Args:
            expr: PromQL, without variables.
        """
        parsed = _parsed(expr)
        known, made = set(TARGET), set(_made(parsed))
        for asked in asked_by(expr):
            if asked.name not in self.series:
                yield f"no program shows {asked.name}"
                continue
            seen = self.series[asked.name]
            known |= seen.keys()
            for matcher in asked.matchers:
                yield from _unseen(asked.name, matcher, seen)
        yield from (f"no series here has the label {label}" for label in sorted(set(_grouped(parsed)) - known - made))


@dataclass(frozen=True)
class QueriedMetric:
    """One selector: a name, and what it wants of labels."""

    name: str
    matchers: tuple[Matcher, ...]


def asked_by(expr: str) -> list[QueriedMetric]:
    """The selectors of an expression, one for each name: {__name__=~"a|b"} is two."""
    found: list[QueriedMetric] = []
    for node in _nodes(_parsed(expr)):
        if isinstance(node, VectorSelector):
            matchers = tuple(node.matchers.matchers)
            names = [matcher.value for matcher in matchers if matcher.name == "__name__"]
            rest = tuple(matcher for matcher in matchers if matcher.name != "__name__")
            found += [QueriedMetric(name, rest) for name in ([node.name] if node.name else "|".join(names).split("|"))]
    return found


def recorded() -> Recorded:
    """Return what is in scrapes/. An operator shows its series for every kind that it serves, recorded or not."""
    found = Recorded.of(path.read_text() for path in sorted(SCRAPES.glob("*.prom")))
    controllers = {resource.kind.name.lower() for operator in operators.installed() for resource in operator.resources}
    for labels in found.series.values():
        if "controller" in labels:
            labels["controller"] |= controllers
    return found


def _unseen(name: str, matcher: Matcher, seen: Labels) -> Iterator[str]:
    """What is wrong with a matcher: its label, or a value that nobody showed."""
    may_lack = matcher.op == MatchOp.Re and matcher.value.endswith("|")
    if matcher.name in TARGET or may_lack:
        return
    if matcher.name not in seen:
        yield f"{name} has no label {matcher.name}"
    elif matcher.name not in OPEN and seen[matcher.name] and matcher.op in (MatchOp.Equal, MatchOp.Re):
        pattern = re.escape(matcher.value) if matcher.op == MatchOp.Equal else matcher.value
        if not any(re.fullmatch(pattern, value) for value in seen[matcher.name]):
            yield f"{name} was never seen with {matcher.name} {matcher.value}"


def _grouped(expr: Expr) -> Iterator[str]:
    """Labels by which series are put together or matched."""
    for node in _nodes(expr):
        if isinstance(node, AggregateExpr) and node.modifier:
            yield from node.modifier.labels
        elif isinstance(node, BinaryExpr) and node.modifier:
            yield from node.modifier.matching.labels if node.modifier.matching else ()
            yield from node.modifier.group_labels or ()


def _made(expr: Expr) -> Iterator[str]:
    """Labels that the expression itself makes."""
    for node in _nodes(expr):
        if isinstance(node, Call) and node.func.name in ("label_replace", "label_join"):
            target = node.args[1]
            assert isinstance(target, StringLiteral)
            yield target.val


def _nodes(expr: Expr) -> list[Expr]:
    found: list[Expr] = []

    def visit(node: Expr) -> bool:
        found.append(node)
        return True

    promql_parser.walk(expr, visit)
    return found


@functools.cache
def _parsed(expr: str) -> Expr:
    """Raises ValueError: it is no PromQL."""
    parsed: Expr = promql_parser.parse(expr)
    return parsed
