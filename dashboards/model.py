"""Dashboards as plain values: these types describe what to show; grafana.py renders them as Grafana JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Colour = Literal["green", "yellow", "orange", "red", "blue", "purple", "text"]

Steps = tuple[tuple[float | None, Colour], ...]
"""Thresholds: lower bound of each colour, ascending; the first has no lower bound (None)."""

Mappings = tuple[tuple[str, str, Colour], ...]
"""Value mappings: the value, the text shown instead, and its colour."""

NONE = -1
"""Value of a stat that has nothing to show although its metrics exist; see promql.or_none."""

NO_DATA: tuple[str, Colour] = ("no data", "purple")
"""Text and colour of a stat whose query returns no series."""

BLUE: Steps = ((None, "blue"),)
"""Colour of a value that is neither good nor bad."""


def warns_from(warning: float, *, notice: float | None = None) -> Steps:
    """Return thresholds where high needs attention: green, yellow from `notice`, orange from `warning`.

    A tile is red only if clients are not served, or a target is absent: `bad_from`.
    """
    middle: Steps = ((notice, "yellow"),) if notice is not None else ()
    return ((None, "green"), *middle, (warning, "orange"))


def warns_below(good: float, *, notice: float | None = None) -> Steps:
    """Return thresholds where low needs attention: orange, yellow from `notice`, green from `good`."""
    middle: Steps = ((notice, "yellow"),) if notice is not None else ()
    return ((None, "orange"), *middle, (good, "green"))


def bad_from(warning: float | None, failing: float) -> Steps:
    """Return thresholds where high is bad: green, yellow from `warning`, red from `failing`."""
    middle: Steps = ((warning, "yellow"),) if warning is not None else ()
    return ((None, "green"), *middle, (failing, "red"))


def good_from(warning: float | None, good: float) -> Steps:
    """Return thresholds where low is bad: red, yellow from `warning`, green from `good`."""
    middle: Steps = ((warning, "yellow"),) if warning is not None else ()
    return ((None, "red"), *middle, (good, "green"))


@dataclass(frozen=True, slots=True)
class Query:
    """One Prometheus query.

    Attributes:
        expr: PromQL expression; may use the dashboard's variables.
        legend: name of each series, with labels as {{label}}.
        quiet: whether a healthy platform may return no series, such as for a list of failures.
    """

    expr: str
    legend: str = ""
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Fields common to all panels.

    Attributes:
        unit: Grafana's unit id, such as s, bytes, percentunit, reqps, short.
        width: in grid columns; a dashboard has 24.
        height: in grid rows of about 38 pixels.
        thresholds: colours of values; in a graph, drawn as lines.
        none: text shown when there is nothing to show, which is healthy. A graph shows it without series; a stat for
            the value `NONE`, so that missing metrics look different.
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
    """The present value, by an instant query; without series it is "no data" in a colour of its own.

    Attributes:
        calm: colour of the text `none`.
        filled: whether the colour fills the background.
        named: whether the name of each series is shown with its value.
    """

    width: int = 4
    height: int = 4
    calm: Colour = "text"
    filled: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Panel):
    """A time series graph.

    Attributes:
        stacked: whether the series are stacked.
        most: soft maximum of the axis.
        stepped: whether lines are drawn as steps, for values that change abruptly, such as counts.
    """

    width: int = 8
    height: int = 8
    thresholds: Steps = ()
    stacked: bool = False
    most: float | None = None
    stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Panel):
    """A state timeline: one bar per series, coloured by state."""

    width: int = 24
    height: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        source: a label name, or the letter of the query that provides the value.
        link: URL that a cell opens; ${__data.fields.label} is a label of the row.
        width: in pixels; 0 shares the remaining width.
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
        """The field name that Grafana uses after merging the query results."""
        return f"Value #{self.source}" if len(self.source) == 1 else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """A table of instant query results; series with the same labels share a row.

    Attributes:
        columns: columns shown, in order; other labels are hidden.
        sort: title of the column that rows are sorted by, ascending.
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
    """An annotation: a vertical line in every graph wherever the query returns a sample.

    Attributes:
        title: text of a line, with labels as {{label}}.
        shown: whether the annotation is enabled by default.
    """

    name: str
    expr: str
    title: str
    colour: Colour
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Variable:
    """A dashboard variable: the user selects values of a label.

    Attributes:
        source: series selector that provides the label's values.
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
    """A Grafana dashboard.

    Attributes:
        uid: stable identifier that links and alerts use; never changes.
        variables: dashboard variables, in addition to the data source.
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
    """The panels and dashboard that one operator contributes.

    Attributes:
        dashboard: dashboard of the operator's main kind.
        traffic: overview panel of client traffic; None to omit it.
        fullness: overview panel of memory or disk usage; None to omit it.
    """

    dashboard: Dashboard
    traffic: Graph | None = None
    fullness: Graph | None = None
