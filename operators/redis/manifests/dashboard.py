"""Dashboard of Redis and Valkey."""

from __future__ import annotations

from dashboards import explore, resources
from dashboards.model import BLUE, Column, Graph, Mark, OperatorPage, Query, Row, Stat, Table, bad_from, warns_from
from dashboards.promql import (
    EACH,
    NAME,
    OWNER,
    POD,
    RESOURCE_NAME,
    SERVED,
    Servers,
    or_none,
    quiet,
    rate,
    select,
    states,
)
from operators.redis.api import resource

KIND = resource.API.kind.name
SLOTS = 16384


_redis = Servers("redis")
_rate = _redis.rate
FULL = f"{_redis('memory_used_bytes')} / ({_redis('memory_max_bytes')} > 0)"
HITS, MISSES = _rate("keyspace_hits_total", by=OWNER), _rate("keyspace_misses_total", by=OWNER)
HIT_RATIO = f"{HITS} / ({HITS} + {MISSES} > 0)"
REPLICA = _redis("instance_info", 'role="slave"')
PRIMARY = _redis("instance_info", 'role="master"')
UP = _redis("up")
LATENCY = _redis.quantile(0.99, "commands_latencies_usec", by="cmd")
UNSERVED = states("platform_redis_slots", KIND, 'state="unserved"')
LEFT = states("platform_redis_migration_slots_left", KIND)

NOW = resources.now(
    KIND,
    "Nodes",
    Stat(
        title="Unserved slots",
        description="Hash slots without a reachable primary, of 16384 per cluster. Their keys cannot be read or "
        "written.",
        unit="short",
        queries=(Query(f"sum({UNSERVED})"),),
        thresholds=bad_from(None, 1),
        filled=True,
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Replica links down",
        description="Replicas without a link to their primary. They receive no updates, and after a while they are "
        "not eligible for failover.",
        unit="short",
        queries=(or_none(f"sum({_redis('master_link_up')} == bool 0)", UP),),
        thresholds=warns_from(1),
        none="no replicas",
        filled=True,
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Commands",
        description="Commands per second, over all nodes.",
        unit="reqps",
        queries=(Query(f"sum({_rate('commands_processed_total')})"),),
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Hit ratio",
        description="Share of key lookups that are hits. A good value depends on the workload.",
        unit="percentunit",
        queries=(or_none(f"sum({HITS}) / (sum({HITS}) + sum({MISSES}) > 0)", UP),),
        none="no reads",
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Fullest node",
        description="Memory used as a share of maxmemory, for the fullest node. At 100 % the node evicts keys or "
        "rejects writes, depending on maxmemory-policy.",
        unit="percentunit",
        queries=(or_none(f"max({FULL})", UP),),
        thresholds=warns_from(0.95, notice=0.8),
        none="no maxmemory",
        width=resources.TILE_WIDTH,
    ),
)

SLOTS_ROW = Row(
    "Slots",
    (
        Graph(
            title="Served slots",
            description="Hash slots with a reachable primary. If fewer than 16384 are served, clients get errors.",
            unit="short",
            queries=(
                Query(states("platform_redis_slots", KIND, 'state="served"'), f"{RESOURCE_NAME} served"),
                quiet(f"{UNSERVED} > 0", f"{RESOURCE_NAME} unserved"),
            ),
            stepped=True,
            most=SLOTS,
        ),
        Graph(
            title="Slots left to migrate",
            description="Slots that a rebalance has yet to migrate; 0 if none is in progress. A line that does not "
            "fall indicates a blocked migration: see the reason of the Ready condition.",
            unit="short",
            queries=(Query(LEFT, RESOURCE_NAME),),
            stepped=True,
        ),
        Graph(
            title="Primaries and replicas",
            description="Number of nodes by the role that they report.",
            unit="short",
            queries=(
                Query(f"count by ({OWNER}) ({PRIMARY})", f"{NAME} primaries"),
                quiet(f"count by ({OWNER}) ({REPLICA})", f"{NAME} replicas"),
            ),
            stepped=True,
        ),
    ),
)

