"""Values of charts/redis-operator: the values common to all operators, and Redis's own."""

from __future__ import annotations

from pydantic import Field

from charts.values.operator import CERT_MANAGER, RbacValues, operator_values
from charts.values.rules import Count, Share, Time, VolumeThresholds


class RedisRbac(RbacValues):
    """RBAC settings of the Redis operator."""

    cert_manager: bool = CERT_MANAGER
    nodes: bool = Field(
        True,
        description="Allow the operator to read Nodes by name (cluster-scoped), to spread primaries and replicas over "
        "zones. If false, it knows only the zones of pods with the label topology.kubernetes.io/zone, which Kubernetes "
        "1.35 and later sets.",
    )


class RedisThresholds(VolumeThresholds):
    """Alert thresholds of the Redis operator's chart."""

    memory_used: Share = Field(
        0.9, description="RedisMemoryHigh fires above this share of a node's maxmemory (0 to 1)."
    )
    connections_used: Share = Field(
        0.9, description="RedisConnectionsHigh fires above this share of a node's maxclients (0 to 1)."
    )
    evictions_per_second: Count = Field(
        10, description="RedisEvicting fires above this number of evicted keys per second and RedisCluster."
    )
    replica_lag_seconds: Time = Field(30, description="RedisReplicaLags fires above this replication lag, in seconds.")


RedisOperatorValues = operator_values(
    "redis",
    "Default repository of Redis's images, for resources that do not name a repository. Tags must be as in the "
    "official repository, such as 8.0.2.",
    thresholds=RedisThresholds,
    rbac=(RedisRbac, Field(RedisRbac(), description="RBAC permissions of the operator.")),
    agent_image=(
        str | None,
        Field(
            None,
            exclude=True,
            description="Deprecated. It has no effect: the operator adds no container with its own image.",
            json_schema_extra={"deprecated": True},
        ),
    ),
)
