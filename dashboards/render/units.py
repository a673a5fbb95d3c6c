"""Format values in Grafana's units. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"))
_TIMES = ((86400.0 * 365, "years"), (86400.0 * 7, "weeks"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SMALL_TIMES = ((1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = {"reqps": " req/s", "ops": " ops/s", "short": ""}

UNITS = frozenset({"percentunit", "bytes", "Bps", "s", "string", *_RATES})
"""Supported units."""


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """Format a value with its unit.

    Args:
        decimals: digits after the decimal point; None for three significant digits.

    Raises:
        ValueError: the unit is not supported.
    """
    if unit not in UNITS:
        raise ValueError(f"unsupported unit {unit!r}; supported units: {', '.join(sorted(UNITS))}")
    if unit == "percentunit":
        return f"{_digits(value * 100, decimals)} %"
    if unit == "s":
        return _time(value, decimals)
    if unit in ("bytes", "Bps"):
        return _scaled(value, _BINARY, decimals, " ") + ("B" if unit == "bytes" else "B/s")
    return _scaled(value, _THOUSANDS, decimals, " ").rstrip() + _RATES.get(unit, "")


def scale(value: float, unit: str) -> float:
    """Return the factor of the unit prefix that suits a value, such as 1024 for bytes shown in KiB."""
    if unit == "percentunit":
        return 0.01
    if unit == "s":
        scales: Sequence[tuple[float, str]] = _TIMES if abs(value) >= 1 else _SMALL_TIMES
        return next((each for each, _ in scales if abs(value) >= each), scales[-1][0])
    return next((each for each, _ in (_BINARY if unit in ("bytes", "Bps") else _THOUSANDS) if abs(value) >= each), 1.0)


def _time(value: float, decimals: int | None) -> str:
    if value == 0:
        return "0 s"
    scales: Sequence[tuple[float, str]] = _TIMES if abs(value) >= 1 else _SMALL_TIMES
    scale, name = next((pair for pair in scales if abs(value) >= pair[0]), scales[-1])
    return f"{_digits(value / scale, decimals)} {name}"


def _scaled(value: float, scales: Sequence[tuple[float, str]], decimals: int | None, gap: str) -> str:
    scale, name = next((pair for pair in scales if abs(value) >= pair[0]), (1.0, ""))
    return f"{_digits(value / scale, decimals)}{gap}{name}"


def _digits(value: float, decimals: int | None) -> str:
    if decimals is None:
        decimals = 0 if value == round(value) else max(2 - math.floor(math.log10(abs(value))), 0)
        decimals = min(decimals, 2 if abs(value) >= 1 else 6)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
