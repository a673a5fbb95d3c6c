"""State of a tile of a generated dashboard: its query, evaluated in Prometheus, with its colours and texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from dashboards.model import NO_DATA
from dashboards.promql import filled
from dashboards.render.fields import COLOURS, ValueFormat, legend
from e2e.scenarios.incidents.model import Tile
from e2e.scenarios.support.commands import ROOT
from e2e.scenarios.support.prometheus import Prometheus

INTERVAL = "12s"
"""Window of rates: four scrapes of a server."""

NAMES = {code: name for name, code in COLOURS.items()}
"""Names of colours, by their codes."""


class Shown(NamedTuple):
    """State of a tile."""

    colour: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.colour})"


def shown(prometheus: Prometheus, tile: Tile, chosen: Mapping[str, str]) -> Shown:
    """Return what a tile shows now.

    Args:
        chosen: values of the dashboard's variables; all others match everything.
    """
    panel = panel_of(tile.dashboard, tile.title)
    [target] = panel["targets"]
    found = [
        (legend(target.get("legendFormat", ""), labels), value)
        for labels, value in prometheus.query(filled(target["expr"], chosen, interval=INTERVAL))
    ]
    values = [value for name, value in found if tile.series in ("", name) and math.isfinite(value)]
    if not values:
        return Shown(NO_DATA[1], NO_DATA[0])
    assert len(values) == 1, f"{tile.title} shows several series: {found}"
    form = ValueFormat.of(panel["fieldConfig"]["defaults"])
    return Shown(NAMES[form.colour(values[0])], form.text(values[0]))


def panel_of(uid: str, title: str) -> dict[str, Any]:
    """Return the JSON of a tile."""
    [panel] = [each for each in _dashboard(uid)["panels"] if each.get("type") == "stat" and each["title"] == title]
    found: dict[str, Any] = panel
    return found


@cache
def _dashboard(uid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"dashboards/generated/{uid}.json").read_text())
    return found
