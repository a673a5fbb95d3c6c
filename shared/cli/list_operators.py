"""The operators of an installation and the resources that they serve: `--known-operators`."""

from __future__ import annotations

from collections.abc import Iterable

from shared.runtime.operator import Operator

TITLES = ("OPERATOR", "RESOURCE", "SHORTNAMES", "APIVERSION", "KIND")


def table(operators: Iterable[Operator]) -> str:
    """Return a line for each resource of each operator, with columns like those of `kubectl api-resources`."""
    rows = [TITLES]
    for operator in operators:
        for resource in operator.resources:
            kind = resource.kind
            rows.append(
                (operator.process_name, kind.plural, ",".join(resource.short_names), kind.api_version, kind.name)
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)
