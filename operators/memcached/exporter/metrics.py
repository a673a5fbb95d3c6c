"""What the exporter shows: one table from memcached's statistics to Prometheus's metrics, and its text format. Pure.

Names, types and labels are those of https://github.com/prometheus/memcached_exporter, also where we would have chosen
others, so that dashboards and alerts made for it work; its command line and its scraping of many servers are not ours.
What it has not is at the end of `SERVER`. A statistic that a server does not tell is no metric of it: those of extstore
and of the proxy come from servers that use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Stats = Mapping[str, str]
"""Values by memcached's names: https://github.com/memcached/memcached/blob/master/doc/protocol.txt"""

Type = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and the statistics that are its values.

    Attributes:
        name: its whole name.
        help: what it counts, with the unit where the name does not say it.
        stats: the values of `labels`, by statistic.
        labels: beside those of the part that the statistics are of.
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
    _gauge("accepting_connections", "accepting_conns", "1 while new connections are taken, 0 at the limit."),
    _gauge("current_connections", "curr_connections", "Connections that are open."),
    _counter("connections_total", "total_connections", "Connections opened since the start."),
    _counter("connections_rejected_total", "rejected_connections", "Connections refused at the limit (-c)."),
    _counter("connections_yielded_total", "conn_yields", "Times a connection gave way after -R requests in a row."),
    _counter("connections_listener_disabled_total", "listen_disabled_num", "Times the limit of connections was hit."),
    Metric(
        "memcached_commands_total",
        "counter",
        "Commands by what came of them.",
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
    _gauge("current_items", "curr_items", "Items that are stored."),
    _counter("items_total", "total_items", "Items stored since the start."),
    _gauge("current_bytes", "bytes", "Memory that items take."),
    _gauge("limit_bytes", "limit_maxbytes", "Memory that items may take (-m)."),
    _gauge("malloced_bytes", "total_malloced", "Memory that slab pages take."),
    _counter("items_evicted_total", "evictions", "Valid items removed to make room."),
    _counter("items_reclaimed_total", "reclaimed", "Items stored in the place of an expired one."),
    _counter("item_too_large_total", "store_too_large", "Items refused as larger than -I."),
    _counter("item_no_memory_total", "store_no_memory", "Items refused for want of memory."),
    _counter("direct_reclaims_total", "direct_reclaims", "Times a worker had to reclaim or evict by itself."),
    _counter("lru_crawler_starts_total", "lru_crawler_starts", "Times an LRU crawler started."),
    _counter("lru_crawler_reclaimed_total", "crawler_reclaimed", "Items that the LRU crawler freed."),
    _counter("lru_crawler_items_checked_total", "crawler_items_checked", "Items that the LRU crawler looked at."),
    _counter("lru_crawler_moves_to_cold_total", "moves_to_cold", "Items moved from the HOT or WARM to the COLD LRU."),
    _counter("lru_crawler_moves_to_warm_total", "moves_to_warm", "Items moved from the COLD to the WARM LRU."),
    _counter("lru_crawler_moves_within_lru_total", "moves_within_lru", "Items moved up within the HOT or WARM LRU."),
    _counter("extstore_compact_lost_total", "extstore_compact_lost", "Items lost in compaction, as in use."),
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
    _counter("extstore_bytes_used", "extstore_bytes_used", "Bytes that items take in extstore."),
    _gauge("extstore_bytes_fragmented", "extstore_bytes_fragmented", "Bytes of extstore's pages that no item takes."),
    _gauge("extstore_bytes_limit", "extstore_limit_maxbytes", "Bytes that extstore may take."),
    _gauge("extstore_io_queue_depth", "extstore_io_queue", "Reads and writes that wait for extstore."),
    _counter("proxy_conn_requests_total", "proxy_conn_requests", "Requests that came to the proxy."),
    _counter("proxy_conn_errors_total", "proxy_conn_errors", "Errors of the proxy's connections."),
    _counter("proxy_conn_oom_total", "proxy_conn_oom", "Times the proxy had no memory for a connection."),
    _gauge("proxy_req_active", "proxy_req_active", "Requests under way in the proxy."),
    _counter("proxy_config_reloads_total", "proxy_config_reloads", "Times the proxy read its configuration."),
    _counter("proxy_config_reload_fails_total", "proxy_config_reload_fails", "Times it could not use it."),
    _counter("proxy_config_cron_runs_total", "proxy_config_cron_runs", "Runs of the configuration's crons."),
    _counter("proxy_config_cron_fails_total", "proxy_config_cron_fails", "Runs of them that failed."),
    _gauge("proxy_backend_total", "proxy_backend_total", "Servers behind the proxy."),
    _counter("proxy_backend_marked_bad_total", "proxy_backend_marked_bad", "Times one of them was given up."),
    _gauge("proxy_backend_failed", "proxy_backend_failed", "Servers behind the proxy that are given up."),
    _counter("proxy_request_failed_depth_total", "proxy_request_failed_depth", "Requests refused as too many waited."),
    _counter("round_robin_fallback_total", "round_robin_fallback", "Connections without a NAPI id, dealt out in turn."),
    _counter("unexpected_napi_ids_total", "unexpected_napi_ids", "Connections with a NAPI id beyond those expected."),
    # Ours: memcached_exporter has none of these.
    _counter("authentications_total", "auth_cmds", "Times a client gave a user and a password."),
    _counter("authentication_failures_total", "auth_errors", "Times these were wrong."),
    _counter("tls_handshake_errors_total", "ssl_handshake_errors", "TLS handshakes that failed."),
    _counter("tls_protocol_errors_total", "ssl_proto_errors", "TLS errors after the handshake."),
    _gauge(
        "tls_certificate_load_age_seconds", "time_since_server_cert_refresh", "Time since the certificate was read."
    ),
)
"""Metrics of `stats`."""

