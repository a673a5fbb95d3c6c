"""Resources that fail do not delay the others: the queue, the workers and the reconciler together."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import datetime

from e2e.bench.measures import percentile
from shared.kubernetes.client import Kube
from shared.kubernetes.fair_queue import Priority
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.errors import DatabaseError
from shared.runtime.plan import Plan
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.status.events import Recorder
from shared.status.verdict import Verdict
from tests.harness import ApiServer
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
RESOURCES, WORKERS = 300, 64
HANGS_SECONDS = 0.5


class Boxes:
    """An operator of boxes, of which one in ten may fail after a while: its database does not answer.

    Attributes:
        latencies: seconds from each change of a healthy box until its reconcile observed it.
        reconciled: number of reconciles that observed their box.
    """

    def __init__(self, *, fails: bool = False, cpu_seconds: float = 0.0) -> None:
        self.reconciled = 0
        self._cpu_seconds = cpu_seconds
        self.latencies: list[float] = []
        self.failed = 0
        self._fails = fails
        self._changed: dict[str, float] = {}
        controller: Controller[Obj, None] = Controller("box-operator", BOX, (), dict, self._observe, self._plan)
        server = ApiServer([BOX])
        kube = Kube(server, manager="box-operator")
        self.queue = Queue("box")
        cache = controller.cache(self.queue.add)
        for number in range(RESOURCES):
            metadata = {"name": f"box-{number}", "namespace": "default"}
            created = server.actor("user").create(BOX, {"metadata": metadata, "spec": {}})
            cache.put(BOX, created | {"apiVersion": BOX.api_version, "kind": BOX.name})
        recorder = Recorder(kube, component="box-operator")
        self._reconciler = Reconciler(controller, kube=kube, cache=cache, queue=self.queue, recorder=recorder)

    def begin(self) -> list[asyncio.Task[None]]:
        """Start the workers, and queue every box, as a new leader does."""
        for number in range(RESOURCES):
            self.queue.add(Key("default", f"box-{number}"), Priority.BACKGROUND)
        return [asyncio.create_task(self._reconciler.work()) for _ in range(WORKERS)]

    async def run(self, seconds: float) -> None:
        """Reconcile every box, and change healthy ones."""
        workers = self.begin()
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        healthy = [number for number in range(RESOURCES) if number % 10]
        while clock() < end:
            name = f"box-{random.choice(healthy)}"
            self._changed.setdefault(name, clock())
            self.queue.add(Key("default", name))
            await asyncio.sleep(0.01)
        await self.end(workers)

    async def end(self, workers: list[asyncio.Task[None]]) -> None:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        self.queue.close()

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> None:
        name, began = resource["metadata"]["name"], time.thread_time()
        if self._fails and int(name.removeprefix("box-")) % 10 == 0:
            await asyncio.sleep(HANGS_SECONDS)
            self.failed += 1
            raise DatabaseError("the database does not answer")
        if (since := self._changed.pop(name, None)) is not None:
            self.latencies.append(asyncio.get_running_loop().time() - since)
        while time.thread_time() < began + self._cpu_seconds:
            pass
        self.reconciled += 1

    def _plan(self, _: Obj, __: None, ___: datetime) -> Plan:
        return Plan((), Verdict(message="All is well."), {"phase": "Running"})


@in_virtual_time
async def test_failure_of_one_resource_in_ten_does_not_delay_the_others() -> None:
    alone, among = Boxes(), Boxes(fails=True)
    await alone.run(2)
    await among.run(2)
    assert among.failed > 2 * RESOURCES / 10, "failed ones are retried"
    assert len(among.latencies) > 50
    assert percentile(among.latencies, 0.99) < percentile(alone.latencies, 0.99) + 0.1


async def test_reconciles_without_requests_do_not_block_the_event_loop() -> None:
    """A new leader reconciles every resource from its cache. The Lease is renewed and changes are noticed."""
    boxes = Boxes(cpu_seconds=0.002)
    reporting = boxes.begin()
    await asyncio.sleep(1.5)  # the statuses of all boxes are written
    await boxes.end(reporting)
    boxes.queue.open()
    boxes.reconciled, longest, ticks = 0, 0.0, 0
    workers = boxes.begin()
    while boxes.reconciled < RESOURCES:
        began = time.thread_time()  # without the time in which other processes run
        await asyncio.sleep(0)
        longest, ticks = max(longest, time.thread_time() - began), ticks + 1
    await boxes.end(workers)
    assert longest < 0.1, f"the event loop was blocked for {longest:.3f} s"
    assert ticks > 5
