"""Dashboard of etcd."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import BLUE, Column, Graph, Mark, OperatorPage, Query, Row, Stat, Table, bad_from, warns_from
from dashboards.promql import (
    EACH,
    NAME,
    OWNER,
    POD,
    RESOURCE_NAME,
    SERVED,
    SERVER,
    Servers,
    of_targets_with,
    or_none,
    quiet,
    rate,
    select,
    states,
    total,
)
from operators.etcd.api import backup, resource

KIND, BACKUP = resource.API.kind.name, backup.API.kind.name
TARGET = f"{EACH}, job, instance"


_etcd = Servers("etcd")
_rate = _etcd.rate


def _p99(metric: str, by: str = EACH) -> str:
    return _etcd.quantile(0.99, metric, by)


def _grpc(metric: str, *more: str, by: str = "grpc_method") -> str:
    """Return the rate of clients' gRPC calls; members use a different protocol between each other."""
    calls = rate(f"grpc_server_{metric}_total", SERVER, *more, by=f"{TARGET}, {by}")
    return of_targets_with("etcd_server_has_leader", calls)


def _open(method: str, service: str) -> str:
    """Return the number of open streams of a method."""
    labels = (SERVER, f'grpc_method="{method}"', f'grpc_service="etcdserverpb.{service}"')
    started, handled = (
        f"sum by ({TARGET}) ({select(f'grpc_server_{what}_total', *labels)})" for what in ("started", "handled")
    )
    return f"sum by ({OWNER}) {of_targets_with('etcd_server_has_leader', f'({started} - {handled})')}"


UP = _etcd("server_has_leader")
FAILED = 'grpc_code=~"Unknown|ResourceExhausted|Internal|Unavailable|DataLoss|DeadlineExceeded"'
FULL = f"{_etcd('mvcc_db_total_size_in_bytes')} / {_etcd('server_quota_backend_bytes')}"
FSYNC, COMMIT = _p99("disk_wal_fsync_duration_seconds"), _p99("disk_backend_commit_duration_seconds")
REASON = states("platform_resource_condition", BACKUP, 'type="Ready"', by="reason")
SNAPSHOT = states("platform_etcd_snapshot_last_success_timestamp_seconds", KIND)

NOW = resources.now(
    KIND,
    "Members",
    Stat(
        title="Without a leader",
        description="Clusters without a leader. They accept no writes.",
        unit="short",
        queries=(
            Query(
                f"count({states('platform_etcd_has_leader', KIND)}) - "
                f"{total(states('platform_etcd_has_leader', KIND) + ' == 1')}"
            ),
        ),
        thresholds=bad_from(None, 1),
        filled=True,
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Fullest database",
        description="Database size as a share of the quota, for the member with the highest share. At 100 % etcd "
        "rejects writes until the database is compacted and defragmented, which the operator does.",
        unit="percentunit",
        queries=(Query(f"max({FULL})"),),
        thresholds=warns_from(0.95, notice=0.8),
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="WAL fsync p99",
        description="99th percentile of the WAL fsync duration of the slowest member. Values above 10 ms indicate "
        "a slow disk.",
        unit="s",
        queries=(Query(f"max({FSYNC})"),),
        thresholds=warns_from(0.1, notice=0.01),
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Failed calls",
        description="Share of clients' gRPC calls that failed with a server error. No value without calls.",
        unit="percentunit",
        queries=(or_none(f"sum({_grpc('handled', FAILED)}) / (sum({_grpc('handled')}) > 0)", UP),),
        thresholds=warns_from(0.01, notice=0.001),
        none="no calls",
        width=resources.TILE_WIDTH,
    ),
    Stat(
        title="Oldest snapshot",
        description="Age of the last current scheduled snapshot, for the cluster with the oldest one.",
        unit="s",
        queries=(or_none(f"max(time() - {SNAPSHOT})", resources.all_resources(KIND)),),
        thresholds=BLUE,
        none="no schedule",
        calm="orange",
        width=resources.TILE_WIDTH,
    ),
)

RAFT = Row(
    "Consensus",
    (
        Graph(
            title="Voters and learners",
            description="Number of members by role, and the desired number of members. A learner is promoted to a "
            "voter when its log has caught up with the leader's.",
            unit="short",
            queries=(
                Query(states("platform_etcd_members", KIND, by="role"), f"{RESOURCE_NAME} {{{{role}}}}"),
                Query(states("platform_resource_desired_replicas", KIND), f"{RESOURCE_NAME} desired"),
            ),
            stepped=True,
        ),
        Graph(
            title="Leader changes",
            description="Leader changes per interval. A single change is a failover; frequent changes indicate a slow "
            "disk or network.",
            unit="short",
            queries=(
                Query(
                    f"max by ({OWNER}) (increase({_etcd('server_leader_changes_seen_total')}[$__rate_interval]))", NAME
                ),
            ),
        ),
        Graph(
            title="Proposals",
            description="Raft proposals (writes) committed and failed per second, and the number of pending proposals.",
            unit="short",
            queries=(
                Query(
                    f"max by ({OWNER}) (rate({_etcd('server_proposals_committed_total')}[$__rate_interval]))",
                    f"{NAME} committed",
                ),
                Query(_rate("server_proposals_failed_total", by=OWNER), f"{NAME} failed"),
                Query(f"max by ({OWNER}) ({_etcd('server_proposals_pending')})", f"{NAME} pending"),
            ),
        ),
        Graph(
            title="Apply lag",
            description="Number of Raft log entries that a member has applied less than the most advanced member.",
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
            title="Heartbeat send failures",
            description="Heartbeats per second that a leader failed to send in time, because its disk or CPU is "
            "overloaded.",
            unit="ops",
            queries=(Query(_rate("server_heartbeat_send_failures_total"), POD),),
        ),
        Graph(
            title="Slow applies and reads",
            description="Slow applies, and slow or failed read indexes (linearizable reads), per second.",
            unit="ops",
            queries=(
                Query(_rate("server_slow_apply_total", by=OWNER), f"{NAME} slow apply"),
                Query(_rate("server_slow_read_indexes_total", by=OWNER), f"{NAME} slow read index"),
                Query(_rate("server_read_indexes_failed_total", by=OWNER), f"{NAME} failed read index"),
            ),
        ),
    ),
)

