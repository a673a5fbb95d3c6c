"""All dashboards and all of their queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dashboards.model import Dashboard
from dashboards.operators import OPERATORS
from dashboards.overview import OVERVIEW
from dashboards.pages import BY_OPERATOR, PAGES

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, *(page.dashboard for page in PAGES), OPERATORS)

SHIPPED = {f"{name}-operator": (page.dashboard, OPERATORS) for name, page in BY_OPERATOR.items()} | {
    "platform": (OVERVIEW, OPERATORS)
}
"""Dashboards of each chart. The umbrella chart's copy of the operators' dashboard replaces those of its subcharts."""


class CatalogueQuery(NamedTuple):
    """A query of a dashboard.

    Attributes:
        dashboard: uid of the dashboard.
        panel: title of the panel, or "mark NAME" for an annotation, or "variable NAME" for a variable.
        expr: PromQL with variables; see promql.filled.
        quiet: whether a healthy platform may return no series.
    """

    dashboard: str
    panel: str
    expr: str
    quiet: bool


def queries() -> Iterator[CatalogueQuery]:
    """Yield the queries of all panels, annotations and variables, in order."""
    for page in DASHBOARDS:
        for panel in page.panels:
            for query in panel.queries:
                yield CatalogueQuery(page.uid, panel.title, query.expr, query.quiet)
        for mark in page.marks:
            yield CatalogueQuery(page.uid, f"mark {mark.name}", mark.expr, quiet=True)
        for variable in page.variables:
            yield CatalogueQuery(page.uid, f"variable {variable.name}", variable.source, variable.name == "cluster")
