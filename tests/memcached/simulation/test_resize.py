"""A change of CPU and memory resizes running servers where the cluster can, and replaces them elsewhere."""

from __future__ import annotations

import pytest

from operators.memcached.api.resource import API
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import POD, Obj
from tests.harness.scenario import apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.unit.world import UNPAUSED, workload_in
from tests.support.memcached.scenarios import MEMCACHED

BEFORE: Obj = {"size": 2, "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}}}
AFTER: Obj = {"size": 2, "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "100m"}}}


def world(*, resizes: bool) -> World:
    """Return a world whose API server has the subresource resize of pods, or is older."""
    found = World(MEMCACHED)
    found.server.set_resizes(POD, resizes)
    return found


def memory(holder: Obj) -> str:
    found: str = holder["spec"]["containers"][0]["resources"]["limits"]["memory"]
    return found


def state(found: World) -> tuple[set[str], set[str], str]:
    """Return the UIDs of the pods, their memory limits, and that of the template."""
    pods = [obj for _, obj in found.server.objects(POD)]
    workload = workload_in(found.server)
    uids = {pod["metadata"]["uid"] for pod in pods}
    return uids, {memory(pod) for pod in pods}, memory(workload["spec"]["template"])


async def changed(found: World, spec: Obj) -> None:
    await ScenarioRun(found).run_steps((apply(**spec),))
    [(_, resource)] = found.server.objects(API.kind)
    assert condition(resource, "Ready")["status"] == "True"


async def test_resized_servers_are_not_replaced() -> None:
    found = world(resizes=True)
    await changed(found, BEFORE)
    uids, *_ = state(found)
    await changed(found, AFTER)
    assert state(found) == (uids, {"512Mi"}, "256Mi")
    await changed(found, BEFORE)
    assert state(found) == (uids, {"256Mi"}, "256Mi")


async def test_next_roll_adopts_the_amounts() -> None:
    found = world(resizes=True)
    await changed(found, BEFORE)
    await changed(found, AFTER)
    uids, *_ = state(found)
    await changed(found, AFTER | UNPAUSED | {"threads": 2})
    after, limits, template = state(found)
    assert (uids & after, limits, template) == (set(), {"512Mi"}, "512Mi")


@pytest.mark.parametrize("size", [0, 2])
async def test_servers_are_replaced_where_the_cluster_cannot_resize(size: int) -> None:
    found = world(resizes=size == 0)
    await changed(found, BEFORE | UNPAUSED | {"size": size})
    uids, *_ = state(found)
    await changed(found, AFTER | UNPAUSED | {"size": size})
    after, limits, template = state(found)
    assert (uids & after, limits, template) == (set(), {"512Mi"} if size else set(), "512Mi")
