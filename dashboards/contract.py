"""Check that every metric and label that panels and rules query exists in a recorded scrape of a real program.

record.py writes the recordings to scrapes/. The check finds a misspelled name before a panel stays empty or an alert
never fires. After a new recording it also finds names that a new version of a program no longer exposes.
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
"""Labels that Prometheus adds to every series of a target; `cluster` is an external label."""

ALERTS = ("alertname", "alertstate", "severity", "kind", "name", "operator")
"""Labels of the ALERTS series that Prometheus generates."""

OPEN = frozenset(
    {"cmd", "code", "err", "kind", "le", "name", "phase", "quantile", "reason", "severity", "version", "webhook"}
)
"""Labels with open-ended values. For any other label, a queried value must occur in a recording."""

Labels = dict[str, set[str]]
"""Recorded values, by label."""


@dataclass
class Recorded:
    """Recorded series: labels and their values, by metric name."""

    series: dict[str, Labels] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Recorded:
        """Parse scrapes in Prometheus's text format."""
        found = cls({"ALERTS": {label: set() for label in ALERTS}, "up": {}})
        for text in texts:
            # Without TYPE lines: the library would append _total to the name of every counter.
            plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
            for family in text_string_to_metric_families(plain):
                for sample in family.samples:
                    labels = found.series.setdefault(sample.name, {})
                    for label, value in sample.labels.items():
                        labels.setdefault(label, set()).add(value)
        return found

    def with_recordings(self, recordings: Mapping[str, str]) -> Recorded:
        """Return a copy that also has the series of recording rules, evaluated in order.

        Args:
            recordings: expressions by the names of the recorded series.
        """
        found = Recorded(dict(self.series))
        for name, expr in recordings.items():
            labels = {label for queried in metrics_of(expr) for label in found.series.get(queried.name, {})}
            labels |= set(_created(_parsed(expr)))
            found.series[name] = {label: set() for label in labels}
        return found

    def breaches(self, expr: str) -> Iterator[str]:
        """Describe each metric, label and label value that `expr` queries and no recording has.

        Args:
            expr: PromQL, without variables.
        """
        parsed = _parsed(expr)
        known, created = set(TARGET), set(_created(parsed))
        for queried in metrics_of(expr):
            if queried.name not in self.series:
                yield f"no program exposes {queried.name}"
                continue
            seen = self.series[queried.name]
            known |= seen.keys()
            for matcher in queried.matchers:
                yield from _unseen(queried.name, matcher, seen)
        unknown = sorted(set(_grouped(parsed)) - known - created)
        yield from (f"no series of the expression has the label {label}" for label in unknown)


@dataclass(frozen=True)
class QueriedMetric:
    """A selector: a metric name and label matchers."""

    name: str
    matchers: tuple[Matcher, ...]


def metrics_of(expr: str) -> list[QueriedMetric]:
    """Return the selectors of an expression, one per metric name: {__name__=~"a|b"} yields two."""
    found: list[QueriedMetric] = []
    for node in _nodes(_parsed(expr)):
        if isinstance(node, VectorSelector):
            matchers = tuple(node.matchers.matchers)
            names = [matcher.value for matcher in matchers if matcher.name == "__name__"]
            rest = tuple(matcher for matcher in matchers if matcher.name != "__name__")
            found += [QueriedMetric(name, rest) for name in ([node.name] if node.name else "|".join(names).split("|"))]
    return found


def recorded() -> Recorded:
    """Return the series in scrapes/; every reconciled kind is added as a value of the label `controller`."""
    found = Recorded.of(path.read_text() for path in sorted(SCRAPES.glob("*.prom")))
    controllers = {resource.kind.name.lower() for operator in operators.installed() for resource in operator.resources}
    for labels in found.series.values():
        if "controller" in labels:
            labels["controller"] |= controllers
    return found


def _unseen(name: str, matcher: Matcher, seen: Labels) -> Iterator[str]:
    """Describe a matcher whose label or value does not occur in the recordings."""
    may_lack = matcher.op == MatchOp.Re and matcher.value.endswith("|")
    if matcher.name in TARGET or may_lack:
        return
    if matcher.name not in seen:
        yield f"{name} has no label {matcher.name}"
    elif matcher.name not in OPEN and seen[matcher.name] and matcher.op in (MatchOp.Equal, MatchOp.Re):
        pattern = re.escape(matcher.value) if matcher.op == MatchOp.Equal else matcher.value
        if not any(re.fullmatch(pattern, value) for value in seen[matcher.name]):
            yield f"{name} has no series with {matcher.name} {matcher.value}"


def _grouped(expr: Expr) -> Iterator[str]:
    """Yield the labels that aggregations and vector matching use."""
    for node in _nodes(expr):
        if isinstance(node, AggregateExpr) and node.modifier:
            yield from node.modifier.labels
        elif isinstance(node, BinaryExpr) and node.modifier:
            yield from node.modifier.matching.labels if node.modifier.matching else ()
            yield from node.modifier.group_labels or ()


def _created(expr: Expr) -> Iterator[str]:
    """Yield the labels that label_replace and label_join create."""
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
    """Parse PromQL; raises ValueError for a syntax error."""
    parsed: Expr = promql_parser.parse(expr)
    return parsed
