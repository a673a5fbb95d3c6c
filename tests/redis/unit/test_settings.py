"""Settings in the simulated world: interrupted moves, and values that servers refuse."""

from __future__ import annotations

import pytest

from operators.redis.client.server import Access, Endpoint
from operators.redis.migration.big_keys import extended_timeouts
from operators.redis.migration.participants import End
from shared.kubernetes.kinds import POD, Obj
from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.scenario import Scenario, ScenarioStep
from tests.harness.scenario_runner import ScenarioRun, World
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import NAME, REDIS, all_pods_deleted, cluster, node, to_redis

SIZE = 1 << 30
REFUSED = ("activedefrag", "yes")


REFUSING = Scenario(
    "change settings, one of which is refused",
    (cluster(6, config={"maxmemory-policy": "allkeys-lru", "activedefrag": "yes"}),),
    given=(cluster(6), to_redis("a directive is refused", lambda redis: redis.refused.add(REFUSED))),
    ends="ConfigRefused",
)
RAISED = Scenario(
    "a node timeout is raised",
    (to_redis("the timeout is raised", lambda redis: raise_timeouts(redis)),),
    given=(cluster(6),),
)
OF_EACH_NIGHT = {"crash after a write"}


def raise_timeouts(redis: FakeRedis) -> None:
    for process in redis.running:
        process.settings["cluster-node-timeout"] = "276000"


@pytest.mark.parametrize(
    "disturbance",
    [
        pytest.param(each, marks=pytest.mark.nightly if str(each) in OF_EACH_NIGHT else pytest.mark.weekly)
        for each in DISTURBANCES
    ],
    ids=str,
)
@pytest.mark.parametrize("scenario", [REFUSING, RAISED], ids=str)
async def test_disturbed_change_of_settings_ends_as_the_undisturbed_one(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(REDIS, scenario, disturbance))


async def settled(*steps: ScenarioStep) -> tuple[ScenarioRun, FakeRedis]:
    """Return a world in which these steps were carried out."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps(steps)
    assert isinstance(run.world.database, FakeRedis)
    return run, run.world.database


def resource(run: ScenarioRun) -> Obj:
    (found,) = run.stage.find(run.stage.kind)
    return found


def ready(run: ScenarioRun) -> Obj:
    conditions = resource(run)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "Ready")


def timeouts(redis: FakeRedis) -> set[str]:
    return {process.config("cluster-node-timeout") for process in redis.running}


async def test_timeouts_of_an_interrupted_move_of_a_large_key_are_restored() -> None:
    """R5: the operator ends within `extended_timeouts`, and its successor restores the settings."""
    run, redis = await settled(cluster(6))
    assert timeouts(redis) == {"5000"}
    run.end()
    connect = redis.connect
    ends = []
    for process in redis.running:
        at = Endpoint(process.pod, process.address, process.pod)
        server = connect(at, Access())
        ends.append(End(None, at, server, server, Access()))  # type: ignore[arg-type]
    interrupted = extended_timeouts(ends, ends[0], SIZE)
    await interrupted.__aenter__()  # the process ends here
    assert timeouts(redis) == {"276000"}
    await run.run_steps(())
    assert timeouts(redis) == {"5000"}
    target = next(process for process in redis.running if process.pod == ends[0].name)
    assert target.config("proto-max-bulk-len") == str(512 << 20)
    assert ready(run)["status"] == "True"


async def test_setting_that_servers_refuse_does_not_prevent_the_return_of_a_cluster() -> None:
    """R18: all pods of a cluster with a refused setting are deleted, and it comes back."""
    refuse = to_redis("a directive is refused", lambda redis: redis.refused.add(REFUSED))
    run, redis = await settled(cluster(6), refuse, cluster(6, config=dict([REFUSED])))
    assert ready(run)["reason"] == "ConfigRefused"
    assert "activedefrag: cache-0 refuses CONFIG SET: ERR" in ready(run)["message"]
    await run.run_steps(all_pods_deleted())
    assert len(redis.running) == 6
    assert all(process.serves for process in redis.running)
    assert ready(run)["reason"] == "ConfigRefused"
    await run.run_steps([cluster(6, config={})])
    assert ready(run)["status"] == "True"


async def test_setting_that_servers_refuse_does_not_hold_up_others_nor_an_upgrade() -> None:
    refuse = to_redis("a directive is refused", lambda redis: redis.refused.add(REFUSED))
    config = dict([REFUSED], **{"maxmemory-policy": "allkeys-lru", "databases": "4"})
    run, redis = await settled(cluster(6), refuse, cluster(6, config=config))
    assert {process.config("maxmemory-policy") for process in redis.running} == {"allkeys-lru"}
    assert {process.config("databases") for process in redis.running} == {"4"}
    assert ready(run)["reason"] == "ConfigRefused"


@pytest.mark.parametrize("value", ["sometimes", "0"])
async def test_stored_value_that_the_version_does_not_accept_is_reported_and_all_work_continues(value: str) -> None:
    name = "maxmemory-policy" if value == "sometimes" else "cluster-node-timeout"
    run, redis = await settled(cluster(6), cluster(6, config={name: value, "hz": "20"}), *all_pods_deleted())
    assert ready(run)["reason"] == "ConfigRefused"
    assert name in ready(run)["message"]
    assert all(process.serves for process in redis.running)
    assert {process.config("hz") for process in redis.running} == {"20"}
    assert value not in {process.config(name) for process in redis.running}
    assert len([pod for pod in run.stage.find(POD) if pod["metadata"]["name"].startswith(NAME)]) == 6
    assert node(0) in {process.pod for process in redis.running}
