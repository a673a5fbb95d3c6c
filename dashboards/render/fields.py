"""Format values and tables according to a panel's JSON: text, colour, columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.render.prometheus import Labels, Series
from dashboards.render.units import shown

Json = dict[str, Any]

COLOURS = {
    "green": "#73bf69",
    "yellow": "#f2cc0c",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "text": "#ccccdc",
}
PALETTE = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#fa6400", "#1f60c4", "#c4162a",
    "#8f3bb8", "#96d98d", "#ffee52", "#8ab8ff", "#ffb357", "#ff7383", "#ca95e5", "#56a64b", "#3274d9", "#e02f44",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """Format of a field's values.

    Attributes:
        steps: lower bound of each colour, ascending.
        mappings: text and colour shown instead of a value.
    """

    unit: str
    decimals: int | None
    steps: tuple[tuple[float, str], ...]
    mappings: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, config: Json) -> ValueFormat:
        """Create the format from the defaults or an override of a panel's fieldConfig."""
        steps = (config.get("thresholds") or {}).get("steps") or ()
        mappings = {
            value: (result["text"], COLOURS[result["color"]])
            for mapping in config.get("mappings") or ()
            if mapping["type"] == "value"
            for value, result in mapping["options"].items()
        }
        return cls(
            config.get("unit", "short"),
            config.get("decimals"),
            tuple(
                (-float("inf") if step["value"] is None else step["value"], COLOURS[step["color"]]) for step in steps
            ),
            mappings,
        )

    def text(self, value: float | str) -> str:
        if (found := self.mappings.get(_key(value))) is not None:
            return found[0]
        return value if isinstance(value, str) else shown(value, self.unit, self.decimals)

    def colour(self, value: float | str) -> str:
        if (found := self.mappings.get(_key(value))) is not None:
            return found[1]
        if isinstance(value, str):
            return COLOURS["text"]
        return next((colour for least, colour in reversed(self.steps) if value >= least), COLOURS["text"])


def _key(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def legend(form: str, labels: Labels) -> str:
    """Return the name of a series: `form` with {{label}} replaced, or all labels if `form` is empty."""
    if not form:
        return ", ".join(f"{name}={value}" for name, value in sorted(labels.items())) or "value"
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), form)


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell: text, colour and sort key."""

    text: str = ""
    colour: str = COLOURS["text"]
    order: float | str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: a label, or "Value #" and a query's letter.
        width: in pixels; 0 shares the remaining width.
    """

    name: str
    title: str
    width: int
    field: ValueFormat


def columns(panel: Json) -> list[TableColumn]:
    """Return the visible columns of a table, in order; all other fields are hidden."""
    [organized] = [each["options"] for each in panel["transformations"] if each["id"] == "organize"]
    titles, order = organized["renameByName"], organized["indexByName"]
    overrides = {
        override["matcher"]["options"]: {each["id"]: each["value"] for each in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["id"] == "byName"
    }
    return [
        TableColumn(
            name, titles[name], overrides[titles[name]].get("custom.width", 0), ValueFormat.of(overrides[titles[name]])
        )
        for name in sorted(titles, key=order.__getitem__)
    ]


def merged(answers: Mapping[str, Iterable[Series]], names: Iterable[str]) -> list[dict[str, float | str]]:
    """Merge query results into table rows: results whose common labels are equal share a row.

    Args:
        answers: query results, by the query's letter.
        names: labels and values to keep.
    """
    kept = set(names)
    rows: list[tuple[Labels, dict[str, float | str]]] = []
    for letter, found in answers.items():
        for series in found:
            labels = {name: value for name, value in series.labels.items() if name != "__name__"}
            row = next((row for row in rows if _agrees(row[0], labels) and f"Value #{letter}" not in row[1]), None)
            if row is None:
                row = (dict(labels), {})
                rows.append(row)
            row[0].update(labels)
            row[1].update(labels)
            if series.values:
                row[1][f"Value #{letter}"] = series.values[-1]
    return [{name: value for name, value in row.items() if name in kept} for _, row in rows]


def _agrees(one: Labels, other: Labels) -> bool:
    shared = one.keys() & other.keys()
    return bool(shared) and all(one[name] == other[name] for name in shared)


def cells(panel: Json, answers: Mapping[str, Iterable[Series]]) -> list[list[Cell]]:
    """Return the formatted rows of a table, in its sort order."""
    shown_columns = columns(panel)
    rows = [
        [
            Cell(column.field.text(value), column.field.colour(value), value)
            if (value := row.get(column.name)) is not None
            else Cell()
            for column in shown_columns
        ]
        for row in merged(answers, (column.name for column in shown_columns))
    ]
    sort = panel["options"]["sortBy"][0]["displayName"]
    at = [column.title for column in shown_columns].index(sort)
    return sorted(rows, key=lambda row: (isinstance(row[at].order, str), row[at].order, [cell.text for cell in row]))