REQUESTS = Row(
    "Clients",
    (
        Graph(
            title="Calls",
            description="The ten most frequent gRPC methods that clients call, in calls per second.",
            unit="reqps",
            queries=(Query(f"topk(10, sum by (grpc_method) ({_grpc('started')}))", "{{grpc_method}}"),),
            stacked=True,
        ),
        Graph(
            title="Failed calls",
            none="no failed calls",
            description="Clients' gRPC calls per second that failed with a server error, by code. Client errors "
            "such as NotFound are not shown.",
            unit="reqps",
            queries=(quiet(f"sum by (grpc_code) ({_grpc('handled', FAILED, by='grpc_code')}) > 0", "{{grpc_code}}"),),
        ),
        Graph(
            title="Open watches and leases",
            description="Number of open watch and lease keep-alive streams of clients.",
            unit="short",
            queries=(
                Query(_open("Watch", "Watch"), f"{NAME} watches"),
                Query(_open("LeaseKeepAlive", "Lease"), f"{NAME} leases"),
            ),
        ),
        Graph(
            title="Client traffic",
            description="Bytes per second received from and sent to clients.",
            unit="Bps",
            queries=(
                Query(_rate("network_client_grpc_received_bytes_total", by=OWNER), f"{NAME} received"),
                Query(_rate("network_client_grpc_sent_bytes_total", by=OWNER), f"{NAME} sent"),
            ),
        ),
        Graph(
            title="Puts, deletes, transactions",
            description="Puts, deletes and transactions applied per second, on the busiest member.",
            unit="ops",
            queries=tuple(
                Query(f"max by ({OWNER}) (rate({_etcd(f'mvcc_{what}_total')}[$__rate_interval]))", f"{NAME} {what}")
                for what in ("put", "delete", "txn")
            ),
        ),
        Graph(
            title="Apply duration p99",
            none="no requests",
            description="99th percentile of the time that a member takes to apply a request, by operation, for the "
            "slowest member. Clients wait for it in addition to the network and the WAL.",
            unit="s",
            queries=(quiet(f"max by (op) ({_p99('server_apply_duration_seconds', f'{EACH}, op')})", "{{op}}"),),
        ),
        Graph(
            title="Peer round trip p99",
            none="no peers",
            description="99th percentile of the round-trip time between members. It must stay well below the election "
            "timeout (1 s by default).",
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
            title="Database quota used",
            description="Size of each member's database file, as a share of the quota.",
            unit="percentunit",
            queries=(Query(FULL, POD),),
            thresholds=bad_from(0.8, 0.95),
            most=1,
        ),
        Graph(
            title="Database size",
            description="Size of the database file, and the part of it in use. Defragmentation releases the rest.",
            unit="bytes",
            queries=(
                Query(f"max by ({OWNER}) ({_etcd('mvcc_db_total_size_in_bytes')})", f"{NAME} file"),
                Query(f"max by ({OWNER}) ({_etcd('mvcc_db_total_size_in_use_in_bytes')})", f"{NAME} in use"),
            ),
        ),
        Graph(
            title="WAL fsync p99",
            description="99th percentile of the WAL fsync duration. A write waits for an fsync on a majority of "
            "members.",
            unit="s",
            queries=(Query(FSYNC, POD),),
            thresholds=bad_from(0.01, 0.1),
        ),
        Graph(
            title="Backend commit p99",
            description="99th percentile of the duration of a commit to the database file.",
            unit="s",
            queries=(Query(COMMIT, POD),),
            thresholds=bad_from(0.025, 0.25),
        ),
        Graph(
            title="Memory",
            description="Resident memory of each member.",
            unit="bytes",
            queries=(
                Query(of_targets_with("etcd_server_has_leader", select("process_resident_memory_bytes", SERVER)), POD),
            ),
        ),
        Graph(
            title="CPU",
            description="CPU usage of each member, in cores.",
            unit="short",
            queries=(
                Query(
                    of_targets_with("etcd_server_has_leader", rate("process_cpu_seconds_total", SERVER, by=TARGET)), POD
                ),
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
            description="Time since the last current scheduled snapshot. A line that only rises indicates that "
            "scheduled snapshots fail.",
            unit="s",
            queries=(quiet(f"time() - {SNAPSHOT}", RESOURCE_NAME),),
        ),
        Table(
            title="EtcdBackups",
            description="Manual and scheduled snapshots, with their phase and reason.",
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
    "etcd clusters: quorum, latency, database size and snapshots.",
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
            f"{NAME}: leader changed",
            "orange",
        ),
    ),
)

PAGE = OperatorPage(
    DASHBOARD,
    traffic=Graph(
        title="etcd: calls",
        none="no metrics",
        description="Clients' gRPC calls per second.",
        unit="reqps",
        queries=(quiet(rate("grpc_server_started_total", SERVED, 'grpc_service=~"etcdserverpb.*"'), NAME),),
    ),
    fullness=Graph(
        title="etcd: database",
        none="no metrics",
        description="Database size as a share of the quota, for the member with the highest share. At 100 % etcd "
        "rejects writes.",
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