TRAFFIC = Row(
    "Traffic",
    (
        Graph(
            title="Commands",
            description="The ten most frequent commands, in commands per second.",
            unit="reqps",
            queries=(Query(f"topk(10, {_rate('commands_total', by='cmd')})", "{{cmd}}"),),
            stacked=True,
        ),
        Graph(
            title="Commands by node",
            description="Commands per second, by node. A primary far above the others has a hot key or slot.",
            unit="reqps",
            queries=(Query(_rate("commands_processed_total"), POD),),
        ),
        Graph(
            title="Command latency p99",
            none="no histograms (before 7.0)",
            description="99th percentile of the latency of the five slowest commands, without network time. Redis has "
            "histograms since 7.0, Valkey always.",
            unit="s",
            queries=(quiet(f"topk(5, {LATENCY} / 1e6)", "{{cmd}}"),),
        ),
        Graph(
            title="Mean command duration",
            none="no commands",
            description="Mean execution time of the five slowest commands, without network time.",
            unit="s",
            queries=(
                quiet(
                    f"topk(5, {_rate('commands_duration_seconds_total', by='cmd')} / "
                    f"({_rate('commands_total', by='cmd')} > 0))",
                    "{{cmd}}",
                ),
            ),
        ),
        Graph(
            title="Hit ratio",
            none="no reads",
            description="Share of key lookups that are hits, by resource.",
            unit="percentunit",
            queries=(quiet(HIT_RATIO, NAME),),
            most=1,
        ),
        Graph(
            title="Errors",
            none="no errors",
            description="Error replies per second, by error. `MOVED` and `ASK` redirect a client to another "
            "node; they are frequent only while slots migrate. Then `ERR` also counts keys that the operator looks for "
            "and that have moved.",
            unit="reqps",
            queries=(quiet(f"{_rate('errors_total', by='err')} > 0", "{{err}}"),),
        ),
        Graph(
            title="Network traffic",
            description="Bytes per second received from and sent to clients.",
            unit="Bps",
            queries=(
                Query(_rate("net_input_bytes_total", by=OWNER), f"{NAME} received"),
                Query(_rate("net_output_bytes_total", by=OWNER), f"{NAME} sent"),
            ),
        ),
    ),
)

MEMORY = Row(
    "Memory",
    (
        Graph(
            title="Share of maxmemory used",
            none="no maxmemory",
            description="Memory used as a share of maxmemory, by node. Nodes without maxmemory have no value; the "
            "container's memory limit applies to them.",
            unit="percentunit",
            queries=(quiet(FULL, POD),),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
            title="Memory used",
            description="Memory used by data and buffers, by node.",
            unit="bytes",
            queries=(Query(_redis("memory_used_bytes"), POD),),
        ),
        Graph(
            title="Fragmentation ratio",
            description="Resident memory divided by used memory. Values far above 1 indicate fragmentation (normal for "
            "small data sets), values below 1 indicate swapping.",
            unit="short",
            queries=(Query(_redis("mem_fragmentation_ratio"), POD),),
            decimals=2,
        ),
        Graph(
            title="Keys",
            none="no keys",
            description="Number of keys, by node. A replica has the keys of its primary.",
            unit="short",
            queries=(quiet(f"sum by ({EACH}) ({_redis('db_keys')})", POD),),
        ),
        Graph(
            title="Evicted and expired keys",
            description="Keys per second that were evicted because of maxmemory, or that expired.",
            unit="ops",
            queries=(
                Query(_rate("evicted_keys_total", by=OWNER), f"{NAME} evicted"),
                Query(_rate("expired_keys_total", by=OWNER), f"{NAME} expired"),
            ),
        ),
        Graph(
            title="CPU",
            description="CPU usage of each node, in cores. Redis executes commands on a single core.",
            unit="short",
            queries=(Query(f"{_rate('cpu_sys_seconds_total')} + {_rate('cpu_user_seconds_total')}", POD),),
        ),
    ),
)

REPLICATION = Row(
    "Replication",
    (
        Graph(
            title="Replication lag in bytes",
            none="no replicas",
            description="Bytes of the replication stream that a replica has not acknowledged, by its primary. After a "
            "failover these writes are lost.",
            unit="bytes",
            queries=(
                quiet(
                    f"{_redis('master_repl_offset')} - on (cluster, job, instance) group_right "
                    f"{_redis('connected_slave_offset_bytes')}",
                    f"{POD} to {{{{slave_ip}}}}",
                ),
            ),
        ),
        Graph(
            title="Link to the primary",
            none="no replicas",
            description="State of each replica's link to its primary: 1 is connected, 0 is not.",
            unit="short",
            queries=(quiet(f"min by ({EACH}) ({_redis('master_link_up')})", POD),),
            stepped=True,
            most=1,
        ),
        Graph(
            title="Full resyncs",
            description="Full resynchronizations of replicas per interval. They happen when a replica was disconnected "
            "for longer than the primary's replication backlog covers.",
            unit="short",
            queries=(Query(f"increase({_redis('replica_resyncs_full')}[$__rate_interval])", POD),),
        ),
    ),
)

