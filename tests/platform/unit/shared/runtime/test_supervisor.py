"""A task that ends is started again, later each time; one that is cancelled is not."""

from __future__ import annotations

import ast
import asyncio

import pytest
from prometheus_client import REGISTRY

from shared.runtime.supervisor import CALM_SECONDS, FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS, MustEnd, Supervisor
from tests.support.paths import REPOSITORY

TASKS = {
    "shared/runtime/supervisor.py": "the supervisor itself",
    "shared/observability/http_server.py": "accept loops handle any error and continue; a connection ends alone",
    "shared/kubernetes/access_review.py": "awaited by the requests that need the review",
    "shared/kubernetes/fair_pool.py": "a TaskGroup, which the caller awaits",
    "shared/pki/trust_watch.py": "a TaskGroup, which the caller awaits",
    "shared/runtime/leader_election.py": "awaited while leading",
    "shared/runtime/probing.py": "a TaskGroup, which the caller awaits",
    "shared/runtime/process.py": "awaited by the loop that leads",
    "shared/runtime/reflector.py": "awaited by the refresh",
    "shared/runtime/shards.py": "awaited until it is stopped",
    "operators/etcd/backup/program.py": "awaited until it is stopped",
    "operators/etcd/backup/s3.py": "awaited when the upload ends",
    "operators/etcd/backup/work.py": "awaited for the next block",
    "operators/memcached/exporter/program.py": "keep_watching handles any error, _keep_reloaded those of files",
    "operators/redis/migration/key_by_key.py": "awaited by the migration",
    "shared/kubernetes/streams.py": "the iterator of events raises its error",
}
"""Modules that start tasks, with what notices their end."""


def test_every_task_is_supervised_or_awaited() -> None:
    found = {
        str(module.relative_to(REPOSITORY))
        for package in ("shared", "operators")
        for module in (REPOSITORY / package).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("create_task", "ensure_future"))
    }
    assert found == TASKS.keys(), "name what notices the end of each task"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def supervisor(clock: Clock) -> Supervisor:
    return Supervisor(clock=lambda: clock.now, sleep=clock.sleep)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_task_is_restarted_after_any_end_with_growing_delays(supervisor: Supervisor, clock: Clock) -> None:
    async def cancelled() -> None:
        waiter = asyncio.get_running_loop().create_future()
        waiter.cancel()  # as aiohttp does to those that wait for a connection of a closed pool
        await waiter

    async def nothing() -> None:
        return

    async def bug() -> None:
        raise KeyError("a")

    ends = [bug, cancelled, nothing] * 3

    async def run() -> None:
        if not ends:
            await asyncio.Event().wait()
        await ends.pop()()

    task = supervisor.start("supervised", run)
    await turns(100)
    assert not ends
    assert not task.done()
    assert clock.slept[0] == FIRST_RESTART_SECONDS
    assert clock.slept[:3] == [1, 2, 4]
    assert max(clock.slept) == MAX_RESTART_SECONDS
    assert supervisor.note() == "supervised was restarted 9 times: KeyError: 'a'"
    assert REGISTRY.get_sample_value("platform_task_restarts_total", {"task": "supervised"}) == 9
    clock.now += CALM_SECONDS
    assert supervisor.note() is None
    task.cancel()
    await turns(3)
    assert task.cancelled()


async def test_first_delay_applies_again_after_a_calm_time(supervisor: Supervisor, clock: Clock) -> None:
    async def run() -> None:
        clock.now += 2 * CALM_SECONDS
        raise KeyError("a")

    task = supervisor.start("calm", run)
    await turns(20)
    task.cancel()
    assert set(clock.slept) == {FIRST_RESTART_SECONDS}


async def test_task_may_end_the_process(supervisor: Supervisor) -> None:
    async def run() -> None:
        raise MustEnd("another replica may lead")

    with pytest.raises(MustEnd):
        await supervisor.start("fatal", run)


async def test_cancellation_that_a_failed_clean_up_replaces_ends_the_task(supervisor: Supervisor) -> None:
    runs = 0

    async def fails_in_clean_up() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("closed")

    task = supervisor.start("clean-up", fails_in_clean_up)
    await turns(2)
    task.cancel()
    await asyncio.wait({task}, timeout=1)
    assert (task.cancelled(), runs) == (True, 1)
