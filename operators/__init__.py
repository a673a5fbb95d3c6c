"""The operators, a package each; none imports another."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.runtime.operator import Operator


def installed() -> tuple[Operator, ...]:
    """The registry: what each package's operator.py declares, by name."""
    packages = sorted(part.name for part in pkgutil.iter_modules(__path__) if part.ispkg)
    return tuple(importlib.import_module(f"{__name__}.{name}.operator").OPERATOR for name in packages)
