"""An image that cannot be pulled: the reason, one sentence for all pods, and no write without a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.status import conditions
from simulator.harness import Harness
from tests.harness.scenario import Subject
from tests.harness.scenario_runner import World
from tests.support.etcd.scenarios import ETCD
from tests.support.memcached.scenarios import MEMCACHED
from tests.support.redis.scenarios import REDIS

ERROR = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "it:9": failed to resolve reference "it:9": '
    "it:9: not found"
)
STATES = (
    f"ErrImagePull: {ERROR}",
    f'ImagePullBackOff: Back-off pulling image "it:9": ErrImagePull: {ERROR}',
    'ImagePullBackOff: Back-off pulling image "it:9"',
)
"""States that a kubelet reports in turn, every few seconds; the last one by kubelets before 1.32."""

CASES: Mapping[str, tuple[Subject, Obj, str]] = {
    "memcached": (MEMCACHED, {"size": 3}, "3 of 3 pods"),
    "etcd": (ETCD, {"size": 3, "version": "3.6.5"}, "cache-0"),
    "redis": (REDIS, {"replicas": 6, "storage": {"size": "1Gi"}}, "6 of 6 pods"),
}


def ready(harness: Harness) -> Obj:
    return accessors.condition(harness.resource("cache"), conditions.READY)


@pytest.mark.parametrize(("subject", "spec", "pods"), CASES.values(), ids=CASES)
async def test_pods_without_their_image_are_one_sentence_that_is_written_once(
    subject: Subject, spec: Any, pods: str
) -> None:
    world = World(subject)
    world.workloads.pod_problem = lambda _: STATES[0]
    harness = world.operator()
    harness.apply("cache", **spec)
    await harness.settle()
    reported, phase = ready(harness), harness.resource("cache")["status"]["phase"]
    assert (reported["reason"], phase) == ("ImagePullFailed", "Creating")
    assert f"{pods} cannot pull " in reported["message"]
    assert reported["message"].endswith(": the registry does not have it.")
    assert reported["message"].count("cannot pull") == 1
    assert ("ImagePullFailed", 1) in await harness.events()
    world.server.log.reset()
    for turn in range(6):
        world.workloads.pod_problem = lambda pod, turn=turn: STATES[(turn + ord(pod["metadata"]["name"][-1])) % 3]  # type: ignore[misc]
        await harness.settle()
    assert [str(write) for write in world.server.log.writes(harness.controller.kind.name)] == []
    assert ready(harness) == reported
