"""The dashboard that one looks at first: everything of the platform, and the way down."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import Column, Dashboard, Graph, Query, Row, Stat, Table, bad_from, good_from
from dashboards.promql import (
    ALL,
    KIND_NAME,
    NAME,
    OWNER,
    SERVED,
    quantile,
    quiet,
    rate,
    ready,
    select,
    states,
    total,
    variables,
)

OPERATING = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
"""Labels of operators, wherever they run."""

FIRING = 'ALERTS{alertstate="firing",cluster=~"$cluster",alertname=~"(Platform|Memcached|Etcd|Redis).+"}'
LEADERS = f"max by (cluster, name) ({select('leader_election_master_status', OPERATING)})"
FAILED, DONE = (
    f"sum (rate({select('controller_runtime_reconcile_total', OPERATING, result)}[1h]))"
    for result in ('result="error"', 'result=~".+"')
)
USED = "Memory that items take, of what they may take, in the fullest server."

NOW = Row(
    "Is everything well?",
    (
        resources.unready(ALL),
        resources.unready_for(ALL),
        Stat(
            title="Alerts",
            description="Alerts of the platform that fire now. The list says which.",
            unit="short",
            queries=(Query(f"count({FIRING}) or vector(0)"),),
            thresholds=bad_from(None, 1),
            filled=True,
        ),
        Stat(
            title="Operators without a leader",
            description="Operators of which no replica leads: what runs, runs on, and nothing is mended.",
            unit="short",
            queries=(Query(f"count({LEADERS}) - {total(f'{LEADERS} == 1')}"),),
            thresholds=bad_from(None, 1),
            none="no operators",
            filled=True,
        ),
        resources.servers_ready(ALL, "Servers"),
        Stat(
            title="Resources",
            description="Memcacheds, EtcdClusters and RedisClusters that operators tell of.",
            unit="short",
            queries=(Query(f"count({resources.all_resources(ALL)})"),),
            none="none",
        ),
    ),
)

STATE = Row(
    "Resources",
    (
        resources.table(ALL),
        resources.readiness(ALL, height=7),
        Table(
            title="Alerts that fire",
            description="Those of the platform's own rules; each has a page in the runbook.",
            unit="string",
            queries=(quiet(FIRING),),
            columns=(
                Column(
                    source="severity",
                    title="Severity",
                    mappings=(
                        ("critical", "critical", "red"),
                        ("warning", "warning", "orange"),
                        ("info", "info", "blue"),
                    ),
                    width=110,
                ),
                Column(source="alertname", title="Alert", width=320),
                Column(source="kind", title="Kind", width=130),
                Column(source="namespace", title="Namespace", width=160),
                Column(source="name", title="Name"),
            ),
            sort="Severity",
            width=12,
            height=7,
        ),
        Graph(
            title="Not ready",
            description="Resources that are not Ready, by kind.",
            unit="short",
            queries=(
                Query(
                    f"count by (kind) ({resources.all_resources(ALL)}) - (count by (kind) ({ready(ALL)}) "
                    f"or count by (kind) ({resources.all_resources(ALL)}) * 0)",
                    "{{kind}}",
                ),
            ),
            stepped=True,
            stacked=True,
            width=12,
            height=7,
        ),
    ),
)

TRAFFIC = Row(
    "What clients ask",
    (
        Graph(
            title="memcached: commands",
            none="no exporters",
            description="Commands in a second, of caches with an exporter (spec.metrics).",
            unit="reqps",
            queries=(quiet(rate("memcached_commands_total", SERVED), NAME),),
        ),
        Graph(
            title="etcd: calls",
            none="no metrics",
            description="Clients' calls in a second.",
            unit="reqps",
            queries=(quiet(rate("grpc_server_started_total", SERVED, 'grpc_service=~"etcdserverpb.*"'), NAME),),
        ),
        Graph(
            title="Redis: commands",
            none="no exporters",
            description="Commands in a second, of clusters with an exporter (spec.metrics).",
            unit="reqps",
            queries=(quiet(rate("redis_commands_processed_total", SERVED), NAME),),
        ),
    ),
)

ROOM = Row(
    "How full they are",
    (
        Graph(
            title="memcached: memory",
            none="no exporters",
            description=f"{USED} A full cache evicts.",
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
        Graph(
            title="etcd: database",
            none="no metrics",
            description="Size of the largest member's database, of its quota. A full one takes no writes.",
            unit="percentunit",
            queries=(
                quiet(
                    f"max by ({OWNER}) ({select('etcd_mvcc_db_total_size_in_bytes', SERVED)} / "
                    f"{select('etcd_server_quota_backend_bytes', SERVED)})",
                    NAME,
                ),
            ),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
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
    ),
)

OPERATORS = Row(
    "The operators",
    (
        Stat(
            title="Reconciles that succeed",
            description="Of all within the last hour.",
            unit="percentunit",
            queries=(quiet(f"1 - {FAILED} / ({DONE} > 0)"),),
            none="no reconciles",
            thresholds=good_from(0.9, 0.99),
            decimals=2,
            width=4,
            height=8,
        ),
        Graph(
            title="Reconciles",
            description="Times in a second that an operator looked at a resource, by kind.",
            unit="ops",
            queries=(Query(rate("controller_runtime_reconcile_total", OPERATING, by="controller"), "{{controller}}"),),
            width=6,
        ),
        Graph(
            title="Time of a reconcile p99",
            description="99 of 100 reconciles take no longer than this.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "controller_runtime_reconcile_time_seconds", OPERATING, by="controller"),
                    "{{controller}}",
                ),
            ),
            width=7,
        ),
        Graph(
            title="Certificates end in",
            none="no certificates",
            description="Those of resources that have any. Ours are renewed by themselves when 30 days are left.",
            unit="s",
            queries=(
                quiet(f"{states('platform_resource_certificate_expiry_timestamp_seconds', ALL)} - time()", KIND_NAME),
            ),
            width=7,
        ),
    ),
)

OVERVIEW = Dashboard(
    uid="platform-overview",
    title="Platform / Overview",
    description="Every resource of the platform, whether it is well, and the way to its dashboard.",
    variables=variables("platform_resource_info", kinds=ALL),
    marks=resources.marks(ALL),
    rows=(NOW, STATE, TRAFFIC, ROOM, OPERATORS),
)
