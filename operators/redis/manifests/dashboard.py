"""The dashboard of Redis and Valkey."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import BLUE, Column, Graph, Mark, OperatorPage, Query, Row, Stat, Table, bad_from
from dashboards.promql import EACH, NAME, OWNER, POD, SERVED, Servers, quiet, rate, select, states
from operators.redis.api import resource

KIND = resource.API.kind.name
RESOURCE_NAME = "{{namespace}}/{{name}}"
SLOTS = 16384


_redis = Servers("redis")
_rate = _redis.rate
FULL = f"{_redis('memory_used_bytes')} / ({_redis('memory_max_bytes')} > 0)"
HITS, MISSES = _rate("keyspace_hits_total", by=OWNER), _rate("keyspace_misses_total", by=OWNER)
HIT_RATIO = f"{HITS} / ({HITS} + {MISSES} > 0)"
REPLICA = _redis("instance_info", 'role="slave"')
MASTER = _redis("instance_info", 'role="master"')
UNSERVED = states("platform_redis_slots", KIND, 'state="unserved"')
LEFT = states("platform_redis_migration_slots_left", KIND)

NOW = Row(
    "Now",
    (
        resources.unready(KIND, width=3),
        resources.servers_ready(KIND, "Nodes", width=3),
        Stat(
            title="Slots unserved",
            description="Slots that no serving node owns, of 16384 a cluster: their keys cannot be read or written.",
            unit="short",
            queries=(Query(f"sum({UNSERVED})"),),
            thresholds=bad_from(None, 1),
            none="no clusters",
            filled=True,
            width=3,
        ),
        Stat(
            title="Replicas cut off",
            description="Replicas without a link to their master: they fall behind, and cannot take over for long.",
            unit="short",
            queries=(quiet(f"sum({_redis('master_link_up')} == bool 0)"),),
            thresholds=bad_from(None, 1),
            none="no replicas",
            filled=True,
            width=3,
        ),
        Stat(
            title="Commands",
            description="Commands that all nodes answer in a second.",
            unit="reqps",
            queries=(Query(f"sum({_rate('commands_processed_total')})"),),
            width=3,
        ),
        Stat(
            title="Hit ratio",
            description="Reads that found their key. What is good depends on what is stored.",
            unit="percentunit",
            queries=(quiet(f"sum({HITS}) / (sum({HITS}) + sum({MISSES}) > 0)"),),
            none="no reads",
            width=3,
        ),
        Stat(
            title="Fullest node",
            description="Memory that a node uses, of its maxmemory. At 100 % it evicts or refuses writes, as it is "
            "set to.",
            unit="percentunit",
            queries=(quiet(f"max({FULL})"),),
            thresholds=bad_from(0.8, 0.95),
            none="no maxmemory",
            width=3,
        ),
        resources.first_certificate(KIND, width=3),
    ),
)

SLOTS_ROW = Row(
    "Slots",
    (
        Graph(
            title="Slots served",
            description="Slots that a serving node owns; all 16384 of a cluster are, or clients get errors.",
            unit="short",
            queries=(
                Query(states("platform_redis_slots", KIND, 'state="served"'), f"{RESOURCE_NAME} served"),
                quiet(f"{UNSERVED} > 0", f"{RESOURCE_NAME} unserved"),
            ),
            stepped=True,
            most=SLOTS,
        ),
        Graph(
            title="Slots still to move",
            description="While masters are added, removed or weighed anew; 0 otherwise. A line that stands still is a "
            "move that is held up: the resource's reason says by what.",
            unit="short",
            queries=(Query(LEFT, RESOURCE_NAME),),
            stepped=True,
        ),
        Graph(
            title="Masters and replicas",
            description="Nodes by role, as they say themselves.",
            unit="short",
            queries=(
                Query(f"count by ({OWNER}) ({MASTER})", f"{NAME} masters"),
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
            description="The ten commands asked most often, in a second.",
            unit="reqps",
            queries=(Query(f"topk(10, {_rate('commands_total', by='cmd')})", "{{cmd}}"),),
            stacked=True,
        ),
        Graph(
            title="Commands by node",
            description="One master far above the others has a hot key or slot.",
            unit="reqps",
            queries=(Query(_rate("commands_processed_total"), POD),),
        ),
        Graph(
            title="Mean time of a command",
            none="no commands",
            description="Time that a node works on a command, without the network; the five slowest commands.",
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
            description="Reads that found their key, by resource; none where nobody reads.",
            unit="percentunit",
            queries=(quiet(HIT_RATIO, NAME),),
            most=1,
        ),
        Graph(
            title="Errors",
            none="no errors",
            description="Answers that were errors, in a second, by kind. MOVED and ASK send a client elsewhere: many "
            "while slots move, few otherwise.",
            unit="reqps",
            queries=(quiet(f"{_rate('errors_total', by='err')} > 0", "{{err}}"),),
        ),
        Graph(
            title="Traffic",
            description="Bytes to and from clients in a second.",
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
            title="Memory used, of maxmemory",
            none="no maxmemory",
            description="None for nodes without maxmemory: theirs ends at the container's limit.",
            unit="percentunit",
            queries=(quiet(FULL, POD),),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
            title="Memory used",
            description="Memory of data and buffers.",
            unit="bytes",
            queries=(Query(_redis("memory_used_bytes"), POD),),
        ),
        Graph(
            title="Resident, of used",
            description="Memory that the kernel gave, of what Redis uses. Far above 1 is fragmentation, below 1 is "
            "swapping; small databases are always above.",
            unit="short",
            queries=(Query(_redis("mem_fragmentation_ratio"), POD),),
            decimals=2,
        ),
        Graph(
            title="Keys",
            none="no keys",
            description="Keys that a node holds; a replica holds those of its master.",
            unit="short",
            queries=(quiet(f"sum by ({EACH}) ({_redis('db_keys')})", POD),),
        ),
        Graph(
            title="Evicted and expired",
            description="Keys that went in a second: evicted for want of memory, or expired.",
            unit="ops",
            queries=(
                Query(_rate("evicted_keys_total", by=OWNER), f"{NAME} evicted"),
                Query(_rate("expired_keys_total", by=OWNER), f"{NAME} expired"),
            ),
        ),
        Graph(
            title="CPU",
            description="Cores that a node uses; one at most answers clients.",
            unit="short",
            queries=(Query(f"{_rate('cpu_sys_seconds_total')} + {_rate('cpu_user_seconds_total')}", POD),),
        ),
    ),
)

REPLICATION = Row(
    "Replication",
    (
        Graph(
            title="Behind the master",
            none="no replicas",
            description="Bytes that a replica has yet to get, by its master. It takes over with what it has.",
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
            title="Link to the master",
            none="no replicas",
            description="1 while a replica is connected to its master.",
            unit="short",
            queries=(quiet(f"min by ({EACH}) ({_redis('master_link_up')})", POD),),
            stepped=True,
            most=1,
        ),
        Graph(
            title="Copies made anew",
            description="Times within the last interval that a replica got all data again, not only what it missed: it "
            "was away for longer than the master's backlog reaches.",
            unit="short",
            queries=(Query(f"increase({_redis('replica_resyncs_full')}[$__rate_interval])", POD),),
        ),
    ),
)

CLIENTS = Row(
    "Clients and disk",
    (
        Graph(
            title="Clients connected",
            description="Connections of clients, of as many as a node takes (maxclients).",
            unit="percentunit",
            queries=(Query(f"{_redis('connected_clients')} / {_redis('max_clients')}", POD),),
            thresholds=bad_from(0.8, 0.95),
        ),
        Graph(
            title="Held up",
            description="Connections refused in a second, and clients that wait in a blocking command.",
            unit="short",
            queries=(
                Query(_rate("rejected_connections_total", by=OWNER), f"{NAME} refused"),
                Query(f"sum by ({OWNER}) ({_redis('blocked_clients')})", f"{NAME} blocked"),
            ),
        ),
        Graph(
            title="Changes not on disk",
            description="Changes since the last snapshot (RDB); with an append-only file they are on disk anyway.",
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
            description="Each node as its exporter sees it. A node whose pod is gone has no row: the resources above "
            "tell of it.",
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
                Column(source="pod", title="Node"),
                Column(
                    source="role",
                    title="Role",
                    mappings=(("master", "master", "blue"), ("slave", "replica", "text")),
                    width=100,
                ),
                Column(source="A", title="Answers", unit="short", mappings=resources.WELL, width=90),
                Column(source="D", title="Cluster ok", unit="short", mappings=resources.WELL, width=100),
                Column(source="E", title="Last RDB ok", unit="short", mappings=resources.WELL, width=110),
                Column(source="F", title="Last AOF ok", unit="short", mappings=resources.WELL, width=110),
                Column(source="redis_version", title="Version", width=110),
                Column(source="C", title="Up for", unit="s", thresholds=BLUE, width=110),
                Column(source="G", title="maxmemory", unit="bytes", thresholds=BLUE, width=110),
            ),
            sort="Answers",
        ),
    ),
)

BECAME_MASTER = f"max by ({EACH}) ({MASTER}) and on ({EACH}) {REPLICA} offset 1m"

DASHBOARD = resources.page(
    KIND,
    "Redis",
    "Clusters of Redis and Valkey: slots, replication, memory and what clients ask.",
    NOW,
    SLOTS_ROW,
    TRAFFIC,
    MEMORY,
    REPLICATION,
    CLIENTS,
    NODES,
    metric="redis_up",
    marks=(Mark("New masters", BECAME_MASTER, f"{POD} became a master", "orange"),),
)

PAGE = OperatorPage(
    DASHBOARD,
    traffic=Graph(
        title="Redis: commands",
        none="no exporters",
        description="Commands in a second, of clusters with an exporter (spec.metrics).",
        unit="reqps",
        queries=(quiet(rate("redis_commands_processed_total", SERVED), NAME),),
    ),
    fullness=Graph(
        title="Redis: memory",
        none="no maxmemory",
        description="Memory used, of maxmemory, in the fullest node; none where there is no maxmemory.",
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
