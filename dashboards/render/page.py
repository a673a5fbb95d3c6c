"""Draw a dashboard's JSON with data from a Prometheus server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dashboards.promql import filled
from dashboards.render.drawing import EDGE, FAINT, Answers, Box, Canvas, Line, draw
from dashboards.render.fields import COLOURS, Json
from dashboards.render.prometheus import Prometheus

COLUMN, ROW, GAP, MARGIN = 56, 38, 8, 16
HEAD, FOOT = 62, 34

CAPTION = (
    "Drawn by dashboards/render (matplotlib) from the dashboard's JSON and Prometheus data. This is not a screenshot "
    "of Grafana."
)

STEPS = 200
"""Samples per series."""


@dataclass(frozen=True, slots=True)
class View:
    """Time range and variables of a picture.

    Attributes:
        end: end of the time range, in Unix time.
        seconds: length of the time range.
        interval: value of $__rate_interval, such as 1m; at least four scrape intervals.
        chosen: regular expressions of values, by variable; others match all values.
    """

    end: float
    seconds: float
    interval: str = "1m"
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def start(self) -> float:
        return self.end - self.seconds

    @property
    def step(self) -> float:
        return max(self.seconds / STEPS, 1.0)


def picture(dashboard: Json, prometheus: Prometheus, view: View, file: Path) -> None:
    """Draw a dashboard.

    Args:
        dashboard: content of the dashboard's file.
        file: path of the PNG to write.

    Raises:
        QueryFailed: Prometheus rejected a query or is unreachable.
    """
    panels = dashboard["panels"]
    below = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW
    width, height = 24 * COLUMN + 2 * MARGIN, HEAD + below + FOOT
    page = Canvas.blank(width, height, view.start, view.end, list(_lines(dashboard, prometheus, view)))
    page.text(MARGIN, 24, dashboard["title"], size=20)
    page.text(MARGIN, 46, dashboard["description"], size=12, colour=FAINT)
    page.text(width - MARGIN, 24, _when(view), size=12, colour=FAINT, align="right")
    for panel in panels:
        grid = panel["gridPos"]
        box = Box(MARGIN + grid["x"] * COLUMN, HEAD + grid["y"] * ROW, grid["w"] * COLUMN - GAP, grid["h"] * ROW - GAP)
        if panel["type"] == "row":
            page.text(MARGIN, box.top + 14, panel["title"], size=14)
            page.box(Box(MARGIN, box.top + 27, width - 2 * MARGIN - GAP, 0.5), edge=EDGE)
        else:
            draw(page, panel, answers(panel, prometheus, view), box)
    page.text(MARGIN, height - FOOT / 2, CAPTION, size=11, colour=FAINT)
    page.figure.savefig(file, metadata={"Software": "dashboards/render", "Description": CAPTION})


def answers(panel: Json, prometheus: Prometheus, view: View) -> Answers:
    """Run a panel's queries and return the results."""
    return {
        target["refId"]: (
            prometheus.at(expr, view.end)
            if target.get("instant")
            else prometheus.over(expr, view.start, view.end, view.step)
        )
        for target in panel["targets"]
        for expr in [filled(target["expr"], view.chosen, interval=view.interval)]
    }


def _lines(dashboard: Json, prometheus: Prometheus, view: View) -> Iterator[Line]:
    """Yield a line at the start of each period in which an annotation's query returns samples."""
    for mark in dashboard["annotations"]["list"]:
        if not mark["enable"]:
            continue
        expr = filled(mark["expr"], view.chosen, interval=view.interval)
        for series in prometheus.over(expr, view.start, view.end, view.step):
            before = 0.0
            for moment in series.times:
                if moment - before > 2 * view.step:
                    yield Line(moment, COLOURS[mark["iconColor"]])
                before = moment


def _when(view: View) -> str:
    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (view.start, view.end))
    return f"{start:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"


def load(file: Path) -> Json:
    """Read a dashboard's JSON file."""
    found: Json = json.loads(file.read_text())
    return found
