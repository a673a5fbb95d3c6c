"""Arguments that etcd refuses only together stop a rolling update at its first member, and the status quotes it."""

from __future__ import annotations

from shared.kubernetes import accessors
from shared.status import conditions
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, MIDDLE, cluster


async def test_status_quotes_the_log_of_the_member_that_does_not_start() -> None:
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE),))
    await play.run_steps((cluster(3, MIDDLE, extraArgs=["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"]),))
    [found] = play.stage.find()
    ready = accessors.condition(found, conditions.READY)
    assert ready["reason"] == "UpgradeBlocked"
    assert "failed to verify flags: min version (TLS1.3) is greater than max version (TLS1.2)" in ready["message"]
    whole = accessors.condition(found, conditions.RECONCILING)["message"]
    assert "Fix the spec or revert the change" in whole, "Ready is cut for the column of kubectl"
    assert found["status"]["readyMembers"] == 2, "the other members serve"

    await play.run_steps((cluster(3, MIDDLE),))
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["reason"] == "Ready"
    assert play.world.database.violations == []  # type: ignore[attr-defined]
