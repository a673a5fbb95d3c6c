"""Dashboards contributed by the installed operators."""

from __future__ import annotations

import operators
from dashboards.model import OperatorPage
from dashboards.promql import KINDS
from shared.runtime.operator import load

BY_OPERATOR: dict[str, OperatorPage] = {
    operator.name: load(operator.dashboard) for operator in operators.installed() if operator.dashboard
}

PAGES = sorted(BY_OPERATOR.values(), key=lambda page: list(KINDS.values()).index(page.dashboard.uid))
"""Pages, ordered by the operators' API groups."""
