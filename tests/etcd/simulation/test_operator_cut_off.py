"""Hard test 9 in memory: an operator that reaches no member of a healthy cluster does no harmful change."""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from shared.status import conditions
from tests.harness.scenario import ScenarioStep, later, unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, MIDDLE, NEW, cluster, cut_off, member
from tests.support.pod_loss import delete_now

HARMFUL = {POD.name, PERSISTENT_VOLUME_CLAIM.name, STATEFUL_SET.name}

CHANGES = {
    "more members": cluster(5),
    "fewer members": cluster(1),
    "another version": cluster(3, NEW),
    "other arguments": cluster(3, extraArgs=["--max-txn-ops=256"]),
    "a deleted pod": delete_now(POD, member(1)),
    "two hours pass": unobserved(later(7200)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_operator_that_reaches_no_member_deletes_nothing(change: ScenarioStep) -> None:
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE), cut_off()))
    play.world.server.log.reset()
    before = play.world.database.counts().copy()
    await play.run_steps((change, unobserved(later(60)), unobserved(later(600))))
    deleted = [
        write for write in play.world.server.log.writes() if write.verb in ("DELETE", "EVICT") and write.kind in HARMFUL
    ]
    assert not deleted
    assert play.world.database.counts() == before, "no member was added, promoted or removed"
    [kept] = play.stage.find(STATEFUL_SET)
    assert kept["spec"]["replicas"] == 3
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["status"] == "False"
    await play.run_steps((cut_off(off=False),))
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["reason"] == "Ready"
