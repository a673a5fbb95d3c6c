"""Changes of each kind, each of which is executed as `kubectl platform plan` predicts: order, effects and end.

The durations of all steps are in `build/plans-*.json`, which `python -m e2e.plans.report` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.etcd.versions import NEWEST_36, NEWEST_37
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.redis.versions import REDIS_7, REDIS_8
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.resource import Resource

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

READY_SECONDS = 300.0

Spec = dict[str, Any]

CACHE: tuple[Spec, ...] = (
    {"version": "1.6.38"},
    {"size": 3},
    {"annotations": {"example.com/rolled": "yes"}},
    {"memoryMB": 96},
    {"auth": {}},
    {"tls": {"mode": "self"}},
    {"workload": "Deployment"},
    {"size": 1},
)
MEMBERS: tuple[Spec, ...] = (
    {"size": 3},
    {"size": 5},
    {"size": 3},
    {"annotations": {"example.com/rolled": "yes"}},
    {"autoCompaction": {"retention": "1h"}},
    {"auth": {}},
    {"version": NEWEST_37},
    {"storage": {"size": "320Mi"}},
    {"hibernate": True},
)
NODES: tuple[Spec, ...] = (
    {"replicas": 8},
    {"config": {"maxmemory-policy": "allkeys-lru"}},
    {"annotations": {"example.com/rolled": "yes"}},
    {"auth": {}},
    {**REDIS_8},
    {"config": {"appendonly": "no"}},
    {"replicas": 6},
    {"hibernate": True},
)


def require_planned(resource: Resource, changes: Iterable[Spec]) -> None:
    """Apply one change after the other, and require that each is executed as planned.

    Raises:
        AssertionError: some are not; the message has all differences.
    """
    failures = []
    for spec in changes:
        try:
            with resource.planned(**spec):
                until(f"{spec} is applied", is_applied(resource, spec), seconds=READY_SECONDS)
        except (AssertionError, Refused) as failure:  # the next change waits until the resource is at rest
            failures.append(f"{spec}: {failure}")
    assert not failures, "\n\n".join(failures)


def is_applied(resource: Resource, spec: Spec) -> Callable[[], object]:
    """Return a check that a change is complete."""

    def check() -> object:
        return resource.status["phase"] == "Hibernated" if spec.get("hibernate") else resource.ready_now()

    return check


def test_changes_of_a_memcached_are_executed_as_planned(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "demo", size=2, version="1.6.18")
    cache.await_ready(2)
    require_planned(cache, CACHE)


def test_changes_of_an_etcd_cluster_are_executed_as_planned(kubectl: Kubectl) -> None:
    cluster = EtcdCluster.create(kubectl, size=1, version=NEWEST_36)
    cluster.await_ready(1)
    require_planned(cluster, MEMBERS)


def test_changes_of_a_redis_cluster_are_executed_as_planned(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **REDIS_7)
    cluster.await_ready(6)
    require_planned(cluster, NODES)
