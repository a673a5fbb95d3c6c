"""A drain of a Kubernetes node and planned work at the same time never stop two nodes."""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from shared.status import conditions
from shared.testing.harness.scenario import ScenarioStep
from shared.testing.harness.scenario_runner import ScenarioRun, World
from tests.support.drain import Drain
from tests.support.redis.scenarios import NEW, REDIS, cluster, in_memory

CHANGES = {
    "upgrade": (cluster(), cluster(version=NEW)),
    "upgrade in memory": (in_memory(), in_memory(version=NEW)),
    "a replica becomes a primary": (cluster(9, replicasPerMaster=2), cluster(9, replicasPerMaster=1)),
}


@pytest.mark.parametrize(("given", "change"), CHANGES.values(), ids=CHANGES)
async def test_drain_waits_for_planned_work(given: ScenarioStep, change: ScenarioStep) -> None:
    play = ScenarioRun(World(REDIS))
    await play.run_steps((given,))
    drain = Drain(play)
    drain.begin()
    await play.run_steps((change,))
    assert (drain.most_stopping, drain.evicted) == (1, [])
    assert drain.refused
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["reason"] == "Ready"
