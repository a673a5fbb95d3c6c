"""Values of charts/etcd-operator: the values common to all operators, and etcd's own."""

from __future__ import annotations

from pydantic import Field

from charts.values.operator import CERT_MANAGER, RbacValues, operator_values
from charts.values.rules import Count, Share, Time, VolumeThresholds
from operators.etcd.api.catalogue import ETCD


class EtcdRbac(RbacValues):
    """RBAC settings of the etcd operator."""

    write_secrets: bool = Field(
        True,
        description="Allow the operator to create and update Secrets by name, which clusters with TLS or auth "
        "need: certificates of tls.mode self, copies of those of certManager and secret, and passwords of users; and "
        "the connection Secrets of clients. If false, it only reads the Secrets that resources name, writes no "
        "connection Secrets, refuses auth without a Secret, and reports clusters with TLS as Forbidden.",
    )
    self_signed: bool = Field(
        True,
        exclude=True,
        description="Deprecated: renamed to `rbac.writeSecrets`. The chart rejects false.",
        json_schema_extra={"deprecated": True},
    )
    cert_manager: bool = CERT_MANAGER


class EtcdThresholds(VolumeThresholds):
    """Alert thresholds of the etcd operator's chart."""

    quota_used: Share = Field(
        0.8, description="EtcdDatabaseNearQuota fires above this share of quotaBackendBytes (0 to 1)."
    )
    leader_changes: Count = Field(4, description="EtcdLeaderChanges fires above this number of changes in 15 minutes.")
    fsync_seconds: Time = Field(
        0.5, description="EtcdLogSlow fires above this 99th percentile of the WAL fsync duration, in seconds."
    )
    commit_seconds: Time = Field(
        0.25,
        description="EtcdDatabaseSlow fires above this 99th percentile of the backend commit duration, in seconds.",
    )
    peer_seconds: Time = Field(
        0.15, description="EtcdPeersSlow fires above this 99th percentile of the peer round-trip time, in seconds."
    )
    request_error_ratio: Share = Field(
        0.05, description="EtcdRequestsFail fires above this share of requests with server errors (0 to 1)."
    )
    backup_age_seconds: Time = Field(
        172_800,
        description="EtcdBackupTooOld fires when the last complete backup of an EtcdCluster is older than this, in "
        "seconds.",
    )
    snapshot_late_seconds: Time = Field(
        3600, description="EtcdSnapshotLate fires when a scheduled snapshot is overdue by more than this, in seconds."
    )


EtcdOperatorValues = operator_values(
    "etcd",
    "Default repository of etcd's images, for resources that set spec.version without spec.image. Tags must be as in "
    "the official repository, such as v3.6.16.",
    repository=ETCD.image,
    thresholds=EtcdThresholds,
    rbac=(EtcdRbac, Field(EtcdRbac(), description="RBAC permissions of the operator.")),
    agent_image=(
        str,
        Field("", description="Image of the pods that take and restore snapshots. Empty: the operator's own image."),
    ),
)
