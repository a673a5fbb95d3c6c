"""Mapping of memcached's statistics to Prometheus metrics, and the text exposition format.

Names, types and labels are those of https://github.com/prometheus/memcached_exporter, even where they break Prometheus
conventions, so that existing dashboards and alerts work. Metrics that memcached_exporter lacks are at the end of
`server` in metrics.toml.

A statistic that the server does not return gives no sample: only servers with extstore or the proxy have those metrics.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Stats = Mapping[str, str]
"""Statistics by memcached's names: https://github.com/memcached/memcached/blob/master/doc/protocol.txt"""

Type = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and the statistics that are its values.

    Attributes:
        name: full name of the metric.
        type: counter or gauge.
        help: help text, with the unit if the name does not contain it.
        stats: values of `labels`, by statistic.
        labels: names of labels, in addition to `slab`.
    """

    name: str
    type: Type
    help: str
    stats: Mapping[str, tuple[str, ...]]
    labels: tuple[str, ...] = ()


def _metric(row: Mapping[str, str]) -> Metric:
    """Return the metric of a row of metrics.toml, which explains its fields."""
    kind: Type = "counter" if "counter" in row else "gauge"
    labels = tuple(row.get("labels", "").split())
    stats = [line.split() for line in row["stats"].splitlines()] if labels else [[row["stat"]]]
    return Metric(f"memcached_{row[kind]}", kind, row["help"], {stat: (*values,) for *values, stat in stats}, labels)


_ROWS = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text("utf-8"))
SERVER, SETTINGS, SLAB = (tuple(map(_metric, _ROWS[name])) for name in ("server", "settings", "slab"))
"""Metrics of `stats`, of `stats settings`, and of each slab class, with the label slab."""

_NUMBER = re.compile(r"-?[0-9]{1,40}([.][0-9]{1,40})?", re.ASCII)
"""Numbers as memcached writes them. Python accepts more, such as 1_000 and infinity, at which a scrape would fail."""

_COUNT = re.compile(r"[0-9]{1,20}", re.ASCII)

_BOOLEANS = {"yes": "1", "on": "1", "no": "0", "off": "0"}


def exposition(server: Stats, settings: Stats, slabs: Stats, items: Stats) -> str:
    """Return the metrics of a server in Prometheus's text format.

    Args:
        server: statistics of `stats`.
        settings: statistics of `stats settings`.
        slabs: statistics of `stats slabs`.
        items: statistics of `stats items`.
    """
    whole = _with_set_hits({**server, "total_malloced": slabs.get("total_malloced", "")})
    classes = [({"slab": number}, _with_set_hits(stats)) for number, stats in _stats_by_slab(slabs, items).items()]
    version = {"version": server.get("version", "")}
    return "".join(
        (
            family("memcached_version", "gauge", "Version of the server as a label; the value is 1.", [(version, 1)]),
            *_families(SERVER, [({}, whole)]),
            *_families(SETTINGS, [({}, _with_usable_connections(settings, server))]),
            *_families(SLAB, classes),
        )
    )


def family(name: str, kind: Type, text: str, samples: Iterable[tuple[Mapping[str, str], str | float]]) -> str:
    """Return a metric as text: https://prometheus.io/docs/instrumenting/exposition_formats/

    Args:
        name: full name of the metric.
        kind: counter or gauge.
        text: help text.
        samples: labels and value of each sample.

    Returns:
        Help, type and samples; empty without samples.
    """
    lines = [f"{name}{_format_labels(labels)} {value}\n" for labels, value in samples]
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(lines)}" if lines else ""


def _families(table: Iterable[Metric], parts: Iterable[tuple[Mapping[str, str], Stats]]) -> Iterator[str]:
    """Yield the metrics of a table for the parts of a server, each part with labels of its own."""
    for metric in table:
        samples = [
            ({**part, **dict(zip(metric.labels, values, strict=True))}, number)
            for part, stats in parts
            for stat, values in metric.stats.items()
            if (number := _number(stats.get(stat, ""))) is not None
        ]
        yield family(metric.name, metric.type, metric.help, samples)


def _stats_by_slab(slabs: Stats, items: Stats) -> dict[str, dict[str, str]]:
    """Group statistics by slab class: `3:chunk_size` of `stats slabs`, `items:3:number` of `stats items`."""
    found: dict[str, dict[str, str]] = {}
    for name, value in (*slabs.items(), *((name.removeprefix("items:"), value) for name, value in items.items())):
        number, colon, stat = name.partition(":")
        if colon:
            found.setdefault(number, {})[stat] = value
    return found


def _with_set_hits(stats: Stats) -> Stats:
    """Add set_hits: memcached counts each `cas` as a `set` too. Slab classes have no cas_misses."""
    counted = [stats.get(stat, "0") for stat in ("cmd_set", "cas_hits", "cas_misses", "cas_badval")]
    if "cmd_set" not in stats or not all(map(_COUNT.fullmatch, counted)):
        return stats
    total, *cas = map(int, counted)
    return {**stats, "set_hits": str(total - sum(cas))}


def _with_usable_connections(settings: Stats, server: Stats) -> Stats:
    """Reduce maxconns to the connections that clients can have.

    A server refuses connections from maxconns - 1 on. It counts the file descriptors that it reserves for its threads,
    which curr_connections leaves out.
    """
    most, reserved = settings.get("maxconns", ""), server.get("reserved_fds", "")
    if not (_COUNT.fullmatch(most) and _COUNT.fullmatch(reserved)):
        return settings
    return {**settings, "maxconns": str(max(int(most) - int(reserved) - 1, 1))}


def _number(text: str) -> str | None:
    """Return a value in Prometheus's format; None if it is not a number, such as `(null)`."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    return text if _NUMBER.fullmatch(text) else None


def _format_labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
