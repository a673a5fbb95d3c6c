"""Rules about etcd, from what its members tell, and from what the operator tells of them."""

from __future__ import annotations

from dashboards.rules import operator_rules, resource_rules
from dashboards.rules.asking import ID, OWNER, about_resources, about_servers, largest, told
from dashboards.rules.model import Group, Recording, RuleSet
from operators.etcd.api import backup, resource
from operators.etcd.manifests.values import EtcdThresholds

KIND, BACKUP = resource.API.kind.name, backup.API.kind.name
WHO = "EtcdCluster {{ $labels.namespace }}/{{ $labels.app_kubernetes_io_instance }}"
MEMBER = "{{ $labels.pod }} of " + WHO
RESOURCE = "EtcdCluster {{ $labels.namespace }}/{{ $labels.name }}"

OWN_FAULT = "Unknown|ResourceExhausted|Internal|Unavailable|DataLoss|DeadlineExceeded"
"""gRPC codes by which etcd says that it failed, not its client."""

_of_members, _of_resources = about_servers(KIND).alert, about_resources(KIND).alert


def _slow(histogram: str) -> str:
    buckets = f"sum by (cluster, namespace, app_kubernetes_io_instance, pod, le) (rate({histogram}_bucket[5m]))"
    return f"histogram_quantile(0.99, {buckets})"


_ready = told("platform_resource_ready_replicas", KIND)
_voters = told("platform_etcd_members", KIND, 'role="voter"')
_without = told("platform_resource_condition", KIND, 'type="Ready"', 'reason=~"NoQuorum|QuorumLost"')
_full = told("platform_etcd_alarms", KIND, 'alarm="NOSPACE"')
_corrupt = told("platform_etcd_alarms", KIND, 'alarm="CORRUPT"')
_differ = told("platform_resource_condition", KIND, 'reason=~"CorruptionUnclear|CorruptMemberHeld"')
_failed = told("platform_resource_phase", BACKUP, 'phase="Failed"')
_handled = "grpc_server_handled_total"

