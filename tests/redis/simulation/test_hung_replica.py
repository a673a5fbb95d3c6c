"""A replica that hung while its primary served clients, and resumes when the primary has lost its data."""

from __future__ import annotations

import pytest

from shared.kubernetes.accessors import condition
from tests.harness.scenario import ScenarioStep, edit, limit_turns
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import NAME, REDIS, cluster, hangs, lost, node


@pytest.mark.parametrize("at_once", [False, True], ids=["observed later", "observed before it notices the loss"])
async def test_replica_that_hung_gets_no_command_to_take_over(*, at_once: bool) -> None:
    """The node reports that it lost its primary a second ago, and before that, that its link is up. Redis elects it for
    the same reason, and no operator can prevent that (docs/concepts/durability.md).
    """
    run = ScenarioRun(World(REDIS))
    await run.step(cluster(6))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    [replica] = redis.replicas_of(redis.named(node(0)))
    number = int(replica.pod.rpartition("-")[2])
    await run.step(hangs(number))
    await run.wait(10, times=12)
    await run.run_steps(lost(0))
    redis.commanded.clear()
    resumes, event = hangs(number, hung=False), edit(None, {"metadata": {"annotations": {"observed": "now"}}}, NAME)
    both = ScenarioStep("the operator observes it", lambda stage: (resumes.act(stage), event.act(stage)))
    await run.step(limit_turns(both, 1) if at_once else resumes)
    await run.wait(0.2, times=10)
    await run.wait(10, times=3)
    assert redis.commanded.count(f"CLUSTER FAILOVER at {replica.pod}") == 0
    assert condition(run.stage.find()[0], "Ready")["status"] == "True"
