"""Every dashboard, and every question that they ask."""

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
"""What each chart brings. In the umbrella chart, its own copy of the operators' stands for those of its parts."""


class CatalogueQuery(NamedTuple):
    """One question.

    Attributes:
        dashboard: its uid.
        panel: its title; for a mark and a variable, "mark " and "variable " and its name.
        expr: PromQL, with variables: see promql.filled.
        quiet: whether a healthy platform may have no answer.
    """

    dashboard: str
    panel: str
    expr: str
    quiet: bool


def queries() -> Iterator[CatalogueQuery]:
    """Every expression of every panel, mark and variable, in order."""
    for page in DASHBOARDS:
        for panel in page.panels:
            for query in panel.queries:
                yield CatalogueQuery(page.uid, panel.title, query.expr, query.quiet)
        for mark in page.marks:
            yield CatalogueQuery(page.uid, f"mark {mark.name}", mark.expr, quiet=True)
        for variable in page.variables:
            yield CatalogueQuery(page.uid, f"variable {variable.name}", variable.source, variable.name == "cluster")
