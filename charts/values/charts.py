"""The charts and their values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from charts.values.base import Values
from charts.values.operator import Global, Image, ImageRepository, Metrics, Operator, Rbac
from charts.values.rules import EtcdRule, MemcachedRule, RedisRule

_RULE = "Alerts and recording rules for the Prometheus operator; docs/runbook/alerts.md tells of each."
_METRICS = "Prometheus metrics of the operator."


class MemcachedMetrics(Metrics):
    """Metrics, and what watches them."""

    prometheus_rule: MemcachedRule = Field(MemcachedRule(), description=_RULE)


class MemcachedOperator(Operator):
    """The values of charts/memcached-operator."""

    image: Image = Field(Image(repository="platform/memcached-operator"), description="The operator's image.")
    metrics: MemcachedMetrics = Field(MemcachedMetrics(), description=_METRICS)
    operand_image_repository: ImageRepository = Field(
        "memcached", description="Where memcached's images come from if a resource names a version only."
    )


_CERT_MANAGER = Field(
    True, description="The operator may ask cert-manager for certificates, for clusters with tls.mode certManager."
)


class EtcdRbac(Rbac):
    """Rights, with those that can be left out where no cluster needs them."""

    self_signed: bool = Field(
        True,
        description="The operator may create and change Secrets, for clusters with tls.mode self. False: it can only "
        "read those that resources name.",
    )
    cert_manager: bool = _CERT_MANAGER


class EtcdMetrics(Metrics):
    """Metrics, and what watches them."""

    prometheus_rule: EtcdRule = Field(EtcdRule(), description=_RULE)


class EtcdOperator(Operator):
    """The values of charts/etcd-operator."""

    image: Image = Field(Image(repository="platform/etcd-operator"), description="The operator's image.")
    metrics: EtcdMetrics = Field(EtcdMetrics(), description=_METRICS)
    operand_image_repository: ImageRepository = Field(
        "etcd",
        description="Where etcd's images come from if a resource names a version only: where your registry keeps them, "
        "tagged as etcd's own are, such as v3.6.16.",
    )
    agent_image: str = Field(
        "", description="Image of the pods that take and restore snapshots; empty: the operator's own image."
    )
    rbac: EtcdRbac = Field(EtcdRbac(), description="Rights.")


class RedisRbac(Rbac):
    """Rights, with one that can be left out where no cluster needs it."""

    cert_manager: bool = _CERT_MANAGER


class RedisMetrics(Metrics):
    """Metrics, and what watches them."""

    prometheus_rule: RedisRule = Field(RedisRule(), description=_RULE)


class RedisOperator(Operator):
    """The values of charts/redis-operator."""

    image: Image = Field(Image(repository="platform/redis-operator"), description="The operator's image.")
    metrics: RedisMetrics = Field(RedisMetrics(), description=_METRICS)
    operand_image_repository: ImageRepository = Field(
        "redis",
        description="Where Redis' images come from if a resource names a version only: where your registry keeps them, "
        "tagged as Redis' own are, such as 8.0.2.",
    )
    rbac: RedisRbac = Field(RedisRbac(), description="Rights.")


class Part(BaseModel):
    """An operator in the umbrella chart; all its other values are checked by the schema of its own chart."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = Field(True, description="Install the operator. Off later, it goes; its CRDs and resources stay.")


class Platform(Values):
    """The values of charts/platform."""

    global_: Global = Field(
        Global(), alias="global", exclude=True, description="Values for every part of an umbrella chart; none is read."
    )
    etcd: Part = Field(Part(), description="The etcd operator; it takes all values of ../etcd-operator.")
    memcached: Part = Field(Part(), description="The memcached operator; it takes all values of ../memcached-operator.")
    redis: Part = Field(Part(), description="The redis operator; it takes all values of ../redis-operator.")


CHARTS: dict[str, type[Values]] = {
    "etcd-operator": EtcdOperator,
    "memcached-operator": MemcachedOperator,
    "platform": Platform,
    "redis-operator": RedisOperator,
}
"""The values of each chart that takes any, by the chart's directory."""
