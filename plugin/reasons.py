"""Urgency of a reason, and what ends it: from the catalogues of the operators, which this distribution has as data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from plugin.databases import Database
from shared.status.reasons import COMMON, Catalogue, Severity

ENDS: Mapping[Severity, str] = {
    Severity.NORMAL: "The operator works or waits, and continues without help.",
    Severity.WARNING: "The operator keeps retrying. Look into it if it lasts.",
    Severity.ACTION: "Nothing changes until a user changes something.",
}
"""The end of the state that a reason describes, by its severity."""


def ends(database: Database, reason: str) -> str:
    """Return what ends a state; empty for a reason that the catalogues do not have, as of another version."""
    found = COMMON.reasons.get(reason) or _own(database.operator).reasons.get(reason)
    return "" if found is None else ENDS[found.severity]


@cache
def _own(operator: str) -> Catalogue:
    """Return the reasons that only this operator has."""
    package, page = find_spec("operators"), f"runbook/{operator}.md"
    paths = [Path(path, operator, "reasons.toml") for path in (package and package.submodule_search_locations) or ()]
    return next((Catalogue.read(page, path) for path in paths if path.is_file()), Catalogue(page))
