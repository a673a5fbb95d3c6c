"""Draw panels with matplotlib, with the positions and colours of their JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from dashboards.render.axes import clock, values
from dashboards.render.fields import COLOURS, PALETTE, Json, ValueFormat, cells, columns, legend
from dashboards.render.prometheus import Series

PAGE, PANEL, EDGE, FAINT, INK = "#111217", "#181b1f", "#2f333b", "#8e95a3", COLOURS["text"]

DPI = 100
CHARACTER = 0.62
"""Width of a character, relative to its font size."""

Answers = Mapping[str, Sequence[Series]]
"""Query results, by the query's letter."""


class Box(NamedTuple):
    """A rectangle on the page, in pixels from the top left."""

    left: float
    top: float
    width: float
    height: float

    def inner(self, left: float, top: float, right: float, bottom: float) -> Box:
        return Box(self.left + left, self.top + top, self.width - left - right, self.height - top - bottom)


class Line(NamedTuple):
    """An annotation: its time and colour."""

    moment: float
    colour: str


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture that is being drawn.

    Attributes:
        start: start of the time range, in Unix time.
        end: end of the time range, in Unix time.
        lines: annotations, drawn across the graphs.
    """

    figure: Figure
    start: float
    end: float
    lines: Sequence[Line] = ()

    @classmethod
    def blank(cls, width: int, height: int, start: float, end: float, lines: Sequence[Line]) -> Canvas:
        return cls(Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAGE), start, end, lines)

    @property
    def size(self) -> tuple[float, float]:
        width, height = self.figure.get_size_inches()
        return float(width) * DPI, float(height) * DPI

    def text(
        self, left: float, top: float, text: str, *, size: float = 12, colour: str = INK, align: str = "left"
    ) -> None:
        """Draw text that is vertically centred at `top`; `size` is in pixels."""
        width, height = self.size
        self.figure.text(
            left / width, 1 - top / height, text.replace("$", r"\$"), fontsize=size * 72 / DPI, color=colour, ha=align,
            va="center",
        )  # fmt: skip

    def box(self, box: Box, *, fill: str = PANEL, edge: str = EDGE) -> None:
        width, height = self.size
        self.figure.add_artist(
            FancyBboxPatch(
                (box.left / width, 1 - (box.top + box.height) / height), box.width / width, box.height / height,
                boxstyle="square,pad=0", facecolor=fill, edgecolor=edge, linewidth=0.8, zorder=-1,
            )
        )  # fmt: skip

    def axes(self, box: Box) -> Axes:
        """Add the axes of a graph over the page's time range."""
        width, height = self.size
        area = (box.left / width, 1 - (box.top + box.height) / height, box.width / width, box.height / height)
        made = self.figure.add_axes(area, facecolor="none")
        made.set_xlim(self.start, self.end)
        for spine in made.spines.values():
            spine.set_visible(False)
        made.tick_params(colors=FAINT, labelsize=7.5, length=0)
        return made


def cut(text: str, pixels: float, size: float) -> str:
    """Shorten a text to a width, with an ellipsis."""
    most = max(int(pixels / (size * CHARACTER)), 1)
    return text if len(text) <= most else text[: most - 1] + "…"


def draw(page: Canvas, panel: Json, answers: Answers, box: Box) -> None:
    """Draw a panel of any supported type.

    Raises:
        KeyError: the panel's type is not supported.
    """
    page.box(box)
    page.text(box.left + 10, box.top + 16, cut(panel["title"], box.width - 16, 12), size=12.5)
    _DRAWN[panel["type"]](page, panel, answers, box)


def _named(panel: Json, answers: Answers) -> list[tuple[str, Series]]:
    forms = {target["refId"]: target.get("legendFormat", "") for target in panel["targets"]}
    return [(legend(forms[letter], series.labels), series) for letter, found in answers.items() for series in found]


def _nothing(page: Canvas, panel: Json, box: Box) -> None:
    text = panel["fieldConfig"]["defaults"].get("noValue", "no data")
    page.text(box.left + box.width / 2, box.top + box.height / 2 + 8, text, size=14, colour=FAINT, align="center")


