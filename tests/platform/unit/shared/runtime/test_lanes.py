"""The lane of a shard when its replica begins to lead: which resources go first, and which are its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

import pytest

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.pacing import Pace
from shared.runtime.plan import Plan
from shared.runtime.process import Lane, RunningController
from shared.runtime.shards import Shard, shard_of
from shared.runtime.supervisor import Supervisor
from shared.status.events import Recorder
from tests.harness import ApiServer, cost

BOX = Kind("example.com", "v1", "Box", "boxes")
CHANGED = Key("default", "box-777")


async def _observe(_: Obj, __: Cache, ___: Kube) -> None:
    raise AssertionError("no worker runs")


def _plan(_: Obj, __: None, ___: datetime) -> Plan:
    raise AssertionError("no worker runs")


@pytest.fixture
async def running() -> RunningController:
    """Return a controller with 1,000 boxes, of which one was changed while no replica led."""
    kube = Kube(ApiServer([BOX]), manager="box-operator")
    recorder = Recorder(kube, component="box-operator")
    controller: Controller[Obj, None] = Controller("box-operator", BOX, (), dict, _observe, _plan)

    def lane(running: RunningController, shard: Shard) -> Lane:
        return Lane(running, shard, kube, recorder, lambda *_: None, Pace(), 1, Supervisor())

    made = RunningController(controller, [Shard(0, 2), Shard(1, 2)], lane)
    for obj in boxes():
        made.cache.on_changed(BOX, obj)
    return made


def boxes() -> Iterator[Obj]:
    for number in range(1000):
        name = f"box-{number}"
        generation = 2 if name == CHANGED.name else 1
        metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "generation": generation}
        yield {"metadata": metadata, "spec": {}, "status": {"observedGeneration": 1}}


async def test_change_that_no_leader_has_seen_precedes_all_other_resources(running: RunningController) -> None:
    """A change between two terms is not reported to the new leader by an event."""
    lane = running.lanes[shard_of(CHANGED, 2)]
    assert len(lane.queue) == 0, "nothing is queued before this replica leads"
    (worker,) = await lane.open()
    worker.cancel()
    assert await lane.queue.get() == CHANGED


async def test_begin_of_a_term_with_large_resources_costs_little(running: RunningController) -> None:
    spec = {"terms": [{"weight": number, "key": f"k{number}", "values": ["a", "b"]} for number in range(2_000)]}
    for obj in boxes():
        running.cache.on_changed(BOX, {**obj, "spec": spec, "metadata": {**obj["metadata"], "resourceVersion": "2"}})
        await asyncio.sleep(0)
    async with cost.bounded():
        for lane in running.lanes:
            (worker,) = await lane.open()
            worker.cancel()


async def test_lane_has_the_resources_of_its_shard_only(running: RunningController) -> None:
    for lane in running.lanes:
        (worker,) = await lane.open()
        worker.cancel()
        assert (
            len(lane.queue) == len(lane.keys) == sum(lane.shard.owns(Key("default", f"box-{n}")) for n in range(1000))
        )
    assert sum(len(lane.keys) for lane in running.lanes) == 1000
