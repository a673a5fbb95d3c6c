"""One namespace does not delay the others: the lane of a controller, its workers and its requests together.

Time is simulated, so a latency consists of waits only: for a worker, for the API server, for a database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import pytest

from e2e.bench.measures import percentile
from shared.kubernetes import ownership
from shared.kubernetes.client import Kube, Request
from shared.kubernetes.kinds import CONFIG_MAP, Key, Kind, Obj
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.errors import DatabaseError
from shared.runtime.pacing import Pace
from shared.runtime.plan import Apply, Plan
from shared.runtime.process import Lane, RunningController
from shared.runtime.shards import Shard
from shared.runtime.supervisor import Supervisor
from shared.status.events import Recorder
from shared.status.verdict import Verdict
from tests.harness import ApiServer
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
WORKERS = 256
REQUEST_SECONDS, WEBHOOK_SECONDS, DATABASE_SECONDS = 0.02, 10.0, 5.0
GOOD = tuple(f"good-{number}" for number in range(10))
CHANGES_PER_SECOND = 20
MAX_P99_SECONDS, LONGEST_SECONDS = 1.0, 10.0


class World:
    """An operator of boxes, each of which has a ConfigMap; the boxes of some namespaces have a problem.

    Attributes:
        latencies: seconds from each change of a box in a good namespace until its status describes it.
    """

    def __init__(self, bad: dict[str, int]) -> None:
        self.server = ApiServer([BOX])
        self.server.seconds = self._seconds
        self.bad = bad
        self.webhook_seconds = self.database_seconds = 0.0
        self.fails = False
        self.latencies: list[float] = []
        self._changed: dict[tuple[Key, int], float] = {}  # when a generation was requested
        self._user = self.server.actor("user")
        kube = Kube(self.server, manager="box-operator")
        self._recorder = Recorder(kube, component="box-operator")
        controller: Controller[Obj, None] = Controller(
            "box-operator", BOX, (CONFIG_MAP,), dict, self._observe, self._plan
        )

        def lane(running: RunningController, shard: Shard) -> Lane:
            return Lane(running, shard, kube, self._recorder, lambda *_: None, Pace(), WORKERS, Supervisor())

        self._running = RunningController(controller, [Shard()], lane)
        for kind in (BOX, CONFIG_MAP):
            self.server.subscribe(lambda event, kind=kind: self._receive(kind, event), kind)  # type: ignore[misc]

    def _receive(self, kind: Kind, event: Obj) -> None:
        cache, obj = self._running.cache, {"apiVersion": kind.api_version, "kind": kind.name} | event["object"]
        (cache.on_deleted if event["type"] == "DELETED" else cache.on_changed)(kind, obj)
        if kind == BOX:
            self._note(obj)

    def _seconds(self, request: Request) -> float:
        is_slow = request.method != "GET" and any(f"/namespaces/{name}/" in request.path for name in self.bad)
        return max(REQUEST_SECONDS, self.webhook_seconds if is_slow else 0.0)

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> None:
        if resource["metadata"]["namespace"] in self.bad:
            await asyncio.sleep(self.database_seconds)
            if self.database_seconds or self.fails:
                raise DatabaseError("the database does not answer")

    def _plan(self, resource: Obj, _: None, __: datetime) -> Plan:
        metadata = resource["metadata"]
        labels = {ownership.MANAGED_BY: "box-operator", ownership.INSTANCE: metadata["name"]}
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels},
            "data": {"size": str(resource["spec"]["size"])},
        }
        return Plan(((Apply(CONFIG_MAP, obj),),), Verdict(message="All is well."), {})

    def create(self, namespace: str, name: str) -> None:
        metadata = {"name": name, "namespace": namespace}
        self._user.create(
            BOX, {"apiVersion": BOX.api_version, "kind": BOX.name, "metadata": metadata, "spec": {"size": 0}}
        )

    def change(self, key: Key, size: int) -> None:
        """Change a box; its latency is noted when the status describes the change."""
        changed = self._user.merge(BOX, *key, {"spec": {"size": size}})
        self._changed[key, changed["metadata"]["generation"]] = asyncio.get_running_loop().time()

    def _note(self, box: Obj) -> None:
        key = Key(box["metadata"]["namespace"], box["metadata"]["name"])
        began = self._changed.pop((key, (box.get("status") or {}).get("observedGeneration", 0)), None)
        if began is not None:
            self.latencies.append(asyncio.get_running_loop().time() - began)

    async def run(self, seconds: float) -> None:
        """Begin to work, create all boxes, and change those of good namespaces 20 times a second."""
        lane = self._running.lanes[0]
        tasks = await lane.open()
        tasks.add(asyncio.create_task(self._recorder.run()))
        for namespace in GOOD:
            for number in range(20):
                self.create(namespace, f"box-{number}")
        await asyncio.sleep(5)
        for namespace, count in self.bad.items():
            for number in range(count):
                self.create(namespace, f"box-{number}")
        for number in range(int(CHANGES_PER_SECOND * seconds)):
            self.change(Key(GOOD[number % len(GOOD)], f"box-{number // len(GOOD) % 20}"), number + 1)
            await asyncio.sleep(1 / CHANGES_PER_SECOND)
        await asyncio.sleep(LONGEST_SECONDS)
        self.latencies += [LONGEST_SECONDS] * len(self._changed)  # not reported yet
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        lane.queue.close()


def _slow_webhook(world: World) -> None:
    world.webhook_seconds = WEBHOOK_SECONDS


def _hung_databases(world: World) -> None:
    world.database_seconds = DATABASE_SECONDS


def _failures(world: World) -> None:
    world.fails = True


PROBLEMS: dict[str, Callable[[World], None]] = {
    "slow webhook": _slow_webhook,
    "hung databases": _hung_databases,
    "failures": _failures,
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"bad": 1000}, id="one"),
        pytest.param({f"bad-{number}": 20 for number in range(50)}, id="fifty", marks=pytest.mark.nightly),
    ],
)
@in_virtual_time
async def test_problem_of_some_namespaces_leaves_the_others_alone(problem: str, bad: dict[str, int]) -> None:
    world = World(bad)
    PROBLEMS[problem](world)
    await world.run(20)
    assert len(world.latencies) == 400
    p99 = percentile(world.latencies, 0.99)
    assert p99 <= MAX_P99_SECONDS, f"99 % of the changes were reported within {p99:.2f} s"
