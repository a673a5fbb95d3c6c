"""The dashboard of memcached."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import BLUE, Column, Graph, OperatorPage, Query, Row, Stat, Table, bad_from
from dashboards.promql import EACH, NAME, OWNER, POD, SERVED, Servers, quiet, rate, select
from operators.memcached.api import resource

KIND = resource.API.kind.name


_memcached = Servers("memcached")
_rate = _memcached.rate


def _commands(*more: str, by: str = OWNER) -> str:
    return _rate("commands_total", *more, by=by)


GETS = 'command="get"'
HITS = _commands(GETS, 'status="hit"')
FULL = f"max by ({OWNER}) ({_memcached('current_bytes')} / {_memcached('limit_bytes')})"
CONNECTED = f"max by ({OWNER}) ({_memcached('current_connections')} / {_memcached('max_connections')})"

NOW = Row(
    "Now",
    (
        resources.unready(KIND),
        resources.servers_ready(KIND, "Servers"),
        Stat(
            title="Commands",
            description="Commands that all servers answer in a second.",
            unit="reqps",
            queries=(Query(f"sum({_commands()})"),),
        ),
        Stat(
            title="Hit ratio",
            description="Gets that found their key. What is good depends on what is cached; watch for sudden falls.",
            unit="percentunit",
            queries=(Query(f"sum({HITS}) / (sum({_commands(GETS)}) > 0)", quiet=True),),
            thresholds=BLUE,
            none="no gets",
        ),
        Stat(
            title="Fullest cache",
            description="Memory that items take, of what they may take (-m). A full cache evicts, which is its work; "
            "look whether what it evicts was still wanted.",
            unit="percentunit",
            queries=(Query(f"max({FULL})"),),
            thresholds=bad_from(0.9, 0.99),
        ),
        Stat(
            title="Evictions",
            description="Valid items that all servers remove in a second to make room.",
            unit="ops",
            queries=(Query(f"sum({_rate('items_evicted_total')})"),),
            thresholds=bad_from(1, 100),
        ),
    ),
)

TRAFFIC = Row(
    "Traffic",
    (
        Graph(
            title="Commands",
            description="Commands in a second, by what they do.",
            unit="reqps",
            queries=(Query(_commands(by="command"), "{{command}}"),),
            stacked=True,
        ),
        Graph(
            title="Hit ratio",
            none="no gets",
            description="Gets that found their key, by resource; none where nobody gets. It falls when servers are "
            "added, removed or restarted empty, and recovers as clients store again.",
            unit="percentunit",
            queries=(quiet(f"{HITS} / ({_commands(GETS)} > 0)", NAME),),
            most=1,
        ),
        Graph(
            title="Commands by server",
            description="One server far above the others has a hot key, or the clients' ring is uneven.",
            unit="reqps",
            queries=(Query(_commands(by=EACH), POD),),
        ),
        Graph(
            title="Received",
            description="Bytes that servers receive in a second.",
            unit="Bps",
            queries=(Query(_rate("read_bytes_total"), POD),),
        ),
        Graph(
            title="Sent",
            description="Bytes that servers send in a second.",
            unit="Bps",
            queries=(Query(_rate("written_bytes_total"), POD),),
        ),
        Graph(
            title="CPU",
            description="Cores that servers use, in user mode and in the kernel.",
            unit="short",
            queries=(
                Query(f"{_rate('process_user_cpu_seconds_total')} + {_rate('process_system_cpu_seconds_total')}", POD),
            ),
        ),
    ),
)

MEMORY = Row(
    "Memory",
    (
        Graph(
            title="Memory used",
            description="Memory that items take, of what they may take (-m).",
            unit="percentunit",
            queries=(Query(f"{_memcached('current_bytes')} / {_memcached('limit_bytes')}", POD),),
            thresholds=bad_from(0.9, 0.99),
            most=1,
        ),
        Graph(
            title="Evictions and refusals",
            description="Items removed to make room, items refused for want of memory, and items refused as larger "
            "than -I, in a second.",
            unit="ops",
            queries=(
                Query(_rate("items_evicted_total", by=OWNER), f"{NAME} evicted"),
                Query(_rate("item_no_memory_total", by=OWNER), f"{NAME} no memory"),
                Query(_rate("item_too_large_total", by=OWNER), f"{NAME} too large"),
            ),
        ),
        Graph(
            title="Age of the oldest item",
            none="no items",
            description="The lowest over all slab classes: how long an item stays at least. Shorter than what clients "
            "expect, and the cache is too small.",
            unit="s",
            queries=(quiet(f"min by ({EACH}) ({_memcached('slab_items_age_seconds')} > 0)", POD),),
        ),
        Graph(
            title="Items",
            description="Items stored now, expired ones that nobody asked for among them.",
            unit="short",
            queries=(Query(_memcached("current_items"), POD),),
        ),
        Graph(
            title="Evicted unread",
            none="no items",
            description="Items evicted in a second that nobody ever got: what need not have been stored.",
            unit="ops",
            queries=(quiet(_rate("slab_items_evicted_unfetched_total"), POD),),
        ),
        Graph(
            title="Memory lost to rounding",
            none="no items",
            description="Of the memory of chunks in use, the part that items do not fill.",
            unit="percentunit",
            queries=(
                quiet(
                    f"1 - sum by ({EACH}) ({_memcached('slab_mem_requested_bytes')}) / (sum by ({EACH}) "
                    f"({_memcached('slab_chunks_used')} * {_memcached('slab_chunk_size_bytes')}) > 0)",
                    POD,
                ),
            ),
            most=1,
        ),
    ),
)

CONNECTIONS = Row(
    "Connections",
    (
        Graph(
            title="Connections used",
            description="Open connections, of those taken at once (-c). At the limit, clients wait.",
            unit="percentunit",
            queries=(Query(f"{_memcached('current_connections')} / {_memcached('max_connections')}", POD),),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
            title="Connections held up",
            description="Connections refused at the limit, times the limit was hit, and times a busy connection gave "
            "way to others, in a second.",
            unit="ops",
            queries=(
                Query(_rate("connections_rejected_total", by=OWNER), f"{NAME} refused"),
                Query(_rate("connections_listener_disabled_total", by=OWNER), f"{NAME} at the limit"),
                Query(_rate("connections_yielded_total", by=OWNER), f"{NAME} gave way"),
            ),
        ),
        Graph(
            title="Turned away",
            none="no passwords, no TLS",
            description="Wrong passwords and failed TLS handshakes in a second; none where neither is asked for.",
            unit="ops",
            queries=(
                quiet(_rate("authentication_failures_total", by=OWNER), f"{NAME} wrong password"),
                quiet(_rate("tls_handshake_errors_total", by=OWNER), f"{NAME} TLS handshake"),
            ),
        ),
    ),
)

SERVERS = Row(
    "Servers",
    (
        Table(
            title="Servers",
            description="Each server as its exporter sees it. A server whose pod is gone has no row: the resources "
            "above tell of it.",
            unit="string",
            queries=(
                Query(f"max by ({EACH}) ({_memcached('up')})"),
                quiet(f"max by ({EACH}, version) ({_memcached('version')})"),
                quiet(f"max by ({EACH}) ({_memcached('uptime_seconds')})"),
                quiet(f"max by ({EACH}) ({_memcached('current_items')})"),
                quiet(f"max by ({EACH}) ({_memcached('limit_bytes')})"),
            ),
            columns=(
                Column(source="namespace", title="Namespace", width=120),
                Column(source="app_kubernetes_io_instance", title="Resource", width=130),
                Column(source="pod", title="Server"),
                Column(
                    source="A",
                    title="Answers",
                    unit="short",
                    mappings=resources.WELL,
                    width=75,
                ),
                Column(source="version", title="Version", width=95),
                Column(source="C", title="Up for", unit="s", thresholds=BLUE, width=95),
                Column(source="D", title="Items", unit="short", thresholds=BLUE, width=95),
                Column(source="E", title="Memory (-m)", unit="bytes", thresholds=BLUE, width=95),
            ),
            sort="Answers",
            width=16,
        ),
        Graph(
            title="Exporter",
            none="no errors",
            description="Scrapes in a second for which the exporter got no answer of its server.",
            unit="ops",
            queries=(quiet(_rate("exporter_errors_total", by=f"{EACH}, reason"), f"{POD} {{{{reason}}}}"),),
            height=9,
        ),
    ),
)

DASHBOARD = resources.page(
    KIND,
    "Memcached",
    "Caches: whether they are as asked for, what they answer, and whether they are large enough.",
    NOW,
    TRAFFIC,
    MEMORY,
    CONNECTIONS,
    SERVERS,
    metric="memcached_up",
)

PAGE = OperatorPage(
    DASHBOARD,
    traffic=Graph(
        title="memcached: commands",
        none="no exporters",
        description="Commands in a second, of caches with an exporter (spec.metrics).",
        unit="reqps",
        queries=(quiet(rate("memcached_commands_total", SERVED), NAME),),
    ),
    fullness=Graph(
        title="memcached: memory",
        none="no exporters",
        description="Memory that items take, of what they may take, in the fullest server. A full cache evicts.",
        unit="percentunit",
        queries=(
            quiet(
                f"max by ({OWNER}) ({select('memcached_current_bytes', SERVED)} / "
                f"{select('memcached_limit_bytes', SERVED)})",
                NAME,
            ),
        ),
        thresholds=bad_from(0.9, 0.99),
        most=1,
    ),
)
