"""Drains and autoscalers."""

from __future__ import annotations

import json

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import is_evicted


def test_a_drain_takes_one_server_at_a_time(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=3, podDisruptionBudget={})
    first, second, _ = cache.await_ready(3)["status"]["nodes"]
    until("one may go", lambda: is_evicted(kubectl, first))
    assert not is_evicted(kubectl, second)
    until("the next may go", lambda: is_evicted(kubectl, second))
    deployment = kubectl.get("deployment", "cache")["status"]
    assert deployment["readyReplicas"] >= 2, "the first is replaced before the second goes"
    cache.await_ready(3)


def test_an_autoscaler_chooses_the_size_and_nobody_takes_it_back(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=1, autoscaling={"minReplicas": 2, "maxReplicas": 3})
    cache.await_ready(2)  # without metrics an autoscaler keeps to its bounds
    scaler = kubectl.get("horizontalpodautoscaler", "cache")["spec"]
    assert scaler["scaleTargetRef"]["kind"] == "Memcached"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 3)
    kubectl("scale", "memcached", "cache", "--replicas=3")
    cache.await_ready(3)
    kubectl("label", "memcached", "cache", "looked=at")
    kubectl("scale", "memcached", "cache", "--replicas=5")
    cache.await_ready(3)
    applied = json.dumps({"spec": {"autoscaling": None, "size": 1}})
    kubectl("patch", "memcached", "cache", "--type=merge", "-p", applied)
    cache.await_ready(1)
    until("the autoscaler is gone", lambda: not kubectl.items("horizontalpodautoscalers"))
