"""A primary whose pod is deleted hands over before its server ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from operators.redis import plan
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import POD
from shared.runtime.plan import PASS
from tests.harness.scenario import ScenarioStep, Stage, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.losses import hidden
from tests.support.redis.scenarios import REDIS, cluster, in_memory, node

Deletion = Callable[[Stage, str], object]


def deleted(stage: Stage, pod: str) -> None:
    stage.user_client.delete(POD, stage.namespace, pod)


def evicted(stage: Stage, pod: str) -> None:
    stage.user_client.evict(stage.namespace, pod)


async def ended(run: ScenarioRun, ends: Deletion, *numbers: int) -> tuple[int, set[str]]:
    """Let pods end, and wait until they are replaced.

    Returns:
        How many writes no server accepted meanwhile, and the failovers that the operator requested.
    """
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    run.stage.workloads.sleep_before_stop()
    former = {pod["metadata"]["uid"] for pod in run.stage.find(POD)}
    redis.client.refused, commanded = 0, len(redis.commanded)

    def act(stage: Any) -> None:
        for number in numbers:
            ends(stage, node(number))

    await run.run_steps((ScenarioStep("pods end", act),))
    for _ in range(30):
        if len(former - {pod["metadata"]["uid"] for pod in run.stage.find(POD)}) == len(numbers):
            break
        await run.wait(1)
    else:
        raise AssertionError("the pods were not replaced within 30 s")
    failovers = {each for each in redis.commanded[commanded:] if each.startswith("CLUSTER FAILOVER")}
    redis.hidden = set()
    await run.wait(10, times=3)
    [found] = run.stage.find()
    assert condition(found, "Ready")["status"] == "True"
    return redis.client.refused, failovers


@pytest.mark.parametrize("given", [cluster(6), in_memory(6)], ids=["volumes", "no volumes"])
@pytest.mark.parametrize("ends", [deleted, evicted])
async def test_client_does_not_notice_that_a_primary_ends(given: ScenarioStep, ends: Deletion) -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((given, later(30)))
    assert await ended(run, ends, 0) == (0, {"CLUSTER FAILOVER at cache-5"})


@pytest.mark.parametrize("seconds", [-30, 30])
@pytest.mark.parametrize("spec", [{}, {"version": "9.0.1", "repository": "valkey/valkey"}], ids=["redis", "valkey"])
async def test_clock_of_the_operator_has_no_influence_on_a_handover(spec: dict[str, Any], seconds: int) -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6, **spec), later(30)))
    run.end()
    run.world.clock.error = timedelta(seconds=seconds)
    run.begin()
    assert await ended(run, deleted, 0) == (0, {"CLUSTER FAILOVER at cache-5"})


async def test_two_primaries_that_end_at_once_hand_over_at_once() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(30)))
    assert await ended(run, deleted, 0, 1) == (0, {"CLUSTER FAILOVER at cache-5", "CLUSTER FAILOVER at cache-4"})


async def test_primary_hands_over_while_the_operator_does_not_reach_another_one() -> None:
    """The nodes agree among themselves, and vote; waiting for the operator's view would cost an election."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(30), hidden([node(1)])))
    assert await ended(run, evicted, 0) == (0, {"CLUSTER FAILOVER at cache-5"})


async def test_replica_that_ends_needs_no_failover() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(30)))
    assert await ended(run, deleted, 5) == (0, set())


async def test_writes_fail_until_an_election_without_a_handover(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would find it."""
    monkeypatch.setattr(plan, "hand_over_deleted", lambda _: PASS)
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(30)))
    refused, failovers = await ended(run, deleted, 0)
    assert refused
    assert not failovers
