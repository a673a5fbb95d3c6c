"""Dashboard of memcached."""

from __future__ import annotations

from dashboards import explore, resources
from dashboards.model import BLUE, Column, Graph, OperatorPage, Query, Row, Stat, Table, bad_from, warns_from
from dashboards.promql import EACH, NAME, OWNER, POD, SERVED, Servers, or_none, quiet, rate, select
from operators.memcached.api import resource

KIND = resource.API.kind.name


_memcached = Servers("memcached")
_rate = _memcached.rate


def _commands(*more: str, by: str = OWNER) -> str:
    return _rate("commands_total", *more, by=by)


UP = _memcached("up")
GETS = 'command="get"'
HITS = _commands(GETS, 'status="hit"')
FULL = f"max by ({OWNER}) ({_memcached('current_bytes')} / {_memcached('limit_bytes')})"
CONNECTED = f"max by ({OWNER}) ({_memcached('current_connections')} / {_memcached('max_connections')})"

NOW = resources.now(
    KIND,
    "Servers",
    Stat(
        title="Commands",
        description="Commands per second, over all servers.",
        unit="reqps",
        queries=(Query(f"sum({_commands()})"),),
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Hit ratio",
        description="Share of gets that are hits. A good value depends on the workload; watch for sudden drops.",
        unit="percentunit",
        queries=(or_none(f"sum({HITS}) / (sum({_commands(GETS)}) > 0)", UP),),
        thresholds=BLUE,
        none="no gets",
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Fullest cache",
        description="Memory used by items, as a share of the limit (-m), for the fullest server. A full cache "
        "evicts items, which is normal; check whether evicted items were still in use.",
        unit="percentunit",
        queries=(Query(f"max({FULL})"),),
        thresholds=warns_from(0.99, notice=0.9),
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Evictions",
        description="Items evicted per second before they expired, over all servers.",
        unit="ops",
        queries=(Query(f"sum({_rate('items_evicted_total')})"),),
        thresholds=warns_from(100, notice=1),
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Connections used",
        description="Open connections, as a share of the limit (-c), for the server with the highest share. At the "
        "limit, new connections wait.",
        unit="percentunit",
        queries=(Query(f"max({CONNECTED})"),),
        thresholds=warns_from(0.95, notice=0.8),
        width=resources.TILE_WIDTH,
    ),
)

