"""Axis labels of a graph: round values and round times."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from dashboards.render.fields import ValueFormat
from dashboards.render.units import scale


def values(axes: Axes, field: ValueFormat, top: float, pixels: float) -> None:
    """Label the value axis from 0 to slightly above `top`, with values that are round in the field's unit."""
    one = scale(top, field.unit)
    counted = MaxNLocator(4 if pixels < 300 else 6, integer=field.unit == "short" and top >= 4)
    end = top * 1.08 or 1.0
    axes.yaxis.set_major_locator(FixedLocator([float(tick) * one for tick in counted.tick_values(0, end / one)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: field.text(float(value))))
    axes.set_ylim(0, end)


def clock(axes: Axes, pixels: float) -> None:
    """Label the time axis with as many round times as fit."""
    start, end = axes.get_xlim()
    apart = next((step for step in _APART if (end - start) / step <= pixels / 75), _APART[-1])
    first = math.ceil(start / apart) * apart
    axes.xaxis.set_major_locator(
        FixedLocator([first + index * apart for index in range(int((end - first) / apart) + 1)])
    )
    form = "%H:%M" if apart >= 60 else "%H:%M:%S"
    axes.xaxis.set_major_formatter(FuncFormatter(lambda moment, _: f"{datetime.fromtimestamp(moment, UTC):{form}}"))


_APART = (5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Distances between time labels, in seconds."""
