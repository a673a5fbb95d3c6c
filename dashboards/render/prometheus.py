"""Asks a Prometheus over its HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, NamedTuple

Labels = dict[str, str]


class Series(NamedTuple):
    """Samples of one set of labels, in order: Unix times and values."""

    labels: Labels
    times: list[float]
    values: list[float]


class QueryFailed(Exception):
    """Prometheus refused a query, or gave no answer; says which and why."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One, by the URL at which it answers."""

    url: str

    def over(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """A query's values over time, in seconds of Unix time.

        Raises:
            QueryFailed: it was refused, or there was no answer.
        """
        return self._ask("query_range", expr, start=start, end=end, step=step)

    def at(self, expr: str, moment: float) -> list[Series]:
        """A query's values at one moment; raises as `over`."""
        return self._ask("query", expr, time=moment)

    def _ask(self, path: str, expr: str, **times: float) -> list[Series]:
        given = urllib.parse.urlencode({"query": expr, **times})
        request = urllib.request.Request(f"{self.url.rstrip('/')}/api/v1/{path}?{given}")  # noqa: S310  # its caller's URL
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                found = json.load(answer)
        except urllib.error.HTTPError as refused:
            raise QueryFailed(f"{refused.read().decode(errors='replace')}: {expr}") from None
        except OSError as error:
            raise QueryFailed(f"{self.url} does not answer: {error}") from error
        return [_series(series) for series in found["data"]["result"]]


def _series(found: dict[str, Any]) -> Series:
    """What is no number, such as a quantile of nothing, is none, as Grafana takes it."""
    samples = [(float(moment), float(value)) for moment, value in found.get("values") or [found["value"]]]
    samples = [(moment, value) for moment, value in samples if math.isfinite(value)]
    return Series(found["metric"], [moment for moment, _ in samples], [value for _, value in samples])
