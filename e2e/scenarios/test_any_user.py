"""Images run as any user: as an ID that no image knows, with group 0, like OpenShift assigns them."""

from __future__ import annotations

import pytest

from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.release import Release

UNKNOWN = 1_000_720_001
"""User ID in the range that OpenShift assigns to a namespace."""


def users(kubectl: Kubectl) -> set[int]:
    """Return the user IDs of the pods of a namespace, as their specs have them."""
    return {pod["spec"]["securityContext"]["runAsUser"] for pod in kubectl.items("pods")}


@pytest.mark.weekly
def test_operators_and_databases_run_as_an_unknown_user(
    kubectl: Kubectl, release: Release, operator: Operator, etcd_operator: Operator, redis_operator: Operator
) -> None:
    operators = (operator, etcd_operator, redis_operator)
    settings = {"runAsUser": UNKNOWN, "runAsGroup": 0}
    named = [each.lease_name.removesuffix("-operator") for each in operators]
    values = [f"{name}.podSecurityContext.{field}={value}" for name in named for field, value in settings.items()]
    release.upgrade("--set", ",".join(values))
    for each in operators:
        each.await_rollout()
        assert {pod["spec"]["securityContext"]["runAsUser"] for pod in each.pods} == {UNKNOWN}
    user = {**settings, "fsGroup": UNKNOWN}
    cache = Memcached.create(kubectl, "cache", size=1, podSecurityContext=user, memoryMB=64, warmRestart=True)
    store = EtcdCluster.create(kubectl, "store", size=1, podSecurityContext=user)
    carts = Cluster.create(kubectl, "carts", replicas=3, replicasPerMaster=0, podSecurityContext=user)
    cache.await_ready(1)
    store.await_ready(1)
    carts.await_ready(3)
    assert users(kubectl) == {UNKNOWN}
    assert cache.serves() == 1