_RESOURCES = Group(
    "platform-etcd-clusters",
    (
        _of_resources(
            "EtcdQuorumLost",
            "critical",
            f"({_ready} < floor({_voters} / 2) + 1 and {_voters} > 0) or ({_ready} and on ({ID}) {_without} == 1)",
            "1m",
            f"{RESOURCE} has lost its quorum",
            "Only {{ $value }} of its voters are healthy, fewer than a majority: no writes, no linearizable reads.",
        ),
        _of_resources(
            "EtcdRecoveryWaiting",
            "critical",
            f"{told('platform_etcd_recovery_waiting', KIND)} == 1",
            "1m",
            f"{RESOURCE} waits for a person",
            "It has lost the volumes of a majority. Nothing happens before somebody decides.",
        ),
        _of_resources(
            "EtcdOutOfSpace",
            "critical",
            f"{_full} > 0",
            "1m",
            f"{RESOURCE} takes no writes: its quota is used up",
            "{{ $value }} members raised the alarm NOSPACE. The operator compacts and defragments; if this lasts, the "
            "keys themselves need the room.",
        ),
        _of_resources(
            "EtcdCorrupt",
            "critical",
            f"{_corrupt} > 0 or on ({ID}) {_differ} == 1",
            "1m",
            f"Members of {RESOURCE} differ in what they hold",
            "A member's data is not what others have at the same revision.",
        ),
        _of_resources(
            "EtcdSnapshotLate",
            "warning",
            f"time() - {told('platform_etcd_snapshot_next_timestamp_seconds', KIND)} > ${{snapshotLateSeconds}}",
            "5m",
            f"A snapshot of {RESOURCE} is late",
            "By its schedule one was due {{ $value | humanizeDuration }} ago.",
        ),
        _of_resources(
            "EtcdBackupFailed",
            "warning",
            f"{_failed} == 1 and on ({ID}) "
            f"time() - {told('platform_resource_unready_since_timestamp_seconds', BACKUP)} < 86400",
            "1m",
            "EtcdBackup {{ $labels.namespace }}/{{ $labels.name }} failed",
            "It was tried three times, and is not tried again. This is told for a day, or until it is deleted.",
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
            "EtcdNoLeader",
            "critical",
            f"{largest('etcd_server_has_leader')} == 0",
            "1m",
            f"{MEMBER} knows no leader",
            "It takes no writes. If the others do, it is cut off from them.",
        ),
        _of_members(
            "EtcdLeaderChanges",
            "warning",
            f"{largest('increase(etcd_server_leader_changes_seen_total[15m])', OWNER)} > ${{leaderChanges}}",
            "5m",
            f"{WHO} elects leaders again and again",
            "{{ $value | humanize }} within a quarter of an hour; writes wait for each. Disks or network are too slow "
            "for heartbeatInterval and electionTimeout.",
        ),
        _of_members(
            "EtcdProposalsFail",
            "warning",
            f"sum by ({OWNER}) (increase(etcd_server_proposals_failed_total[15m])) > 5",
            "5m",
            f"Writes to {WHO} are not agreed on",
            "{{ $value | humanize }} failed within a quarter of an hour, for want of a leader or a quorum.",
        ),
        _of_members(
            "EtcdDatabaseNearQuota",
            "warning",
            "resource:etcd_database_used:ratio > ${quotaUsed}",
            "10m",
            f"{WHO} has nearly used up its quota",
            "A member's database takes {{ $value | humanizePercentage }} of quotaBackendBytes; at 100 % there are no "
            "writes.",
        ),
        _of_members(
            "EtcdDatabaseFillsUp",
            "warning",
            f"max by ({OWNER}) (predict_linear(etcd_mvcc_db_total_size_in_bytes[4h], 14400) / "
            "etcd_server_quota_backend_bytes) > 1 and resource:etcd_database_used:ratio > 0.5",
            "30m",
            f"{WHO} will have used up its quota within four hours",
            "If it goes on growing as in the last four; after that there are no writes.",
        ),
        _of_members(
            "EtcdFragmented",
            "info",
            f"{largest('etcd_mvcc_db_total_size_in_use_in_bytes / etcd_mvcc_db_total_size_in_bytes')} < 0.5 and "
            f"{largest('etcd_mvcc_db_total_size_in_bytes')} > 104857600",
            "1h",
            f"Half of the database file of {MEMBER} is empty",
            "Only {{ $value | humanizePercentage }} of it is in use; defragmentation gives back the rest.",
        ),
        _of_members(
            "EtcdLogSlow",
            "warning",
            f"{_slow('etcd_disk_wal_fsync_duration_seconds')} > ${{fsyncSeconds}}",
            "10m",
            f"The disk of {MEMBER} is slow",
            "One in a hundred writes to its log takes {{ $value | humanizeDuration }} or more. Every write waits for "
            "these.",
        ),
        _of_members(
            "EtcdDatabaseSlow",
            "warning",
            f"{_slow('etcd_disk_backend_commit_duration_seconds')} > ${{commitSeconds}}",
            "10m",
            f"The database of {MEMBER} is slow",
            "One in a hundred commits takes {{ $value | humanizeDuration }} or more.",
        ),
        _of_members(
            "EtcdPeersSlow",
            "warning",
            f"{_slow('etcd_network_peer_round_trip_time_seconds')} > ${{peerSeconds}}",
            "10m",
            f"The network between {MEMBER} and others is slow",
            "One in a hundred messages takes {{ $value | humanizeDuration }} or more there and back.",
        ),
        _of_members(
            "EtcdRequestsFail",
            "warning",
            f'sum by ({OWNER}) (rate({_handled}{{grpc_code=~"{OWN_FAULT}",grpc_type="unary"}}[10m])) / '
            f'sum by ({OWNER}) (rate({_handled}{{grpc_type="unary"}}[10m])) > ${{requestErrorRatio}}',
            "10m",
            f"Requests to {WHO} fail",
            "{{ $value | humanizePercentage }} of them, through its own fault.",
        ),
    ),
)

RULES = RuleSet(
    "etcd",
    (operator_rules.group("etcd", f"{KIND}|{BACKUP}"), resource_rules.group("etcd", KIND), _RESOURCES, _MEMBERS),
    EtcdThresholds(),
)
