"""Which operators an installation holds, and what they serve: `--known-operators`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.runtime.process import Operator

TITLES = ("OPERATOR", "RESOURCE", "SHORTNAMES", "APIVERSION", "KIND")


def known(package: ModuleType) -> Iterator[Operator]:
    """The operators of a package: what each part's `__main__` calls OPERATOR."""
    for part in pkgutil.iter_modules(package.__path__):
        if part.ispkg:
            yield importlib.import_module(f"{package.__name__}.{part.name}.__main__").OPERATOR


def table(package: ModuleType) -> str:
    """A line for each resource of each operator, in columns as those of `kubectl api-resources`."""
    rows = [TITLES]
    for operator in known(package):
        for resource in operator.crds:
            kind = resource.kind
            rows.append((operator.name, kind.plural, ",".join(resource.short_names), kind.api_version, kind.name))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)
