"""A pod without a label of the operator: its message names the label and the remedy, and restoring it heals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.client import Request, Response
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY
from shared.status import conditions
from simulator.harness import NAMESPACE, Harness
from tests.harness.scenario import Subject
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD
from tests.support.etcd.scenarios import cluster as etcd_cluster
from tests.support.redis.scenarios import REDIS
from tests.support.redis.scenarios import cluster as redis_cluster

CASES: Mapping[str, tuple[Subject, Any]] = {"etcd": (ETCD, etcd_cluster(3)), "redis": (REDIS, redis_cluster())}


def ready(harness: Harness) -> Obj:
    return accessors.condition(harness.resource("cache"), conditions.READY)


@pytest.mark.parametrize("label", [INSTANCE, MANAGED_BY])
@pytest.mark.parametrize(("subject", "created"), CASES.values(), ids=CASES)
async def test_pod_without_a_label_is_reported_with_the_label(subject: Subject, created: Any, label: str) -> None:
    play = ScenarioRun(World(subject))
    await play.run_steps((created,))
    harness = play.operator
    assert harness is not None
    pod = harness.user_client.get(POD, NAMESPACE, "cache-2")
    value = pod["metadata"]["labels"][label]
    harness.user_client.merge(POD, NAMESPACE, "cache-2", {"metadata": {"labels": {label: None}}})
    await harness.settle()
    restore = f"`kubectl label pod cache-2 -n default {label}={value} --overwrite`"
    text = f"cache-2 lacks the label {label}={value}, and is not managed. Run {restore}, or delete the pod."
    assert text in ready(harness)["message"]
    play.world.require_safe()
    harness.user_client.merge(POD, NAMESPACE, "cache-2", {"metadata": {"labels": {label: value}}})
    await harness.settle()
    assert ready(harness)["reason"] == "Ready"


@pytest.mark.parametrize(("subject", "created"), CASES.values(), ids=CASES)
async def test_healthy_cluster_reads_no_pod(subject: Subject, created: Any) -> None:
    play = ScenarioRun(World(subject))
    await play.run_steps((created,))
    harness = play.operator
    assert harness is not None
    requests: list[str] = []
    play.world.server.log.reset()
    handle = play.world.server.handle

    def noting(request: Request) -> Response:
        requests.append(request.path)
        return handle(request)

    play.world.server.handle = noting  # type: ignore[method-assign]
    for key in harness.cache.keys(harness.controller.kind):
        harness.queue.add(key)
    await harness.run()
    assert not [path for path in requests if "/pods/" in path]
