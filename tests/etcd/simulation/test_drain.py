"""A drain of a node and a rolling update at the same time never stop two of three members."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd.steps import rolling_update
from shared.kubernetes import accessors
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import DISRUPTION_BUDGET, POD, Obj
from shared.status import conditions
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.drain import Drain
from tests.support.etcd.scenarios import ETCD, MIDDLE, cluster

CHANGED: dict[str, Any] = {"extraArgs": ["--max-txn-ops=256"]}


@pytest.mark.parametrize("storage", [{}, {"storage": {"medium": "Memory"}}], ids=["volumes", "memory"])
async def test_drain_waits_for_the_rolling_update(storage: Obj) -> None:
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE, **storage),))
    drain = Drain(play)
    drain.begin()
    await play.run_steps((cluster(3, MIDDLE, **storage, **CHANGED),))
    assert (drain.most_stopping, drain.evicted) == (1, [])
    assert drain.refused >= 3
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["reason"] == "Ready"


async def test_rolling_update_waits_for_the_drain() -> None:
    """The operator has not seen the eviction yet when it stops the next pod."""
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE),))
    assert play.operator is not None
    play.operator.broken_watches.add(POD)
    Drain(play).evict()
    play.world.server.log.reset()
    await play.run_steps((cluster(3, MIDDLE, **CHANGED),))
    evictions = [write for write in play.world.server.log.writes("Pod") if write.verb == "EVICT"]
    assert [write.status for write in evictions if write.status >= 400], "the first eviction exceeded the budget"
    play.world.require_safe()
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["reason"] == "Ready"


async def test_late_eviction_of_a_former_pod_charges_the_budget_for_two_minutes() -> None:
    """The API server charges the budget before it compares the UID; the harness waits until that has no effect."""
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE),))
    with pytest.raises(Conflict):
        play.stage.user_client.evict("default", "cache-1", preconditions={"uid": "former"})
    [(_, charged)] = play.world.server.objects(DISRUPTION_BUDGET)
    assert (charged["status"]["disruptionsAllowed"], [*charged["status"]["disruptedPods"]]) == (0, ["cache-1"])
    await play.outlast_evictions()
    [(_, budget)] = play.world.server.objects(DISRUPTION_BUDGET)
    assert budget["status"]["disruptionsAllowed"] == 1


async def test_drain_takes_a_second_member_if_the_operator_deletes_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect that the other tests exclude: the fake must be able to show it."""
    monkeypatch.setattr(rolling_update, "may_evict", lambda *_: False)
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE),))
    drain = Drain(play)
    drain.begin()
    await play.run_steps((cluster(3, MIDDLE, **CHANGED),))
    assert drain.most_stopping == 2