SETTINGS = (
    _gauge("max_connections", "maxconns", "Connections taken at once (-c), less some that the server itself needs."),
    _gauge("lru_crawler_enabled", "lru_crawler", "Whether the LRU crawler runs."),
    _gauge("lru_crawler_sleep", "lru_crawler_sleep", "Microseconds that the LRU crawler sleeps between items."),
    _gauge("lru_crawler_to_crawl", "lru_crawler_tocrawl", "Items that it looks at in a run, at most; 0 for all."),
    _gauge("lru_crawler_maintainer_thread", "lru_maintainer_thread", "Whether the LRU is kept in parts, by a thread."),
    _gauge("lru_crawler_hot_percent", "hot_lru_pct", "Percent of memory for the HOT LRU."),
    _gauge("lru_crawler_warm_percent", "warm_lru_pct", "Percent of memory for the WARM LRU."),
    _gauge("lru_crawler_hot_max_factor", "hot_max_factor", "Age in the HOT LRU at most, as a share of the COLD one's."),
    _gauge("lru_crawler_warm_max_factor", "warm_max_factor", "The same for the WARM LRU."),
)
"""Metrics of `stats settings`."""

SLAB = (
    _gauge("slab_chunk_size_bytes", "chunk_size", "Size of a chunk."),
    _gauge("slab_chunks_per_page", "chunks_per_page", "Chunks in a page."),
    _gauge("slab_current_pages", "total_pages", "Pages."),
    _gauge("slab_current_chunks", "total_chunks", "Chunks."),
    _gauge("slab_chunks_used", "used_chunks", "Chunks that items take."),
    _gauge("slab_chunks_free", "free_chunks", "Chunks that no item takes."),
    _gauge("slab_chunks_free_end", "free_chunks_end", "Chunks at the end of the last page that no item ever took."),
    _counter("slab_mem_requested_bytes", "mem_requested", "Memory that items take within their chunks."),
    Metric(
        "memcached_slab_commands_total",
        "counter",
        "Commands by what came of them.",
        {
            **{f"{command}_hits": (command, "hit") for command in ("get", "delete", "incr", "decr", "cas", "touch")},
            "cas_badval": ("cas", "badval"),
            "set_hits": ("set", "hit"),
        },
        ("command", "status"),
    ),
    _gauge("slab_current_items", "number", "Items."),
    _gauge("slab_hot_items", "number_hot", "Items in the HOT LRU."),
    _gauge("slab_warm_items", "number_warm", "Items in the WARM LRU."),
    _gauge("slab_cold_items", "number_cold", "Items in the COLD LRU."),
    _gauge("slab_temporary_items", "number_temp", "Items in the TEMPORARY LRU."),
    _gauge("slab_items_age_seconds", "age", "Age of the oldest item."),
    _gauge("slab_hot_age_seconds", "age_hot", "Age of the oldest item in the HOT LRU."),
    _gauge("slab_warm_age_seconds", "age_warm", "Age of the oldest item in the WARM LRU."),
    _counter("slab_items_evicted_total", "evicted", "Items evicted before they expired."),
    _counter("slab_items_evicted_nonzero_total", "evicted_nonzero", "Those of them that were to expire at all."),
    _counter("slab_items_evicted_time_seconds", "evicted_time", "How long the last one evicted had not been used."),
    _counter("slab_items_evicted_unfetched_total", "evicted_unfetched", "Items evicted that nobody ever got."),
    _counter("slab_items_expired_unfetched_total", "expired_unfetched", "Items expired that nobody ever got."),
    _counter("slab_items_outofmemory_total", "outofmemory", "Items refused for want of memory."),
    _counter("slab_items_tailrepairs_total", "tailrepairs", "Items at the tail that were freed by force."),
    _counter("slab_items_reclaimed_total", "reclaimed", "Items stored in the place of an expired one."),
    _counter("slab_items_crawler_reclaimed_total", "crawler_reclaimed", "Items that the LRU crawler freed."),
    _counter("slab_items_moves_to_cold", "moves_to_cold", "Items moved from the HOT or WARM to the COLD LRU."),
    _counter("slab_items_moves_to_warm", "moves_to_warm", "Items moved from the COLD to the WARM LRU."),
    _counter("slab_items_moves_within_lru", "moves_within_lru", "Items moved up within the HOT or WARM LRU."),
    Metric(
        "memcached_slab_lru_hits_total",
        "counter",
        "Items that were got, by the LRU that they were in.",
        {"hits_to_hot": ("hot",), "hits_to_warm": ("warm",), "hits_to_cold": ("cold",), "hits_to_temp": ("temporary",)},
        ("lru",),
    ),
)
"""Metrics of `stats slabs` and `stats items`, each with the label slab."""

