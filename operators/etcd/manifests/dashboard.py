"""The dashboard of etcd."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import BLUE, Column, Graph, Mark, OperatorPage, Query, Row, Stat, Table, bad_from
from dashboards.promql import (
    EACH,
    NAME,
    OWNER,
    POD,
    SERVED,
    SERVER,
    Servers,
    beside,
    quantile,
    quiet,
    rate,
    select,
    states,
    total,
)
from operators.etcd.api import backup, resource

KIND, BACKUP = resource.API.kind.name, backup.API.kind.name
TARGET = f"{EACH}, job, instance"
RESOURCE_NAME = "{{namespace}}/{{name}}"


_etcd = Servers("etcd")
_rate = _etcd.rate


def _p99(metric: str, by: str = EACH) -> str:
    return quantile(0.99, f"etcd_{metric}", SERVER, by=by)


def _grpc(metric: str, *more: str, by: str = "grpc_method") -> str:
    """Calls of clients; those between members go another way."""
    return beside(rate(f"grpc_server_{metric}_total", SERVER, *more, by=f"{TARGET}, {by}"), "etcd_server_has_leader")


def _open(method: str, service: str) -> str:
    """Streams begun and not ended."""
    labels = (SERVER, f'grpc_method="{method}"', f'grpc_service="etcdserverpb.{service}"')
    begun, ended = (
        f"sum by ({TARGET}) ({select(f'grpc_server_{what}_total', *labels)})" for what in ("started", "handled")
    )
    return f"sum by ({OWNER}) {beside(f'({begun} - {ended})', 'etcd_server_has_leader')}"


FAILED = 'grpc_code=~"Unknown|ResourceExhausted|Internal|Unavailable|DataLoss|DeadlineExceeded"'
FULL = f"{_etcd('mvcc_db_total_size_in_bytes')} / {_etcd('server_quota_backend_bytes')}"
FSYNC, COMMIT = _p99("disk_wal_fsync_duration_seconds"), _p99("disk_backend_commit_duration_seconds")
REASON = states("platform_resource_condition", BACKUP, 'type="Ready"', by="reason")
SNAPSHOT = states("platform_etcd_snapshot_last_success_timestamp_seconds", KIND)

NOW = Row(
    "Now",
    (
        resources.unready(KIND, width=3),
        resources.servers_ready(KIND, "Members", width=3),
        Stat(
            title="Without a leader",
            description="Clusters of which no member leads: they take no writes.",
            unit="short",
            queries=(
                Query(
                    f"count({states('platform_etcd_has_leader', KIND)}) - "
                    f"{total(states('platform_etcd_has_leader', KIND) + ' == 1')}"
                ),
            ),
            thresholds=bad_from(None, 1),
            none="no clusters",
            filled=True,
            width=3,
        ),
        Stat(
            title="Fullest database",
            description="Size of the largest database, of its quota. At 100 % etcd refuses writes until it is "
            "compacted and defragmented, which the operator does.",
            unit="percentunit",
            queries=(Query(f"max({FULL})"),),
            thresholds=bad_from(0.8, 0.95),
            width=3,
        ),
        Stat(
            title="Disk p99",
            description="The slowest member's time to sync its log (WAL), 99 of 100 times. Above 10 ms, look at the "
            "disk.",
            unit="s",
            queries=(Query(f"max({FSYNC})"),),
            thresholds=bad_from(0.01, 0.1),
            width=3,
        ),
        Stat(
            title="Failed calls",
            description="Clients' calls that ended otherwise than OK, of all; none where nobody calls.",
            unit="percentunit",
            queries=(quiet(f"sum({_grpc('handled', FAILED)}) / (sum({_grpc('handled')}) > 0)"),),
            thresholds=bad_from(0.001, 0.01),
            none="no calls",
            width=3,
        ),
        Stat(
            title="Oldest snapshot",
            description="Age of the last complete snapshot by schedule, of the cluster where it is oldest.",
            unit="s",
            queries=(quiet(f"max(time() - {SNAPSHOT})"),),
            thresholds=BLUE,
            none="no schedule",
            trend=False,
            width=3,
        ),
        resources.first_certificate(KIND, width=3),
    ),
)

RAFT = Row(
    "Consensus",
    (
        Graph(
            title="Voters and learners",
            description="Members by role, and as many as the spec asks for. A learner becomes a voter once it has all "
            "data.",
            unit="short",
            queries=(
                Query(states("platform_etcd_members", KIND, by="role"), f"{RESOURCE_NAME} {{{{role}}}}"),
                Query(states("platform_resource_desired_replicas", KIND), f"{RESOURCE_NAME} wanted"),
            ),
            stepped=True,
        ),
        Graph(
            title="Leader changes",
            description="Changes of leader that members saw within the last interval. One is a failover; many are a "
            "slow disk or network.",
            unit="short",
            queries=(
                Query(
                    f"max by ({OWNER}) (increase({_etcd('server_leader_changes_seen_total')}[$__rate_interval]))", NAME
                ),
            ),
        ),
        Graph(
            title="Proposals",
            description="Writes that members agreed on and that failed, in a second, and those that wait.",
            unit="short",
            queries=(
                Query(
                    f"max by ({OWNER}) (rate({_etcd('server_proposals_committed_total')}[$__rate_interval]))",
                    f"{NAME} agreed",
                ),
                Query(_rate("server_proposals_failed_total", by=OWNER), f"{NAME} failed"),
                Query(f"max by ({OWNER}) ({_etcd('server_proposals_pending')})", f"{NAME} waiting"),
            ),
        ),
        Graph(
            title="Behind the leader",
            description="Entries of the log that a member has yet to apply, after the member that applied most.",
            unit="short",
            queries=(
                Query(
                    f"max by ({OWNER}) ({_etcd('server_proposals_applied_total')}) - on ({OWNER}) group_right "
                    f"max by ({EACH}) ({_etcd('server_proposals_applied_total')})",
                    POD,
                ),
            ),
        ),
        Graph(
            title="Heartbeats not sent in time",
            description="Heartbeats that a leader sent late, in a second: its disk or processor is overloaded.",
            unit="ops",
            queries=(Query(_rate("server_heartbeat_send_failures_total"), POD),),
        ),
        Graph(
            title="Slow work",
            description="Requests applied slowly, and reads whose confirmation by the leader was slow or failed, in a "
            "second.",
            unit="ops",
            queries=(
                Query(_rate("server_slow_apply_total", by=OWNER), f"{NAME} slow apply"),
                Query(_rate("server_slow_read_indexes_total", by=OWNER), f"{NAME} slow read"),
                Query(_rate("server_read_indexes_failed_total", by=OWNER), f"{NAME} failed read"),
            ),
        ),
    ),
)

REQUESTS = Row(
    "Clients",
    (
        Graph(
            title="Calls",
            description="The ten calls that clients make most often, in a second, by method.",
            unit="reqps",
            queries=(Query(f"topk(10, sum by (grpc_method) ({_grpc('started')}))", "{{grpc_method}}"),),
            stacked=True,
        ),
        Graph(
            title="Failed calls",
            none="no failed calls",
            description="Clients' calls in a second that ended otherwise than OK, by code. NotFound and the like are "
            "answers, and not shown.",
            unit="reqps",
            queries=(quiet(f"sum by (grpc_code) ({_grpc('handled', FAILED, by='grpc_code')}) > 0", "{{grpc_code}}"),),
        ),
        Graph(
            title="Open watches and leases",
            description="Streams that clients hold open.",
            unit="short",
            queries=(
                Query(_open("Watch", "Watch"), f"{NAME} watches"),
                Query(_open("LeaseKeepAlive", "Lease"), f"{NAME} leases"),
            ),
        ),
        Graph(
            title="Client traffic",
            description="Bytes to and from clients in a second.",
            unit="Bps",
            queries=(
                Query(_rate("network_client_grpc_received_bytes_total", by=OWNER), f"{NAME} received"),
                Query(_rate("network_client_grpc_sent_bytes_total", by=OWNER), f"{NAME} sent"),
            ),
        ),
        Graph(
            title="Keys written and deleted",
            description="Puts, deletes and transactions in a second, as the busiest member applied them.",
            unit="ops",
            queries=tuple(
                Query(f"max by ({OWNER}) (rate({_etcd(f'mvcc_{what}_total')}[$__rate_interval]))", f"{NAME} {what}")
                for what in ("put", "delete", "txn")
            ),
        ),
        Graph(
            title="Peer round trip p99",
            none="no peers",
            description="Between members, 99 of 100 times. It must stay well below the election timeout (1 s).",
            unit="s",
            queries=(quiet(_p99("network_peer_round_trip_time_seconds"), POD),),
            thresholds=bad_from(0.1, 0.5),
        ),
    ),
)

DISK = Row(
    "Disk",
    (
        Graph(
            title="Database, of its quota",
            description="Size of each member's database file, of the quota.",
            unit="percentunit",
            queries=(Query(FULL, POD),),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
            title="Database size",
            description="Size of the file, and the part of it in use: the rest comes back by defragmenting.",
            unit="bytes",
            queries=(
                Query(f"max by ({OWNER}) ({_etcd('mvcc_db_total_size_in_bytes')})", f"{NAME} file"),
                Query(f"max by ({OWNER}) ({_etcd('mvcc_db_total_size_in_use_in_bytes')})", f"{NAME} in use"),
            ),
        ),
        Graph(
            title="Log sync p99",
            description="Time to sync the log (WAL) to disk, 99 of 100 times. A write waits for it on a majority.",
            unit="s",
            queries=(Query(FSYNC, POD),),
            thresholds=bad_from(0.01, 0.1),
        ),
        Graph(
            title="Commit p99",
            description="Time to commit to the database file, 99 of 100 times.",
            unit="s",
            queries=(Query(COMMIT, POD),),
            thresholds=bad_from(0.025, 0.25),
        ),
        Graph(
            title="Memory",
            description="Memory that members take (resident).",
            unit="bytes",
            queries=(Query(beside(select("process_resident_memory_bytes", SERVER), "etcd_server_has_leader"), POD),),
        ),
        Graph(
            title="CPU",
            description="Cores that members use, of the processor.",
            unit="short",
            queries=(
                Query(beside(rate("process_cpu_seconds_total", SERVER, by=TARGET), "etcd_server_has_leader"), POD),
            ),
        ),
    ),
)

BACKUPS = Row(
    "Snapshots",
    (
        Graph(
            title="Age of the last snapshot",
            none="no schedule",
            description="Time since the last complete snapshot by schedule. It falls to 0 with each; a line that only "
            "rises is a schedule that fails.",
            unit="s",
            queries=(quiet(f"time() - {SNAPSHOT}", RESOURCE_NAME),),
        ),
        Table(
            title="EtcdBackups",
            description="Snapshots asked for, by hand or by schedule.",
            unit="string",
            queries=(
                quiet(f"{states('platform_resource_phase', BACKUP, by='phase')} == 1"),
                quiet(f"time() - {states('platform_etcd_backup_completed_timestamp_seconds', BACKUP)}"),
                quiet(f"{REASON} == 1"),
            ),
            columns=(
                Column(source="namespace", title="Namespace", width=150),
                Column(source="name", title="Name"),
                Column(source="phase", title="Phase", mappings=resources.PHASES, width=110),
                Column(source="B", title="Age", unit="s", thresholds=BLUE, width=110),
                Column(source="reason", title="Reason", width=180),
            ),
            sort="Age",
            width=16,
            height=8,
        ),
    ),
)

DASHBOARD = resources.page(
    KIND,
    "etcd",
    "Clusters of etcd: quorum, latency, size and snapshots.",
    NOW,
    RAFT,
    REQUESTS,
    DISK,
    BACKUPS,
    metric="etcd_server_has_leader",
    marks=(
        Mark(
            "Leader changes",
            f"max by ({OWNER}) (increase({_etcd('server_leader_changes_seen_total')}[$__rate_interval])) > 0",
            f"{NAME} has another leader",
            "orange",
        ),
    ),
)

PAGE = OperatorPage(
    DASHBOARD,
    traffic=Graph(
        title="etcd: calls",
        none="no metrics",
        description="Clients' calls in a second.",
        unit="reqps",
        queries=(quiet(rate("grpc_server_started_total", SERVED, 'grpc_service=~"etcdserverpb.*"'), NAME),),
    ),
    fullness=Graph(
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
)
