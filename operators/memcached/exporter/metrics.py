"""Mapping of memcached's statistics to Prometheus metrics, and the text exposition format. Pure.

Names, types and labels are those of https://github.com/prometheus/memcached_exporter, even where they break Prometheus
conventions, so that existing dashboards and alerts work. Metrics that memcached_exporter lacks are at the end of
`SERVER`.

A statistic that the server does not return gives no sample: only servers with extstore or the proxy have those metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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


def _counter(name: str, stat: str, text: str) -> Metric:
    return Metric(f"memcached_{name}", "counter", text, {stat: ()})


def _gauge(name: str, stat: str, text: str) -> Metric:
    return Metric(f"memcached_{name}", "gauge", text, {stat: ()})


SERVER = (
    _counter("uptime_seconds", "uptime", "Time since the server started."),
    _gauge("time_seconds", "time", "The server's clock, in Unix time."),
    _counter("process_user_cpu_seconds_total", "rusage_user", "CPU time of the server in user mode."),
    _counter("process_system_cpu_seconds_total", "rusage_system", "CPU time of the server in the kernel."),
    _counter("read_bytes_total", "bytes_read", "Bytes that the server received."),
    _counter("written_bytes_total", "bytes_written", "Bytes that the server sent."),
    _gauge(
        "accepting_connections",
        "accepting_conns",
        "1 if the server accepts new connections, 0 at the connection limit.",
    ),
    _gauge("current_connections", "curr_connections", "Open connections."),
    _counter("connections_total", "total_connections", "Connections accepted since the server started."),
    _counter(
        "connections_rejected_total", "rejected_connections", "Connections rejected at the connection limit (-c)."
    ),
    _counter("connections_yielded_total", "conn_yields", "Times a connection yielded to others after -R requests."),
    _counter("connections_listener_disabled_total", "listen_disabled_num", "Times the connection limit was reached."),
    Metric(
        "memcached_commands_total",
        "counter",
        "Commands by result.",
        {
            **{
                f"{command}_{count}": (command, status)
                for command in ("get", "delete", "incr", "decr", "cas", "touch")
                for count, status in (("hits", "hit"), ("misses", "miss"))
            },
            "cas_badval": ("cas", "badval"),
            "set_hits": ("set", "hit"),
            "cmd_flush": ("flush", "hit"),
        },
        ("command", "status"),
    ),
    _gauge("current_items", "curr_items", "Items currently stored."),
    _counter("items_total", "total_items", "Items stored since the server started."),
    _gauge("current_bytes", "bytes", "Memory used by items."),
    _gauge("limit_bytes", "limit_maxbytes", "Memory limit for items (-m)."),
    _gauge("malloced_bytes", "total_malloced", "Memory allocated to slab pages."),
    _counter("items_evicted_total", "evictions", "Valid items evicted to free memory."),
    _counter("items_reclaimed_total", "reclaimed", "Items stored in the memory of an expired item."),
    _counter(
        "item_too_large_total", "store_too_large", "Items rejected because they exceed the maximum item size (-I)."
    ),
    _counter("item_no_memory_total", "store_no_memory", "Items rejected for lack of memory."),
    _counter(
        "direct_reclaims_total", "direct_reclaims", "Times a worker thread had to reclaim or evict memory itself."
    ),
    _counter("lru_crawler_starts_total", "lru_crawler_starts", "Times an LRU crawler started."),
    _counter("lru_crawler_reclaimed_total", "crawler_reclaimed", "Items that the LRU crawler freed."),
    _counter("lru_crawler_items_checked_total", "crawler_items_checked", "Items checked by the LRU crawler."),
    _counter("lru_crawler_moves_to_cold_total", "moves_to_cold", "Items moved from the HOT or WARM to the COLD LRU."),
    _counter("lru_crawler_moves_to_warm_total", "moves_to_warm", "Items moved from the COLD to the WARM LRU."),
    _counter("lru_crawler_moves_within_lru_total", "moves_within_lru", "Items moved up within the HOT or WARM LRU."),
    _counter(
        "extstore_compact_lost_total", "extstore_compact_lost", "Items lost in compaction because they were in use."
    ),
    _counter("extstore_compact_rescued_total", "extstore_compact_rescues", "Items that compaction moved."),
    _counter("extstore_compact_skipped_total", "extstore_compact_skipped", "Items that compaction dropped as unused."),
    _counter("extstore_pages_allocated_total", "extstore_page_allocs", "Times a page of extstore was allocated."),
    _counter("extstore_pages_evicted_total", "extstore_page_evictions", "Times a page of extstore was evicted."),
    _counter("extstore_pages_reclaimed_total", "extstore_page_reclaims", "Times an empty page of extstore was freed."),
    _gauge("extstore_pages_free", "extstore_pages_free", "Pages of extstore without items."),
    _gauge("extstore_pages_used", "extstore_pages_used", "Pages of extstore with items."),
    _counter("extstore_objects_evicted_total", "extstore_objects_evicted", "Items evicted from extstore."),
    _counter("extstore_objects_read_total", "extstore_objects_read", "Items read from extstore."),
    _counter("extstore_objects_written_total", "extstore_objects_written", "Items written to extstore."),
    _gauge("extstore_objects_used", "extstore_objects_used", "Items in extstore."),
    _counter("extstore_bytes_evicted_total", "extstore_bytes_evicted", "Bytes evicted from extstore."),
    _counter("extstore_bytes_read_total", "extstore_bytes_read", "Bytes read from extstore."),
    _counter("extstore_bytes_written_total", "extstore_bytes_written", "Bytes written to extstore."),
    _counter("extstore_bytes_used", "extstore_bytes_used", "Bytes used by items in extstore."),
    _gauge("extstore_bytes_fragmented", "extstore_bytes_fragmented", "Unused bytes in extstore pages."),
    _gauge("extstore_bytes_limit", "extstore_limit_maxbytes", "Size limit of extstore in bytes."),
    _gauge("extstore_io_queue_depth", "extstore_io_queue", "Reads and writes in the queue of extstore."),
    _counter("proxy_conn_requests_total", "proxy_conn_requests", "Requests received by the proxy."),
    _counter("proxy_conn_errors_total", "proxy_conn_errors", "Errors of the proxy's connections."),
    _counter("proxy_conn_oom_total", "proxy_conn_oom", "Times the proxy had no memory for a connection."),
    _gauge("proxy_req_active", "proxy_req_active", "Requests in progress in the proxy."),
    _counter("proxy_config_reloads_total", "proxy_config_reloads", "Reloads of the proxy configuration."),
    _counter(
        "proxy_config_reload_fails_total", "proxy_config_reload_fails", "Failed reloads of the proxy configuration."
    ),
    _counter(
        "proxy_config_cron_runs_total", "proxy_config_cron_runs", "Runs of cron functions of the proxy configuration."
    ),
    _counter(
        "proxy_config_cron_fails_total",
        "proxy_config_cron_fails",
        "Failed runs of cron functions of the proxy configuration.",
    ),
    _gauge("proxy_backend_total", "proxy_backend_total", "Backends of the proxy."),
    _counter("proxy_backend_marked_bad_total", "proxy_backend_marked_bad", "Times a backend was marked bad."),
    _gauge("proxy_backend_failed", "proxy_backend_failed", "Backends of the proxy that are marked bad."),
    _counter(
        "proxy_request_failed_depth_total",
        "proxy_request_failed_depth",
        "Requests rejected because the queue was full.",
    ),
    _counter(
        "round_robin_fallback_total",
        "round_robin_fallback",
        "Connections without a NAPI ID, assigned to threads by round robin.",
    ),
    _counter("unexpected_napi_ids_total", "unexpected_napi_ids", "Connections with an unexpected NAPI ID."),
    # Not in memcached_exporter:
    _counter("authentications_total", "auth_cmds", "Authentication attempts."),
    _counter("authentication_failures_total", "auth_errors", "Failed authentication attempts."),
    _counter("tls_handshake_errors_total", "ssl_handshake_errors", "Failed TLS handshakes."),
    _counter("tls_protocol_errors_total", "ssl_proto_errors", "TLS errors after the handshake."),
    _gauge(
        "tls_certificate_load_age_seconds",
        "time_since_server_cert_refresh",
        "Time since the server loaded its certificate.",
    ),
)
"""Metrics of `stats`."""

SETTINGS = (
    _gauge(
        "max_connections",
        "maxconns",
        "Maximum number of connections (-c), minus those that the server reserves for itself.",
    ),
    _gauge("lru_crawler_enabled", "lru_crawler", "1 if the LRU crawler is enabled."),
    _gauge("lru_crawler_sleep", "lru_crawler_sleep", "Microseconds that the LRU crawler sleeps between items."),
    _gauge(
        "lru_crawler_to_crawl",
        "lru_crawler_tocrawl",
        "Maximum number of items that the LRU crawler checks per run; 0 means all.",
    ),
    _gauge(
        "lru_crawler_maintainer_thread", "lru_maintainer_thread", "1 if a maintainer thread manages a segmented LRU."
    ),
    _gauge("lru_crawler_hot_percent", "hot_lru_pct", "Percent of memory for the HOT LRU."),
    _gauge("lru_crawler_warm_percent", "warm_lru_pct", "Percent of memory for the WARM LRU."),
    _gauge("lru_crawler_hot_max_factor", "hot_max_factor", "Maximum age in the HOT LRU, relative to the COLD LRU."),
    _gauge("lru_crawler_warm_max_factor", "warm_max_factor", "Maximum age in the WARM LRU, relative to the COLD LRU."),
)
"""Metrics of `stats settings`."""

SLAB = (
    _gauge("slab_chunk_size_bytes", "chunk_size", "Size of a chunk of the slab class."),
    _gauge("slab_chunks_per_page", "chunks_per_page", "Chunks per page."),
    _gauge("slab_current_pages", "total_pages", "Pages of the slab class."),
    _gauge("slab_current_chunks", "total_chunks", "Chunks of the slab class."),
    _gauge("slab_chunks_used", "used_chunks", "Chunks used by items."),
    _gauge("slab_chunks_free", "free_chunks", "Free chunks."),
    _gauge("slab_chunks_free_end", "free_chunks_end", "Chunks at the end of the last page that were never used."),
    _gauge("slab_mem_requested_bytes", "mem_requested", "Memory used by items within their chunks."),
    Metric(
        "memcached_slab_commands_total",
        "counter",
        "Commands by result.",
        {
            **{f"{command}_hits": (command, "hit") for command in ("get", "delete", "incr", "decr", "cas", "touch")},
            "cas_badval": ("cas", "badval"),
            "set_hits": ("set", "hit"),
        },
        ("command", "status"),
    ),
    _gauge("slab_current_items", "number", "Items of the slab class."),
    _gauge("slab_hot_items", "number_hot", "Items in the HOT LRU."),
    _gauge("slab_warm_items", "number_warm", "Items in the WARM LRU."),
    _gauge("slab_cold_items", "number_cold", "Items in the COLD LRU."),
    _gauge("slab_temporary_items", "number_temp", "Items in the TEMPORARY LRU."),
    _gauge("slab_items_age_seconds", "age", "Age of the oldest item."),
    _gauge("slab_hot_age_seconds", "age_hot", "Age of the oldest item in the HOT LRU."),
    _gauge("slab_warm_age_seconds", "age_warm", "Age of the oldest item in the WARM LRU."),
    _counter("slab_items_evicted_total", "evicted", "Items evicted before they expired."),
    _counter("slab_items_evicted_nonzero_total", "evicted_nonzero", "Items with an expiration time that were evicted."),
    _counter(
        "slab_items_evicted_time_seconds", "evicted_time", "Time since the last use of the most recently evicted item."
    ),
    _counter("slab_items_evicted_unfetched_total", "evicted_unfetched", "Items evicted that no client ever fetched."),
    _counter("slab_items_expired_unfetched_total", "expired_unfetched", "Items expired that no client ever fetched."),
    _counter("slab_items_outofmemory_total", "outofmemory", "Items rejected for lack of memory."),
    _counter(
        "slab_items_tailrepairs_total",
        "tailrepairs",
        "Items with leaked references that were freed at the tail of the LRU.",
    ),
    _counter("slab_items_reclaimed_total", "reclaimed", "Items stored in the memory of an expired item."),
    _counter("slab_items_crawler_reclaimed_total", "crawler_reclaimed", "Items that the LRU crawler freed."),
    _counter("slab_items_moves_to_cold", "moves_to_cold", "Items moved from the HOT or WARM to the COLD LRU."),
    _counter("slab_items_moves_to_warm", "moves_to_warm", "Items moved from the COLD to the WARM LRU."),
    _counter("slab_items_moves_within_lru", "moves_within_lru", "Items moved up within the HOT or WARM LRU."),
    Metric(
        "memcached_slab_lru_hits_total",
        "counter",
        "Items fetched, by LRU.",
        {"hits_to_hot": ("hot",), "hits_to_warm": ("warm",), "hits_to_cold": ("cold",), "hits_to_temp": ("temporary",)},
        ("lru",),
    ),
)
"""Metrics of `stats slabs` and `stats items`, each with the label slab."""

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
