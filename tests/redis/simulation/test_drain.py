"""A drain of a Kubernetes node and planned work at the same time never stop two nodes."""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from shared.status import conditions
from tests.harness.scenario import ScenarioStep
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.drain import Drain
from tests.support.redis.scenarios import NEW, REDIS, cluster, in_memory

pytestmark = pytest.mark.nightly

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


@pytest.mark.parametrize(("before", "after"), [(6, 8), (8, 6)])
async def test_update_in_memory_is_not_stopped_by_nodes_without_slots(before: int, after: int) -> None:
    """Nodes that join or leave own no slots, and the slots move only after the update; the budget counts such nodes."""
    play = ScenarioRun(World(REDIS))
    await play.run_steps((in_memory(before, replicasPerMaster=1), in_memory(after, replicasPerMaster=1, version=NEW)))
    [found] = play.stage.find()
    ready = accessors.condition(found, conditions.READY)
    assert ready["reason"] == "Ready", ready["message"]
