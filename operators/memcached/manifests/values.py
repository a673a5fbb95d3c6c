"""The values of charts/memcached-operator: those that every operator's chart has, and its own."""

from __future__ import annotations

from pydantic import Field

from charts.values.operator import operator_values
from charts.values.rules import Count, Share, Thresholds


class MemcachedThresholds(Thresholds):
    """From when on alerts fire, of memcached, too."""

    evictions_per_second: Count = Field(10, description="Items that a Memcached may evict in a second.")
    connections_used: Share = Field(0.9, description="Share of a server's connections that may be in use.")
    hit_ratio: Share = Field(0.5, description="Share of gets that must find something.")


MemcachedOperatorValues = operator_values(
    "memcached",
    "Where memcached's images come from if a resource names a version only.",
    thresholds=MemcachedThresholds,
)
