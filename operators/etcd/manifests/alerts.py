"""Rules about etcd, based on the members' own metrics and on the states that the operator exports."""

from __future__ import annotations

from dashboards.rules import operator_rules, resource_rules, workload_rules
from dashboards.rules.expressions import ID, OWNER, about_resources, about_servers, largest, state
from dashboards.rules.model import Group, Recording, RuleSet
from operators.etcd.api import backup, resource
from operators.etcd.manifests.values import EtcdThresholds

KIND, BACKUP = resource.API.kind.name, backup.API.kind.name
CLUSTER = "EtcdCluster {{ $labels.namespace }}/{{ $labels.app_kubernetes_io_instance }}"
MEMBER = "{{ $labels.pod }} of " + CLUSTER
RESOURCE = "EtcdCluster {{ $labels.namespace }}/{{ $labels.name }}"

SERVER_ERRORS = "Unknown|ResourceExhausted|Internal|Unavailable|DataLoss|DeadlineExceeded"
"""gRPC codes of server errors, as opposed to client errors."""

_of_members, _of_resources = about_servers(KIND).alert, about_resources(KIND).alert


def _slow(histogram: str) -> str:
    buckets = f"sum by (cluster, namespace, app_kubernetes_io_instance, pod, le) (rate({histogram}_bucket[5m]))"
    return f"histogram_quantile(0.99, {buckets})"


_full = state("platform_etcd_alarms", KIND, 'alarm="NOSPACE"')
_corrupt = state("platform_etcd_alarms", KIND, 'alarm="CORRUPT"')
_differ = state("platform_resource_condition", KIND, 'reason=~"CorruptionUnclear|CorruptMemberBlocked"')
_clusters = state("platform_resource_info", KIND)
_due = state("platform_etcd_snapshot_next_timestamp_seconds", KIND)
_unless_hibernated = resource_rules.unless_hibernated(KIND)
_scheduled = state("platform_etcd_snapshot_last_success_timestamp_seconds", KIND)
_taken = "max by (cluster, namespace, etcdcluster) (platform_etcd_backup_completed_timestamp_seconds)"
_named = f'label_replace({_taken}, "name", "$1", "etcdcluster", "(.+)")'
_by_hand = f"{_named} * on (cluster, namespace, name) group_left (kind) {_clusters}"
_last_backup = f"max by ({ID}) ({_scheduled} or {_by_hand})"
_failed = state("platform_resource_phase", BACKUP, 'phase="Failed"')
_handled = "grpc_server_handled_total"

_RESOURCES = Group(
    "platform-etcd-clusters",
    (
        _of_resources(
            "EtcdRecoveryWaiting",
            "critical",
            f"{state('platform_etcd_recovery_waiting', KIND)} == 1",
            "1m",
            f"{RESOURCE} waits for confirmation of a recovery",
            "The cluster has lost the volumes of a majority of its members. The operator changes nothing until a user "
            "confirms the recovery in spec.recovery. status.recovery names the surviving member and the token.",
        ),
        _of_resources(
            "EtcdOutOfSpace",
            "critical",
            f"{_full} > 0",
            "1m",
            f"{RESOURCE} accepts no writes: the database quota is exceeded",
            "{{ $value }} members raised the NOSPACE alarm. The operator compacts and defragments. If the alarm "
            "persists, delete keys or increase quotaBackendBytes.",
        ),
        _of_resources(
            "EtcdCorrupt",
            "critical",
            f"{_corrupt} > 0 or on ({ID}) {_differ} == 1",
            "1m",
            f"{RESOURCE} has a corrupt member",
            "The data of a member differs from that of the other members at the same revision, so clients may read "
            "wrong values. Follow the runbook before deleting any member.",
        ),
        _of_resources(
            "EtcdSnapshotLate",
            "warning",
            f"time() - {_due} > ${{snapshotLateSeconds}} {_unless_hibernated}",
            "5m",
            f"A scheduled snapshot of {RESOURCE} is overdue",
            "The snapshot was due {{ $value | humanizeDuration }} ago. The message of the latest EtcdBackup names the "
            "cause.",
        ),
        _of_resources(
            "EtcdBackupTooOld",
            "warning",
            f"time() - {_last_backup} > ${{backupAgeSeconds}} {_unless_hibernated}",
            "5m",
            f"The last backup of {RESOURCE} is too old",
            "The last complete snapshot was taken {{ $value | humanizeDuration }} ago. Everything written since would "
            "be lost with the volumes. The message of the latest EtcdBackup names the cause.",
        ),
        _of_resources(
            "EtcdNoBackupScheduled",
            "warning",
            f"{_clusters} unless on ({ID}) {_due}",
            "1d",
            f"No backup of {RESOURCE} is scheduled",
            "Without a backup, everything is lost with the volumes of a majority. Set spec.backup. If another tool "
            "takes backups, or the data can be recreated, disable this alert (metrics.prometheusRule.disabled).",
        ),
        _of_resources(
            "EtcdBackupFailed",
            "warning",
            f"{_failed} == 1 and on ({ID}) "
            f"time() - {state('platform_resource_unready_since_timestamp_seconds', BACKUP)} < 86400",
            "1m",
            "EtcdBackup {{ $labels.namespace }}/{{ $labels.name }} failed",
            "All attempts failed, and no further one follows. The reason and message of its Ready condition name "
            "the cause. The alert ends after a day, or when the EtcdBackup is deleted.",
        ),
    ),
)

