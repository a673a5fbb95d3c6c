"""Client of Prometheus's HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/"""

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
    """A time series: labels, sample times (Unix time) and values."""

    labels: Labels
    times: list[float]
    values: list[float]


class QueryFailed(Exception):
    """Prometheus rejected a query or did not respond; the message names the query and the cause."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus server at a URL."""

    url: str

    def over(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """Run a range query; times are in seconds of Unix time.

        Raises:
            QueryFailed: Prometheus rejected the query or did not respond.
        """
        return self._query("query_range", expr, start=start, end=end, step=step)

    def at(self, expr: str, moment: float) -> list[Series]:
        """Run an instant query.

        Raises:
            QueryFailed: Prometheus rejected the query or did not respond.
        """
        return self._query("query", expr, time=moment)

    def _query(self, path: str, expr: str, **times: float) -> list[Series]:
        parameters = urllib.parse.urlencode({"query": expr, **times})
        url = f"{self.url.rstrip('/')}/api/v1/{path}?{parameters}"
        request = urllib.request.Request(url)  # noqa: S310  # the caller's URL
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                found = json.load(answer)
        except urllib.error.HTTPError as refused:
            raise QueryFailed(f"{refused.read().decode(errors='replace')}: {expr}") from None
        except OSError as error:
            raise QueryFailed(f"Prometheus at {self.url} does not respond: {error}") from error
        return [_series(series) for series in found["data"]["result"]]


def _series(found: dict[str, Any]) -> Series:
    """Convert a result; drop samples that are not finite (such as a quantile of no observations), as Grafana does."""
    samples = [(float(moment), float(value)) for moment, value in found.get("values") or [found["value"]]]
    samples = [(moment, value) for moment, value in samples if math.isfinite(value)]
    return Series(found["metric"], [moment for moment, _ in samples], [value for _, value in samples])
