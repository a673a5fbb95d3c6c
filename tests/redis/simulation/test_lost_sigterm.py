"""Pods that are deleted just after their start: the kernel discards SIGTERM for a server that does not handle it yet.

Such a server starts, serves, and is killed when the grace period of 300 s ends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import POD, Obj
from simulator.redis.client import Entry
from tests.harness.scenario import ScenarioStep, delete, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.guard import values
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import REDIS, cluster, in_memory, node

SNAPSHOTS: Obj = {"config": {"appendonly": "no"}}
VOLATILE: Obj = {"config": {"appendonly": "no", "save": ""}}


def sigterm_lost(number: int) -> ScenarioStep:
    """Delete a pod; its server does not get the signal."""

    def act(stage: Any) -> None:
        redis: FakeRedis = stage.database
        redis.stop_missed.add(redis.named(node(number)).uid)
        stage.workloads.ignore_stop(redis.ignores_stop)
        delete(POD, node(number)).act(stage)

    return ScenarioStep(f"{node(number)} is deleted, and its server gets no SIGTERM", act)


def starts_never(number: int) -> tuple[ScenarioStep, ...]:
    """Recreate a pod whose server never listens."""

    def act(stage: Any) -> None:
        stage.workloads.pod_problem = lambda pod: "Unready" if pod["metadata"]["name"] == node(number) else ""
        delete_now(POD, node(number)).act(stage)
        while not stage.database.processes.keys() & {
            pod["metadata"]["uid"] for pod in stage.find(POD) if pod["metadata"]["name"] == node(number)
        }:
            assert stage.workloads.step()
        stage.database.hang(node(number))

    return (ScenarioStep(f"the server of {node(number)} never listens", act), later(120))


def pod_of(run: ScenarioRun, number: int) -> Obj:
    [found] = (pod for pod in run.stage.find(POD) if pod["metadata"]["name"] == node(number))
    return found


async def seconds_until_replaced(run: ScenarioRun, number: int) -> float:
    """Return the time after which the pod of a deletion without SIGTERM is replaced; 300 if it is killed then."""
    uid, since = pod_of(run, number)["metadata"]["uid"], run.world.clock()
    await run.run_steps((sigterm_lost(number),))
    while pod_of(run, number)["metadata"]["uid"] == uid:
        await run.wait(2)
    return (run.world.clock() - since) / timedelta(seconds=1)


@pytest.mark.parametrize(
    "number", [pytest.param(0, id="primary"), pytest.param(5, id="replica", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize(
    "given",
    [cluster(6), cluster(6, "9.0.1", repository="valkey/valkey"), in_memory(6), cluster(6, **VOLATILE)],
    ids=["redis", "valkey", "no volumes", "no persistence"],
)
async def test_server_that_got_no_sigterm_is_shut_down(given: ScenarioStep, number: int) -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((given,))
    assert await seconds_until_replaced(run, number) < 40
    [found] = run.stage.find()
    assert condition(found, "Ready")["status"] == "True"


@pytest.mark.parametrize("seconds", [-30, pytest.param(30, marks=pytest.mark.nightly)])
async def test_clock_of_the_operator_has_no_influence_on_a_shutdown(seconds: int) -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(30)))
    run.end()
    run.world.clock.error = timedelta(seconds=seconds)
    run.begin()
    assert 20 <= await seconds_until_replaced(run, 5) < 40


async def test_server_that_got_no_sigterm_saves_its_keys() -> None:
    """Until it is killed, the server accepts writes that the last snapshot lacks."""
    run, before = ScenarioRun(World(REDIS)), dict[bytes, Entry]()
    await run.run_steps((cluster(3, replicasPerMaster=0, **SNAPSHOTS), sigterm_lost(0)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    redis.settle("the client writes")
    redis.client.idle = True
    before.update(values(redis))
    await run.wait(10, times=35)
    after = values(redis)
    assert before
    assert {key for key, value in before.items() if after.get(key) != value and not value.expires} == set()


async def test_only_copy_in_memory_is_not_shut_down() -> None:
    """A replica may have a copy before the server is killed."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(3, replicasPerMaster=0, **VOLATILE),))
    assert await seconds_until_replaced(run, 0) >= 290


@pytest.mark.parametrize("given", [cluster(6), cluster(6, **VOLATILE)], ids=["append-only file", "no persistence"])
async def test_server_that_never_listened_is_killed_earlier(given: ScenarioStep) -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((given, *starts_never(5)))
    assert await seconds_until_replaced(run, 5) < 60


@pytest.mark.nightly
async def test_server_with_snapshots_is_not_killed_earlier() -> None:
    """The server may be saving writes from before the kubelet first found it ready."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6, **SNAPSHOTS), *starts_never(5)))
    assert await seconds_until_replaced(run, 5) >= 290


async def test_server_that_was_ready_is_not_killed_earlier() -> None:
    """The server may be saving its data."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(30)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    run.stage.workloads.pod_problem = lambda pod: "Unready" if pod["metadata"]["name"] == node(5) else ""
    redis.hang(node(5))
    await run.settle()
    assert await seconds_until_replaced(run, 5) >= 290
