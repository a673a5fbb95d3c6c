"""The operators, one package each; none imports another."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.runtime.operator import Operator


def installed() -> tuple[Operator, ...]:
    """Return the operators that the packages declare in `operator.py`, by name."""
    packages = sorted(part.name for part in pkgutil.iter_modules(__path__) if part.ispkg)
    return tuple(importlib.import_module(f"{__name__}.{name}.operator").OPERATOR for name in packages)