_BOOLEANS = {"yes": "1", "on": "1", "no": "0", "off": "0"}


def exposition(server: Stats, settings: Stats, slabs: Stats, items: Stats) -> str:
    """A server's metrics, from what its four `stats` tell, in Prometheus's text format."""
    whole = _with_set_hits({**server, "total_malloced": slabs.get("total_malloced", "")})
    classes = [({"slab": number}, _with_set_hits(stats)) for number, stats in _stats_by_slab(slabs, items).items()]
    version = {"version": server.get("version", "")}
    return "".join(
        (
            family("memcached_version", "gauge", "1, with the server's version.", [(version, 1)]),
            *_families(SERVER, [({}, whole)]),
            *_families(SETTINGS, [({}, settings)]),
            *_families(SLAB, classes),
        )
    )


def family(name: str, kind: Type, text: str, samples: Iterable[tuple[Mapping[str, str], str | float]]) -> str:
    """One metric as text: https://prometheus.io/docs/instrumenting/exposition_formats/

    Args:
        samples: labels and value of each.

    Returns:
        The empty text if there is no sample.
    """
    lines = [f"{name}{_format_labels(labels)} {value}\n" for labels, value in samples]
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(lines)}" if lines else ""


def _families(table: Iterable[Metric], parts: Iterable[tuple[Mapping[str, str], Stats]]) -> Iterator[str]:
    """Each metric of a table, over the parts of a server, which some labels tell from each other."""
    for metric in table:
        samples = [
            ({**part, **dict(zip(metric.labels, values, strict=True))}, number)
            for part, stats in parts
            for stat, values in metric.stats.items()
            if (number := _number(stats.get(stat, ""))) is not None
        ]
        yield family(metric.name, metric.type, metric.help, samples)


def _stats_by_slab(slabs: Stats, items: Stats) -> dict[str, dict[str, str]]:
    """What slab classes have, by number: `3:chunk_size` of the one, `items:3:number` of the other."""
    found: dict[str, dict[str, str]] = {}
    for name, value in (*slabs.items(), *((name.removeprefix("items:"), value) for name, value in items.items())):
        number, colon, stat = name.partition(":")
        if colon:
            found.setdefault(number, {})[stat] = value
    return found


def _with_set_hits(stats: Stats) -> Stats:
    """What `set` stored: memcached counts each `cas` as a `set`, too; of a slab it does not tell cas_misses."""
    counted = [stats.get(stat, "0") for stat in ("cmd_set", "cas_hits", "cas_misses", "cas_badval")]
    if "cmd_set" not in stats or not all(map(str.isdecimal, counted)):
        return stats
    total, *cas = map(int, counted)
    return {**stats, "set_hits": str(total - sum(cas))}


def _number(text: str) -> str | None:
    """A value as Prometheus takes it; None for what is none, such as `(null)`."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        float(text)
    except ValueError:
        return None
    return text


def _format_labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