def _stat(page: Canvas, panel: Json, answers: Answers, box: Box) -> None:
    found = [(name, series.values[-1]) for name, series in _named(panel, answers) if series.values]
    field, middle = ValueFormat.of(panel["fieldConfig"]["defaults"]), box.top + box.height / 2 + 4
    if not found:
        _missing(page, panel, box)
        return
    if panel["options"]["textMode"] == "value_and_name":
        for row, (name, value) in enumerate(found):
            line = cut(f"{name} {field.text(value)}", box.width - 20, 14)
            page.text(box.left + 10, box.top + 44 + 22 * row, line, size=14, colour=field.colour(value))
        return
    value = found[0][1]
    colour = field.colour(value)
    if panel["options"]["colorMode"] == "background":
        page.box(box, fill=colour, edge=colour)
        page.text(box.left + 10, box.top + 16, cut(panel["title"], box.width - 16, 12), size=12.5, colour=PAGE)
    ink = PAGE if panel["options"]["colorMode"] == "background" else colour
    text = field.text(value)
    size = min(36.0, (box.width - 20) / max(len(text), 1) / CHARACTER)
    page.text(box.left + box.width / 2, middle, text, size=size, colour=ink, align="center")


def _missing(page: Canvas, panel: Json, box: Box) -> None:
    """Draw a stat without series, by its mapping of missing values."""
    mappings = panel["fieldConfig"]["defaults"]["mappings"]
    [result] = [mapping["options"]["result"] for mapping in mappings if mapping["type"] == "special"]
    middle = box.top + box.height / 2 + 4
    page.text(
        box.left + box.width / 2, middle, result["text"], size=20, colour=COLOURS[result["color"]], align="center"
    )


def _graph(page: Canvas, panel: Json, answers: Answers, box: Box) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    field, custom = ValueFormat.of(defaults), defaults["custom"]
    found = [(name, series) for name, series in _named(panel, answers) if series.values]
    if not found:
        return _nothing(page, panel, box)
    colours = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(dict.fromkeys(n for n, _ in found))}
    below = _legend(page, [(name, colours[name]) for name in colours], box)
    axes = page.axes(box.inner(68, 34, 12, 24 + below))
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    floor: dict[float, float] = {}
    top = float(custom.get("axisSoftMax") or 0)
    for name, series in found:
        low = [floor.get(moment, 0.0) if stacked else 0.0 for moment in series.times]
        high = [base + value for base, value in zip(low, series.values, strict=True)]
        if stacked:
            floor.update(zip(series.times, high, strict=True))
        top = max(top, *high)
        style = "steps-post" if custom.get("lineInterpolation") == "stepAfter" else "default"
        for times, lows, highs in _unbroken(series, low, high, (page.end - page.start) / 20):
            axes.plot(
                times, highs, color=colours[name], linewidth=1.1, drawstyle=style, marker="" if times[1:] else "."
            )
            axes.fill_between(
                times, lows, highs, color=colours[name], alpha=custom["fillOpacity"] / 100, linewidth=0,
                step="post" if style == "steps-post" else None,
            )  # fmt: skip
    for least, colour in field.steps:
        if custom.get("thresholdsStyle") and 0 < least <= top * 1.08:
            axes.axhline(least, color=colour, linewidth=0.9, linestyle=(0, (6, 4)))
    for line in page.lines:
        axes.axvline(line.moment, color=line.colour, linewidth=0.9, linestyle=(0, (2, 2)), alpha=0.8)
    values(axes, field, top, box.height)
    clock(axes, box.width)
    axes.grid(color=EDGE, linewidth=0.6)
    axes.set_axisbelow(True)
    return None


def _unbroken(
    series: Series, low: list[float], high: list[float], most: float
) -> Iterator[tuple[list[float], list[float], list[float]]]:
    """Yield the parts of a series between gaps, so that no line is drawn across missing samples."""
    cuts = [index + 1 for index, (one, two) in enumerate(pairwise(series.times)) if two - one > most]
    for begin, end in pairwise([0, *cuts, len(series.times)]):
        yield series.times[begin:end], low[begin:end], high[begin:end]


