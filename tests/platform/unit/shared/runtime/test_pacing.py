"""Polls take a share of the CPU time, also for many waiting resources, and never delay changes or deadlines."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime

import pytest

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.pacing import MAX_POLL_SECONDS, POLL_SHARE, Pace, metered
from shared.runtime.plan import Plan
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.status.events import Recorder
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict
from tests.harness import ApiServer

A, B = Key("default", "a"), Key("default", "b")
BOX = Kind("example.com", "v1", "Box", "boxes")
RESOURCES = 200


def test_few_resources_are_polled_as_often_as_requested() -> None:
    pace = Pace()
    pace.note(0.002)
    pace.counts.append(lambda: 10)
    assert pace.seconds(0.5) == 0.5


def test_polls_of_many_resources_take_their_share_of_the_time() -> None:
    pace = Pace()
    for _ in range(200):
        pace.note(0.004)
    pace.counts.append(lambda: 1000)
    assert pace.seconds(0.5) == pytest.approx(1000 * 0.004 / POLL_SHARE, rel=0.01)


def test_poll_is_never_slower_than_the_limit_or_than_requested() -> None:
    pace = Pace()
    pace.note(1.0)
    pace.counts.append(lambda: 10_000)
    assert pace.seconds(0.5) == MAX_POLL_SECONDS
    assert pace.seconds(60.0) == 60.0


def test_queues_of_a_process_share_one_pace() -> None:
    pace = Pace()
    for _ in range(200):
        pace.note(0.01)
    pace.counts.append(lambda: 100)
    pace.counts.append(lambda: 50)
    assert pace.seconds(1.0) == pytest.approx(150 * 0.01 / POLL_SHARE, rel=0.01)


async def test_queue_counts_the_resources_that_it_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    pace = Pace()

    def seconds(requested: float) -> float:
        counts.append(sum(each() for each in pace.counts))
        return requested

    monkeypatch.setattr(pace, "seconds", seconds)
    queue = Queue("test", pace=pace)
    queue.poll(A, 0.0)
    queue.poll(B, 0.0)
    queue.poll(Key("default", "complete"), MAX_POLL_SECONDS)
    await asyncio.sleep(0.01)
    await queue.get()
    queue.poll(B, 0.0)
    assert counts == [1, 2, 2, 1], "a complete cluster, which is observed rarely, and one in process do not count"
    queue.close()
    assert [each() for each in pace.counts] == [0]


async def test_polls_wait_behind_changes() -> None:
    queue = Queue("test")
    queue.poll(A, 0.0)
    await asyncio.sleep(0.01)
    queue.add(B)
    assert [await queue.get(), await queue.get()] == [B, A]


async def test_slow_poll_does_not_delay_a_deadline_of_the_same_resource() -> None:
    queue = Queue("test")
    queue.poll(A, 20.0)
    queue.add_after(A, 0.01)
    assert await asyncio.wait_for(queue.get(), 1) == A
    queue.done(A)
    await asyncio.sleep(0)
    assert len(queue) == 0
    queue.close()


async def test_deadline_that_comes_while_a_poll_waits_is_a_change() -> None:
    queue = Queue("test")
    queue.poll(B, 0.0)
    await asyncio.sleep(0.01)
    queue.poll(A, 0.0)
    queue.add_after(A, 0.02)
    await asyncio.sleep(0.05)
    assert [await queue.get(), await queue.get()] == [A, B]


async def test_reconcile_cancels_the_timers_of_the_former_plan() -> None:
    queue = Queue("test")
    queue.poll(A, 0.03)
    queue.add_after(A, 0.03)
    queue.add(A)
    queue.done(await queue.get())
    await asyncio.sleep(0.06)
    assert len(queue) == 0


async def test_cpu_time_is_measured_without_waits_and_other_tasks() -> None:
    def work(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    async def other() -> None:
        work(0.05)

    async def reconcile() -> str:
        work(0.02)
        await asyncio.sleep(0.05)
        work(0.02)
        return "success"

    costs: list[float] = []
    others = asyncio.create_task(other())
    assert await metered(reconcile(), costs.append) == "success"
    await others
    assert costs == [pytest.approx(0.04, abs=0.015)]


async def test_cancellation_and_errors_pass_through_the_measurement() -> None:
    ended = []

    async def wait(of: Awaitable[None]) -> None:
        try:
            await of
        finally:
            ended.append(1)

    costs: list[float] = []
    task = asyncio.create_task(_run(metered(wait(asyncio.sleep(10)), costs.append)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await metered(fail(), costs.append)
    assert (len(ended), len(costs)) == (1, 2)


async def _run(work: Awaitable[None]) -> None:
    await work


async def test_waiting_resources_leave_the_time_to_changes() -> None:
    """Each requests a poll of 5 ms of CPU time every half second: twice what there is."""
    polled = 0

    async def observe(_: Obj, __: Cache, ___: Kube) -> None:
        nonlocal polled
        polled += 1
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass

    def plan(_: Obj, __: None, ___: datetime) -> Plan:
        verdict = Verdict(Progress.WAITING, Reason("Creating"), "waits for its pods")
        return Plan((), verdict, {"phase": "Creating"}, poll=0.5)

    controller: Controller[Obj, None] = Controller("box-operator", BOX, (), dict, observe, plan)
    server = ApiServer([BOX])
    kube = Kube(server, manager="box-operator")
    queue = Queue("box")
    cache = controller.cache(queue.add)
    for number in range(RESOURCES):
        metadata = {"name": f"box-{number}", "namespace": "default"}
        created = server.actor("user").create(BOX, {"metadata": metadata, "spec": {}})
        cache.put(BOX, created | {"apiVersion": BOX.api_version, "kind": BOX.name})
    recorder = Recorder(kube, component="box-operator")
    reconciler = Reconciler(
        controller, kube=kube, cache=cache, queue=queue, recorder=recorder, clock=lambda: datetime.now(UTC)
    )
    for key in cache.keys(BOX):
        queue.add(key)
    workers = [asyncio.create_task(reconciler.work()) for _ in range(8)]
    async with asyncio.timeout(60):
        while polled < RESOURCES:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    seconds = queue.pace.seconds(0.5)
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    queue.close()
    assert seconds > 0.8 * RESOURCES * 0.005 / POLL_SHARE
