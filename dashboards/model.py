"""What a dashboard is made of, as plain values: whoever writes one says what to show, grafana.py says it to Grafana."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Colour = Literal["green", "yellow", "orange", "red", "blue", "purple", "text"]

Steps = tuple[tuple[float | None, Colour], ...]
"""Thresholds: from which value on which colour holds; the first holds from the lowest on (None)."""

Mappings = tuple[tuple[str, str, Colour], ...]
"""A value, what is shown in its place, and in which colour."""

BLUE: Steps = ((None, "blue"),)
"""A value that is neither good nor bad."""


def bad_from(warning: float | None, failing: float) -> Steps:
    """Green below, yellow from the first, red from the second on."""
    middle: Steps = ((warning, "yellow"),) if warning is not None else ()
    return ((None, "green"), *middle, (failing, "red"))


def good_from(warning: float | None, good: float) -> Steps:
    """Red below, yellow from the first, green from the second on."""
    middle: Steps = ((warning, "yellow"),) if warning is not None else ()
    return ((None, "red"), *middle, (good, "green"))


@dataclass(frozen=True, slots=True)
class Query:
    """A question to Prometheus.

    Attributes:
        expr: in PromQL, with the dashboard's variables.
        legend: the name of each series, with its labels as {{label}}.
        quiet: whether a healthy platform has no answer to it, such as a list of what fails.
    """

    expr: str
    legend: str = ""
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What every panel has.

    Attributes:
        unit: as Grafana names it, such as s, bytes, percentunit, reqps, short.
        width: of the 24 columns of a dashboard.
        height: in rows of a dashboard, about 38 pixels each.
        thresholds: colours of values; in a graph, lines.
        none: what is shown where there is no series.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    height: int
    thresholds: Steps = BLUE
    mappings: Mappings = ()
    decimals: int | None = None
    none: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat(Panel):
    """One number.

    Attributes:
        trend: whether it stands on a line of how it came to be.
        filled: whether the colour fills the panel.
    """

    width: int = 4
    height: int = 4
    trend: bool = True
    filled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Panel):
    """Lines over time.

    Attributes:
        stacked: whether they add up.
        most: the top of the axis at least.
        stepped: whether a value holds until the next, as counts of things do.
    """

    width: int = 8
    height: int = 8
    thresholds: Steps = ()
    stacked: bool = False
    most: float | None = None
    stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Panel):
    """One bar a series, coloured by what held when."""

    width: int = 24
    height: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        source: a label, or the letter of a query, whose value it is.
        link: where its cells lead; ${__data.fields.label} is a label of the row.
        width: in pixels; 0 for what is left.
    """

    source: str
    title: str
    unit: str = "string"
    thresholds: Steps = ()
    mappings: Mappings = ()
    link: str = ""
    width: int = 0

    @property
    def field(self) -> str:
        """The name that Grafana gives it once the queries' answers are merged."""
        return f"Value #{self.source}" if len(self.source) == 1 else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """Rows of what the queries say now, those with the same labels in one.

    Attributes:
        columns: what is shown, in order; other labels are not.
        sort: title of the column by which rows are ordered, the lowest first.
    """

    columns: tuple[Column, ...]
    sort: str
    width: int = 24
    height: int = 9


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What happened, as lines across the graphs: one wherever the query has a sample.

    Attributes:
        title: of a line, with labels as {{label}}.
        shown: whether it is, before somebody asks for it.
    """

    name: str
    expr: str
    title: str
    colour: Colour
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Variable:
    """What a person chooses: values of a label.

    Attributes:
        source: the series whose label it is.
    """

    name: str
    label: str
    source: str
    description: str

    @property
    def query(self) -> str:
        return f"label_values({self.source}, {self.label})"


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page.

    Attributes:
        uid: by which links and alerts name it, for ever.
        variables: what can be chosen, beside the source of data.
    """

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    marks: tuple[Mark, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels


@dataclass(frozen=True, slots=True)
class OperatorPage:
    """What one operator brings to the dashboards.

    Attributes:
        dashboard: the one of its kind.
        traffic: in the overview, how much clients ask of its databases; None for nothing.
        fullness: in the overview, how full they are; None for nothing.
    """

    dashboard: Dashboard
    traffic: Graph | None = None
    fullness: Graph | None = None