def _legend(page: Canvas, entries: list[tuple[str, str]], box: Box) -> float:
    """Draw the names of the series below a graph, in at most two lines; return the height used."""
    size, rows, left = 10.5, 1, box.left + 14
    labels: list[tuple[int, float, str, str]] = []
    for index, (name, colour) in enumerate(entries):
        text = cut(name, box.width - 60, size)
        width = 22 + len(text) * size * CHARACTER
        margin = 8 if rows == 1 or index == len(entries) - 1 else 34
        if left + width > box.left + box.width - margin and labels:
            if rows == 2:
                labels.append((rows, left, f"+{len(entries) - index}", FAINT))
                break
            rows, left = rows + 1, box.left + 14
        labels.append((rows, left, text, colour))
        left += width
    for row, start, text, colour in labels:
        height = box.top + box.height - 12 - (rows - row) * 16
        page.text(start, height, "━", size=size, colour=colour)
        page.text(start + 13, height, text, size=size, colour=FAINT)
    return 16.0 * rows


def _timeline(page: Canvas, panel: Json, answers: Answers, box: Box) -> None:
    field = ValueFormat.of(panel["fieldConfig"]["defaults"])
    found = sorted((name, series) for name, series in _named(panel, answers) if series.values)
    if not found:
        return _nothing(page, panel, box)
    most = max(int((box.height - 60) / 17), 1)
    names = 12 + max(len(cut(name, 260, 10.5)) for name, _ in found[:most]) * 10.5 * CHARACTER
    axes = page.axes(box.inner(names + 10, 30, 12, 26))
    step = min((two - one for _, series in found for one, two in pairwise(series.times)), default=1.0)
    for row, (name, series) in enumerate(found[:most]):
        for start, end, value in intervals(series, step):
            length = min(end, page.end) - start
            axes.add_patch(
                Rectangle((start, row + 0.12), length, 0.76, color=field.colour(value), alpha=0.8, linewidth=0)
            )
        middle = box.top + 30 + (box.height - 56) * (row + 0.5) / len(found[:most])
        page.text(box.left + 10, middle, cut(name, 260, 10.5), size=10.5, colour=FAINT)
    axes.set_ylim(len(found[:most]), 0)
    axes.set_yticks([])
    clock(axes, box.width - names)
    if len(found) > most:
        page.text(
            box.left + box.width - 12, box.top + 16, f"+{len(found) - most}", size=11, colour=FAINT, align="right"
        )
    return None


def intervals(series: Series, step: float) -> Iterator[tuple[float, float, float]]:
    """Yield (start, end, value) of each run of equal samples; a sample lasts until the next, for at most one step."""
    current: tuple[float, float, float] | None = None
    for moment, value in zip(series.times, series.values, strict=True):
        if current and value == current[2] and moment < current[1] + step / 2:
            current = (current[0], moment + step, value)
            continue
        if current:
            yield current[0], min(current[1], moment), current[2]
        current = (moment, moment + step, value)
    if current:
        yield current


def _table(page: Canvas, panel: Json, answers: Answers, box: Box) -> None:
    rows = cells(panel, answers)
    if not rows:
        return _nothing(page, panel, box)
    shown, size = columns(panel), 11.5
    given = sum(column.width for column in shown)
    rest = max((box.width - 20 - given) / max(sum(not column.width for column in shown), 1), 60)
    scale = min((box.width - 20) / (given + rest * sum(not column.width for column in shown)), 1)
    left = box.left + 10
    most = int((box.height - 62) / 24)
    for index, column in enumerate(shown):
        width = (column.width or rest) * scale
        page.text(left, box.top + 42, cut(column.title, width, size), size=size, colour="#6e9fff")
        for number, row in enumerate(rows[:most]):
            cell = row[index]
            page.text(left, box.top + 68 + number * 24, cut(cell.text, width, size), size=size, colour=cell.colour)
        left += width
    if len(rows) > most:
        page.text(box.left + box.width - 12, box.top + 16, f"+{len(rows) - most}", size=11, colour=FAINT, align="right")
    return None


_DRAWN = {"stat": _stat, "timeseries": _graph, "state-timeline": _timeline, "table": _table}

TYPES = frozenset(_DRAWN)
"""Supported panel types."""
