"""The values of charts/etcd-operator: those that every operator's chart has, and its own."""

from __future__ import annotations

from pydantic import Field

from charts.values.operator import CERT_MANAGER, RbacValues, operator_values
from charts.values.rules import Count, Share, Thresholds, Time


class EtcdRbac(RbacValues):
    """Rights, with those that can be left out where no cluster needs them."""

    self_signed: bool = Field(
        True,
        description="The operator may create and change Secrets, for clusters with tls.mode self. False: it can only "
        "read those that resources name.",
    )
    cert_manager: bool = CERT_MANAGER


class EtcdThresholds(Thresholds):
    """From when on alerts fire, of etcd, too."""

    quota_used: Share = Field(0.8, description="Share of its quota that a database may take.")
    leader_changes: Count = Field(4, description="Elections that a cluster may have in a quarter of an hour.")
    fsync_seconds: Time = Field(0.5, description="Seconds that one in a hundred writes to a log may take.")
    commit_seconds: Time = Field(0.25, description="Seconds that one in a hundred writes to a database may take.")
    peer_seconds: Time = Field(0.15, description="Seconds that one in a hundred messages between members may take.")
    request_error_ratio: Share = Field(0.05, description="Share of requests that may fail through etcd's own fault.")
    snapshot_late_seconds: Time = Field(3600, description="Seconds that a snapshot by the clock may be late.")


EtcdOperatorValues = operator_values(
    "etcd",
    "Where etcd's images come from if a resource names a version only: where your registry keeps them, "
    "tagged as etcd's own are, such as v3.6.16.",
    thresholds=EtcdThresholds,
    rbac=(EtcdRbac, Field(EtcdRbac(), description="Rights.")),
    agent_image=(
        str,
        Field("", description="Image of the pods that take and restore snapshots; empty: the operator's own image."),
    ),
)
