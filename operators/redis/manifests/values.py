"""The values of charts/redis-operator: those that every operator's chart has, and its own."""

from __future__ import annotations

from pydantic import Field

from charts.values.operator import CERT_MANAGER, RbacValues, operator_values
from charts.values.rules import Count, Share, Thresholds, Time


class RedisRbac(RbacValues):
    """Rights, with one that can be left out where no cluster needs it."""

    cert_manager: bool = CERT_MANAGER


class RedisThresholds(Thresholds):
    """From when on alerts fire, of Redis, too."""

    memory_used: Share = Field(0.9, description="Share of maxmemory that a node may have in use.")
    connections_used: Share = Field(0.9, description="Share of maxclients that may be connected.")
    evictions_per_second: Count = Field(10, description="Keys that a RedisCluster may evict in a second.")
    replica_lag_seconds: Time = Field(30, description="Seconds that a replica may be behind.")


RedisOperatorValues = operator_values(
    "redis",
    "Where Redis' images come from if a resource names a version only: where your registry keeps them, "
    "tagged as Redis' own are, such as 8.0.2.",
    thresholds=RedisThresholds,
    rbac=(RedisRbac, Field(RedisRbac(), description="Rights.")),
)
