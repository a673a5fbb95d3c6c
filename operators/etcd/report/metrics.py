"""Metrics of EtcdClusters and EtcdBackups. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from operators.etcd.api.backup import has_current_snapshot
from shared.kubernetes.kinds import Obj
from shared.status.reasons import HIBERNATED
from shared.status.resource_metrics import DESIRED, PAUSED, READY, Sample, states_in, timestamp
from shared.steps.confirmed_recovery import awaits_confirmation

_STATES = states_in(Path(__file__).with_suffix(".toml"))
MEMBERS = _STATES["platform_etcd_members"]
HAS_LEADER = _STATES["platform_etcd_has_leader"]
ALARMS = _STATES["platform_etcd_alarms"]
DATABASE = _STATES["platform_etcd_database_size_bytes"]
RECOVERY_WAITING = _STATES["platform_etcd_recovery_waiting"]
SNAPSHOT_SUCCESS = _STATES["platform_etcd_snapshot_last_success_timestamp_seconds"]
SNAPSHOT_DUE = _STATES["platform_etcd_snapshot_next_timestamp_seconds"]
BACKUP_COMPLETED = _STATES["platform_etcd_backup_completed_timestamp_seconds"]

STATES = tuple(_STATES.values())
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
    # The kubelet's probe needs a leader.
    has_quorum = (status.get("readyMembers") or 0) > (len(members) - learners) // 2
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
    completed = timestamp(status.get("completedAt")) if has_current_snapshot(obj) else None
    yield BACKUP_COMPLETED(completed, (obj.get("spec") or {}).get("clusterName") or "")