CLIENTS = Row(
    "Clients and disk",
    (
        Graph(
            width=6,
            title="Connected clients",
            description="Client connections, as a share of maxclients, by node.",
            unit="percentunit",
            queries=(Query(f"{_redis('connected_clients')} / {_redis('max_clients')}", POD),),
            thresholds=bad_from(0.8, 0.95),
        ),
        Graph(
            width=6,
            title="New connections",
            description="Connections that each node accepts per second. Clients that connect for each command, or all "
            "at once after a failure, cost it more time than their commands do.",
            unit="ops",
            queries=(Query(_rate("connections_received_total"), POD),),
        ),
        Graph(
            width=6,
            title="Rejected and blocked clients",
            description="Connections rejected per second, and clients that wait in a blocking command.",
            unit="short",
            queries=(
                Query(_rate("rejected_connections_total", by=OWNER), f"{NAME} rejected"),
                Query(f"sum by ({OWNER}) ({_redis('blocked_clients')})", f"{NAME} blocked"),
            ),
        ),
        Graph(
            width=6,
            title="Changes since last RDB save",
            description="Changes since the last RDB snapshot. With an append-only file (AOF) they are persisted "
            "nevertheless.",
            unit="short",
            queries=(Query(_redis("rdb_changes_since_last_save"), POD),),
        ),
    ),
)

NODES = Row(
    "Nodes",
    (
        Table(
            title="Nodes",
            description="State of each node, from its exporter. A node without a pod has no row; the resources table "
            "reports it as not ready.",
            unit="string",
            queries=(
                Query(f"max by ({EACH}) ({_redis('up')})"),
                quiet(f"max by ({EACH}, role, redis_version) ({_redis('instance_info')})"),
                quiet(f"max by ({EACH}) ({_redis('uptime_in_seconds')})"),
                quiet(f"max by ({EACH}) ({_redis('cluster_state')})"),
                quiet(f"max by ({EACH}) ({_redis('rdb_last_bgsave_status')})"),
                quiet(f"max by ({EACH}) ({_redis('aof_last_write_status')})"),
                quiet(f"max by ({EACH}) ({_redis('memory_max_bytes')})"),
            ),
            columns=(
                Column(source="namespace", title="Namespace", width=150),
                Column(source="app_kubernetes_io_instance", title="Resource", width=160),
                Column(source="pod", title="Node", link=explore.POD),
                Column(
                    source="role",
                    title="Role",
                    mappings=(("master", "primary", "blue"), ("slave", "replica", "text")),
                    width=100,
                ),
                Column(source="A", title="Up", unit="short", mappings=resources.OK, width=90),
                Column(source="D", title="Cluster ok", unit="short", mappings=resources.OK, width=100),
                Column(source="E", title="Last RDB ok", unit="short", mappings=resources.WRITTEN, width=110),
                Column(source="F", title="Last AOF ok", unit="short", mappings=resources.WRITTEN, width=110),
                Column(source="redis_version", title="Version", width=110),
                Column(source="C", title="Uptime", unit="s", thresholds=BLUE, width=110),
                Column(source="G", title="maxmemory", unit="bytes", thresholds=BLUE, width=110),
            ),
            sort="Up",
        ),
    ),
)

PROMOTED = f"max by ({EACH}) ({PRIMARY}) and on ({EACH}) {REPLICA} offset 1m"

DASHBOARD = resources.page(
    KIND,
    "Redis",
    "Redis and Valkey clusters: slots, traffic, memory, replication and clients.",
    NOW,
    SLOTS_ROW,
    TRAFFIC,
    MEMORY,
    REPLICATION,
    CLIENTS,
    NODES,
    metric="redis_up",
    marks=(Mark("Promotions", PROMOTED, f"{POD} was promoted to primary", "orange"),),
)

PAGE = OperatorPage(
    DASHBOARD,
    traffic=Graph(
        title="Redis: commands",
        none="no exporters",
        description="Commands per second. Only clusters with an exporter (spec.metrics) are shown.",
        unit="reqps",
        queries=(quiet(rate("redis_commands_processed_total", SERVED), NAME),),
    ),
    fullness=Graph(
        title="Redis: memory",
        none="no maxmemory",
        description="Memory used as a share of maxmemory, for the fullest node. Nodes without maxmemory have no value.",
        unit="percentunit",
        queries=(
            quiet(
                f"max by ({OWNER}) ({select('redis_memory_used_bytes', SERVED)} / "
                f"({select('redis_memory_max_bytes', SERVED)} > 0))",
                NAME,
            ),
        ),
        thresholds=bad_from(0.8, 0.95),
        most=1,
    ),
)