_MEMBERS = Group(
    "platform-etcd",
    (
        Recording(
            name="resource:etcd_database_used:ratio",
            expr=f"max by ({OWNER}) (etcd_mvcc_db_total_size_in_bytes / etcd_server_quota_backend_bytes)",
        ),
        _of_members(
            "EtcdQuorumLost",
            "critical",
            f"{largest('etcd_server_has_leader', OWNER)} == 0",
            "1m",
            f"{CLUSTER} has lost its quorum",
            "None of its members has a leader. The cluster accepts no writes and no linearizable reads. Restore the "
            "missing members; do not delete PersistentVolumeClaims.",
        ),
        _of_members(
            "EtcdNoLeader",
            "warning",
            f"{largest('etcd_server_has_leader')} == 0",
            "1m",
            f"{MEMBER} has no leader",
            "The member accepts no writes. If the other members have a leader, this one is partitioned from them: "
            "check the network between its node and the others.",
        ),
        _of_members(
            "EtcdLeaderChanges",
            "warning",
            f"{largest('increase(etcd_server_leader_changes_seen_total[15m])', OWNER)} > ${{leaderChanges}}",
            "5m",
            f"{CLUSTER} has frequent leader changes",
            "{{ $value | humanize }} leader changes in 15 minutes; each of them delays writes. Disks or the network "
            "are too slow for heartbeatInterval and electionTimeout.",
        ),
        _of_members(
            "EtcdProposalsFail",
            "warning",
            f"sum by ({OWNER}) (increase(etcd_server_proposals_failed_total[15m])) > 5",
            "5m",
            f"Raft proposals of {CLUSTER} fail",
            "{{ $value | humanize }} proposals (writes) failed in 15 minutes, because there was no leader or no "
            "quorum.",
        ),
        _of_members(
            "EtcdDatabaseNearQuota",
            "warning",
            "resource:etcd_database_used:ratio > ${quotaUsed}",
            "10m",
            f"The database of {CLUSTER} is close to its quota",
            "A member's database uses {{ $value | humanizePercentage }} of quotaBackendBytes. At 100 % etcd rejects "
            "writes. Delete keys, set autoCompaction or increase quotaBackendBytes.",
        ),
        _of_members(
            "EtcdDatabaseFillsUp",
            "warning",
            f"max by ({OWNER}) (predict_linear(etcd_mvcc_db_total_size_in_bytes[4h], 14400) / "
            "etcd_server_quota_backend_bytes) > 1 and resource:etcd_database_used:ratio > 0.5",
            "30m",
            f"The database of {CLUSTER} is predicted to exceed its quota within 4 hours",
            "The prediction extrapolates the growth of the last 4 hours. At 100 % of quotaBackendBytes etcd rejects "
            "writes. Find the writer, set autoCompaction or increase quotaBackendBytes.",
        ),
        _of_members(
            "EtcdFragmented",
            "info",
            f"{largest('etcd_mvcc_db_total_size_in_use_in_bytes / etcd_mvcc_db_total_size_in_bytes')} < 0.5 and "
            f"{largest('etcd_mvcc_db_total_size_in_bytes')} > 104857600",
            "1h",
            f"The database of {MEMBER} is fragmented",
            "Only {{ $value | humanizePercentage }} of the database file is in use. Defragmentation releases the rest; "
            "set spec.defragmentation to schedule it.",
        ),
        _of_members(
            "EtcdLogSlow",
            "warning",
            f"{_slow('etcd_disk_wal_fsync_duration_seconds')} > ${{fsyncSeconds}}",
            "10m",
            f"WAL fsync of {MEMBER} is slow",
            "The 99th percentile of its WAL fsync duration is {{ $value | humanizeDuration }}. Every write waits for "
            "an fsync on a majority. Check the member's disk and other workloads on it.",
        ),
        _of_members(
            "EtcdDatabaseSlow",
            "warning",
            f"{_slow('etcd_disk_backend_commit_duration_seconds')} > ${{commitSeconds}}",
            "10m",
            f"Backend commits of {MEMBER} are slow",
            "The 99th percentile of its backend commit duration is {{ $value | humanizeDuration }}. Check the member's "
            "disk and other workloads on it.",
        ),
        _of_members(
            "EtcdPeersSlow",
            "warning",
            f"{_slow('etcd_network_peer_round_trip_time_seconds')} > ${{peerSeconds}}",
            "10m",
            f"Peer round trips of {MEMBER} are slow",
            "The 99th percentile of the round-trip time to its peers is {{ $value | humanizeDuration }}. Check the "
            "network between the nodes and the CPU limit of the member.",
        ),
        _of_members(
            "EtcdRequestsFail",
            "warning",
            f'sum by ({OWNER}) (rate({_handled}{{grpc_code=~"{SERVER_ERRORS}",grpc_type="unary"}}[10m])) / '
            f'sum by ({OWNER}) (rate({_handled}{{grpc_type="unary"}}[10m])) > ${{requestErrorRatio}}',
            "10m",
            f"Requests to {CLUSTER} fail",
            "{{ $value | humanizePercentage }} of unary requests fail with server errors. The failed calls on the "
            "dashboard show the gRPC codes.",
        ),
    ),
)

RULES = RuleSet(
    "etcd",
    (
        operator_rules.group("etcd", f"{KIND}|{BACKUP}"),
        resource_rules.group("etcd", KIND, "platform_etcd_members", parts=BACKUP),
        workload_rules.group("etcd", KIND),
        _RESOURCES,
        _MEMBERS,
    ),
    EtcdThresholds(),
)