TRAFFIC = Row(
    "Traffic",
    (
        Graph(
            title="Commands",
            description="Commands per second, by command.",
            unit="reqps",
            queries=(Query(_commands(by="command"), "{{command}}"),),
            stacked=True,
        ),
        Graph(
            title="Hit ratio",
            none="no gets",
            description="Share of gets that are hits, by resource. It drops when servers are added, removed or "
            "restarted, and recovers as clients store items again.",
            unit="percentunit",
            queries=(quiet(f"{HITS} / ({_commands(GETS)} > 0)", NAME),),
            most=1,
        ),
        Graph(
            title="Commands by server",
            description="Commands per second, by server. A server far above the others has a hot key, or the clients "
            "hash unevenly.",
            unit="reqps",
            queries=(Query(_commands(by=EACH), POD),),
        ),
        Graph(
            title="Bytes received",
            description="Bytes received per second, by server.",
            unit="Bps",
            queries=(Query(_rate("read_bytes_total"), POD),),
        ),
        Graph(
            title="Bytes sent",
            description="Bytes sent per second, by server.",
            unit="Bps",
            queries=(Query(_rate("written_bytes_total"), POD),),
        ),
        Graph(
            title="CPU",
            description="CPU usage (user and system) of each server, in cores.",
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
            description="Memory used by items, as a share of the limit (-m), by server.",
            unit="percentunit",
            queries=(Query(f"{_memcached('current_bytes')} / {_memcached('limit_bytes')}", POD),),
            thresholds=bad_from(0.9, 0.99),
            most=1,
        ),
        Graph(
            title="Evicted and rejected items",
            description="Items per second that were evicted, rejected for lack of memory, or rejected as larger than "
            "the maximum item size (-I).",
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
            description="Age of the oldest item, for the slab class where it is lowest. The cache is too small if this "
            "is shorter than the time that clients need items.",
            unit="s",
            queries=(quiet(f"min by ({EACH}) ({_memcached('slab_items_age_seconds')} > 0)", POD),),
        ),
        Graph(
            title="Items",
            description="Number of stored items, including expired items that have not been reclaimed.",
            unit="short",
            queries=(Query(_memcached("current_items"), POD),),
        ),
        Graph(
            title="Evicted unfetched",
            none="no items",
            description="Items per second that were evicted without ever being fetched.",
            unit="ops",
            queries=(quiet(_rate("slab_items_evicted_unfetched_total"), POD),),
        ),
        Graph(
            title="Slab overhead",
            none="no items",
            description="Share of the memory of used slab chunks that items do not fill.",
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
            width=6,
            title="Connections used",
            description="Open connections, as a share of the limit (-c). At the limit, new connections wait.",
            unit="percentunit",
            queries=(Query(f"{_memcached('current_connections')} / {_memcached('max_connections')}", POD),),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
            width=6,
            title="New connections",
            description="Connections that each server accepts per second. Clients that connect for each command, or "
            "all at once after a failure, cost it more time than their commands do.",
            unit="ops",
            queries=(Query(_rate("connections_total"), POD),),
        ),
        Graph(
            width=6,
            title="Connection limits",
            description="Per second: connections rejected at the limit, times that the limit was reached, and times "
            "that a connection yielded to others (-R).",
            unit="ops",
            queries=(
                Query(_rate("connections_rejected_total", by=OWNER), f"{NAME} rejected"),
                Query(_rate("connections_listener_disabled_total", by=OWNER), f"{NAME} limit reached"),
                Query(_rate("connections_yielded_total", by=OWNER), f"{NAME} yielded"),
            ),
        ),
        Graph(
            width=6,
            title="Authentication and TLS errors",
            none="no passwords, no TLS",
            description="Failed authentications and TLS handshakes per second. No data if neither is enabled.",
            unit="ops",
            queries=(
                quiet(_rate("authentication_failures_total", by=OWNER), f"{NAME} authentication"),
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
            description="State of each server, from its exporter. A server without a pod has no row; the resources "
            "table reports it as not ready.",
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
                Column(source="pod", title="Server", link=explore.POD),
                Column(
                    source="A",
                    title="Up",
                    unit="short",
                    mappings=resources.OK,
                    width=75,
                ),
                Column(source="version", title="Version", width=95),
                Column(source="C", title="Uptime", unit="s", thresholds=BLUE, width=95),
                Column(source="D", title="Items", unit="short", thresholds=BLUE, width=95),
                Column(source="E", title="Memory (-m)", unit="bytes", thresholds=BLUE, width=95),
            ),
            sort="Up",
            width=16,
        ),
        Graph(
            title="Exporter errors",
            none="no errors",
            description="Scrapes per second in which the exporter could not read its server's statistics, by reason.",
            unit="ops",
            queries=(quiet(_rate("exporter_errors_total", by=f"{EACH}, reason"), f"{POD} {{{{reason}}}}"),),
            height=9,
        ),
    ),
)

DASHBOARD = resources.page(
    KIND,
    "Memcached",
    "memcached: readiness, traffic, memory and connections.",
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
        description="Commands per second. Only resources with an exporter (spec.metrics) are shown.",
        unit="reqps",
        queries=(quiet(rate("memcached_commands_total", SERVED), NAME),),
    ),
    fullness=Graph(
        title="memcached: memory",
        none="no exporters",
        description="Memory used by items, as a share of the limit, for the fullest server. A full cache evicts items.",
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
