"""A replica that is to take over, and that reaches no majority of the primaries: they cannot elect it."""

from __future__ import annotations

from typing import Any

from shared.kubernetes.accessors import condition
from tests.harness.scenario import ScenarioStep, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import REDIS, cluster, lost, node


def replica_of_0(redis: FakeRedis) -> str:
    [found] = redis.replicas_of(redis.named(node(0)))
    return found.pod


def cut_off(stage: Any) -> None:
    """Cut the replica of primary 0 off from all others; the operator reaches it."""
    stage.database.client.idle = True
    stage.database.settle("the replica receives the last writes")
    stage.database.partitions = {replica_of_0(stage.database): 1}
    stage.database.commanded.clear()


CUT_OFF = ScenarioStep("the replica of primary 0 is cut off", cut_off)


async def test_replica_that_reaches_no_majority_gets_no_command_to_take_over() -> None:
    """Each of its requests would fail, and increase its epoch."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), CUT_OFF, later(10)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    candidate = replica_of_0(redis)
    await run.run_steps((*lost(0), later(10)))
    await run.wait(10, times=3)
    assert redis.commanded.count(f"CLUSTER FAILOVER at {candidate}") == 0
    ready = condition(run.stage.find()[0], "Ready")
    assert ready["reason"] == "TakingOver"
    assert f"{candidate} is to take over, but does not reach {node(1)}, {node(2)}" in ready["message"].replace(
        f"{node(0)}, ", ""
    )
    redis.partitions.clear()
    await run.wait(10, times=3)
    assert condition(run.stage.find()[0], "Ready")["status"] == "True"
    assert redis.commanded.count(f"CLUSTER FAILOVER at {candidate}") == 1
