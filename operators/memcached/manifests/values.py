"""Values of charts/memcached-operator: the values common to all operators, and memcached's own."""

from __future__ import annotations

from pydantic import Field

from charts.values.operator import CERT_MANAGER, WRITE_SECRETS, RbacValues, operator_values
from charts.values.rules import Count, Share, Thresholds


class MemcachedRbac(RbacValues):
    """RBAC settings of the memcached operator."""

    write_secrets: bool = WRITE_SECRETS
    cert_manager: bool = CERT_MANAGER


class MemcachedThresholds(Thresholds):
    """Alert thresholds of the memcached operator's chart."""

    evictions_per_second: Count = Field(
        10, description="MemcachedFull fires above this number of evicted items per second and Memcached resource."
    )
    connections_used: Share = Field(
        0.9, description="MemcachedConnectionsHigh fires above this share of a server's connection limit (0 to 1)."
    )
    memory_limit_used: Share = Field(
        0.97,
        description="PlatformContainerMemoryHigh fires above this share of a container's memory limit (0 to 1). A full "
        "server uses most of it by design.",
    )
    hit_ratio: Share = Field(0.5, description="MemcachedHitRatioLow fires below this share of gets that hit (0 to 1).")


MemcachedOperatorValues = operator_values(
    "memcached",
    "Default repository of memcached's images, for resources that set spec.version without spec.image.",
    thresholds=MemcachedThresholds,
    rbac=(MemcachedRbac, Field(MemcachedRbac(), description="RBAC permissions of the operator.")),
    agent_image=(
        str,
        Field(
            "",
            description="Image of the sidecar of each server, which serves metrics and reloads passwords. Empty: the "
            "operator's own image. Running servers adopt another one when they are replaced for another reason; "
            "spec.metrics.image sets it for a resource.",
        ),
    ),
)
