"""From when on the rules of dashboards/rules speak up: expressions name these, and people set them by the charts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from charts.values.base import Values
from charts.values.kubernetes import Labels, Strings, Text

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[float, Field(ge=0)]
Time = Annotated[float, Field(gt=0)]
"""Seconds."""


class Thresholds(Values):
    """From when on alerts fire, for every operator."""

    unready_seconds: Time = Field(900, description="Seconds that a resource may be not Ready.")
    certificate_seconds: Time = Field(
        1_209_600,
        description="Seconds that a certificate must be good for; the operators' own are renewed a month before.",
    )
    error_budget: Share = Field(
        0.01, description="Share of reconciles that may fail: alerts fire by how fast this is used up."
    )
    queue_seconds: Time = Field(10, description="Seconds that one in a hundred resources may wait for a worker.")
    api_error_ratio: Share = Field(0.05, description="Share of requests to the API server that may get 429 or 5xx.")


class MemcachedThresholds(Thresholds):
    """From when on alerts fire, of memcached, too."""

    evictions_per_second: Count = Field(10, description="Items that a Memcached may evict in a second.")
    connections_used: Share = Field(0.9, description="Share of a server's connections that may be in use.")
    hit_ratio: Share = Field(0.5, description="Share of gets that must find something.")


class EtcdThresholds(Thresholds):
    """From when on alerts fire, of etcd, too."""

    quota_used: Share = Field(0.8, description="Share of its quota that a database may take.")
    leader_changes: Count = Field(4, description="Elections that a cluster may have in a quarter of an hour.")
    fsync_seconds: Time = Field(0.5, description="Seconds that one in a hundred writes to a log may take.")
    commit_seconds: Time = Field(0.25, description="Seconds that one in a hundred writes to a database may take.")
    peer_seconds: Time = Field(0.15, description="Seconds that one in a hundred messages between members may take.")
    request_error_ratio: Share = Field(0.05, description="Share of requests that may fail through etcd's own fault.")
    snapshot_late_seconds: Time = Field(3600, description="Seconds that a snapshot by the clock may be late.")


class RedisThresholds(Thresholds):
    """From when on alerts fire, of Redis, too."""

    memory_used: Share = Field(0.9, description="Share of maxmemory that a node may have in use.")
    connections_used: Share = Field(0.9, description="Share of maxclients that may be connected.")
    evictions_per_second: Count = Field(10, description="Keys that a RedisCluster may evict in a second.")
    replica_lag_seconds: Time = Field(30, description="Seconds that a replica may be behind.")


class PrometheusRule(Values):
    """Alerts and recording rules for the Prometheus operator."""

    enabled: bool = Field(False, description="Make a PrometheusRule; it asks what the ServiceMonitors' targets tell.")
    labels: Labels = Field({}, description="Labels by which your Prometheus selects it, such as release: prometheus.")
    alert_labels: Strings = Field({}, description="Further labels of every alert, such as team: storage.")
    disabled: list[Text] = Field([], description="Names of alerts to leave out, such as [PlatformResourcePaused].")
    dashboards_url: str = Field("", description="Where Grafana is: what links to dashboards begin with.")
    runbooks_url: str = Field(
        "", description="Where this repository can be read, with a / at its end: what links to the runbook begin with."
    )
    thresholds: Thresholds = Field(Thresholds(), description="From when on alerts fire.")


class MemcachedRule(PrometheusRule):
    """Those of memcached, too."""

    thresholds: MemcachedThresholds = Field(MemcachedThresholds(), description="From when on alerts fire.")


class EtcdRule(PrometheusRule):
    """Those of etcd, too."""

    thresholds: EtcdThresholds = Field(EtcdThresholds(), description="From when on alerts fire.")


class RedisRule(PrometheusRule):
    """Those of Redis, too."""

    thresholds: RedisThresholds = Field(RedisThresholds(), description="From when on alerts fire.")
