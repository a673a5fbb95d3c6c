"""Disruption budgets and autoscaling of memcached."""

from __future__ import annotations

import json

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import is_evicted

pytestmark = pytest.mark.nightly


def test_drain_evicts_one_server_at_a_time(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=3, podDisruptionBudget={})
    first, second, _ = cache.await_ready(3)["status"]["nodes"]
    until("the first server is evicted", lambda: is_evicted(kubectl, first))
    assert not is_evicted(kubectl, second)
    until("the second server is evicted", lambda: is_evicted(kubectl, second))
    status = kubectl.get("statefulset", "cache")["status"]
    assert status["readyReplicas"] >= 2, "the first server is replaced before the second is evicted"
    cache.await_ready(3)


def test_size_set_by_the_autoscaler_is_kept(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=1, autoscaling={"minReplicas": 2, "maxReplicas": 3})
    cache.await_ready(2)  # without metrics an autoscaler only enforces its bounds
    scaler = kubectl.get("horizontalpodautoscaler", "cache")["spec"]
    assert scaler["scaleTargetRef"]["kind"] == "Memcached"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 3)
    kubectl("scale", "memcached", "cache", "--replicas=3")
    cache.await_ready(3)
    kubectl("label", "memcached", "cache", "touched=yes")
    kubectl("scale", "memcached", "cache", "--replicas=5")
    cache.await_ready(3)
    applied = json.dumps({"spec": {"autoscaling": None, "size": 1}})
    kubectl("patch", "memcached", "cache", "--type=merge", "-p", applied)
    cache.await_ready(1)
    until("the autoscaler is deleted", lambda: not kubectl.items("horizontalpodautoscalers"))
