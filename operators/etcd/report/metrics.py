"""Metrics of EtcdClusters and EtcdBackups. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from operators.etcd.api.backup import COMPLETE
from shared.kubernetes.kinds import Obj
from shared.status.reasons import HIBERNATED
from shared.status.resource_metrics import DESIRED, PAUSED, READY, Sample, State, timestamp
from shared.steps.confirmed_recovery import awaits_confirmation

MEMBERS = State(
    "platform_etcd_members",
    "Members of an EtcdCluster by role; the leader counts as a voter. platform_resource_desired_replicas has the "
    "desired number.",
    ("role",),
)
HAS_LEADER = State(
    "platform_etcd_has_leader",
    "1 if an EtcdCluster has a leader, else 0; absent while it hibernates, or only the operator reaches no member.",
)
ALARMS = State(
    "platform_etcd_alarms", "Members of an EtcdCluster that raised an alarm: NOSPACE or CORRUPT.", ("alarm",)
)
DATABASE = State(
    "platform_etcd_database_size_bytes",
    "Size of the largest database of a member of an EtcdCluster, in bytes; accurate to a tenth.",
)
RECOVERY_WAITING = State(
    "platform_etcd_recovery_waiting",
    "1 while an EtcdCluster has permanently lost its quorum and a user must confirm the recovery, else 0.",
)
SNAPSHOT_SUCCESS = State(
    "platform_etcd_snapshot_last_success_timestamp_seconds",
    "Unix time of the last complete scheduled snapshot of an EtcdCluster; no sample before the first.",
)
SNAPSHOT_DUE = State(
    "platform_etcd_snapshot_next_timestamp_seconds",
    "Unix time at which the next scheduled snapshot of an EtcdCluster is due; no sample without a schedule.",
)
BACKUP_COMPLETED = State(
    "platform_etcd_backup_completed_timestamp_seconds",
    "Unix time at which an EtcdBackup was complete; no sample unless it is complete.",
    ("etcdcluster",),
)

STATES = (
    MEMBERS,
    HAS_LEADER,
    ALARMS,
    DATABASE,
    RECOVERY_WAITING,
    SNAPSHOT_SUCCESS,
    SNAPSHOT_DUE,
    BACKUP_COMPLETED,
)
"""Metrics that only the etcd operator has."""


def cluster_states(obj: Obj) -> Iterator[Sample]:
    """Yield the metrics of an EtcdCluster that depend on its kind."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    yield DESIRED(0 if status.get("phase") == HIBERNATED else spec.get("size"))
    yield READY(status.get("readyMembers") or 0)
    yield PAUSED(bool(spec.get("paused")))
    members = [member for member in status.get("members") or () if "id" in member]
    learners = sum(member.get("role") == "learner" for member in members)
    yield MEMBERS(len(members) - learners, "voter")
    yield MEMBERS(learners, "learner")
    has_leader = bool(status.get("leader"))
    has_quorum = (status.get("readyMembers") or 0) > (
        len(members) - learners
    ) // 2  # the kubelet's probe needs a leader
    yield HAS_LEADER(None if status.get("phase") == HIBERNATED or (has_quorum and not has_leader) else has_leader)
    raised = Counter(alarm for member in members for alarm in member.get("alarms") or ())
    for alarm in ("CORRUPT", "NOSPACE"):
        yield ALARMS(raised[alarm], alarm)
    yield DATABASE(max((member["dbSize"] for member in members if "dbSize" in member), default=None))
    yield RECOVERY_WAITING(awaits_confirmation(obj))
    snapshots = status.get("backup") or {}
    yield SNAPSHOT_SUCCESS(timestamp(snapshots.get("lastTime")))
    yield SNAPSHOT_DUE(timestamp(snapshots.get("nextTime")))


def backup_states(obj: Obj) -> Iterator[Sample]:
    """Yield the metrics of an EtcdBackup."""
    status = obj.get("status") or {}
    completed = timestamp(status.get("completedAt")) if status.get("phase") == COMPLETE else None
    yield BACKUP_COMPLETED(completed, (obj.get("spec") or {}).get("clusterName") or "")
