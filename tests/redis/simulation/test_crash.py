"""A RedisCluster under any disturbance at any time ends as undisturbed, and no acknowledged write is lost."""

from __future__ import annotations

import pytest

from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.outage import sample
from tests.harness.scenario import Scenario
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.levels import swept
from tests.support.redis.scenarios import REDIS, SCENARIOS

SHARE = 3
"""Points of a disturbance for each one that runs at each commit, and each night; all of them run each week."""

OF_EACH_NIGHT = {
    "create without replicas": {"crash after a write", "stale view"},
    "add and remove a replica": {"all events late"},
    "assign slots": {"all events late", "stale view"},
    "delete all pods": {"all events late"},
    "lose a primary without volumes": {"crash after a write", "stale view", "all events late"},
    "lose slots and recover": {"all events late"},
    "change settings at runtime": {"all events late"},
    "change the password": {"all events late"},
    "users of applications change": {"crash after a write"},
    "other attributes of volumes": {"all events late"},
}
"""Disturbances by scenario that run each night, at some points; the others run each week."""

SHARED_DISTURBANCES = {"429", "500", "lost response, events late"}
"""Disturbances that shared code handles. Only these scenarios meet them, because the others take hours."""


CASES = [
    case
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
    if scenario.name in OF_EACH_NIGHT or str(disturbance) not in SHARED_DISTURBANCES
    for case in swept(scenario, disturbance, SHARE, each_night=str(disturbance) in OF_EACH_NIGHT.get(scenario.name, ()))
]


async def test_disturbed_run_ends_as_the_undisturbed_one_at_some_points(scoreboard: Scoreboard) -> None:
    [scenario] = [each for each in SCENARIOS if each.name == "create without replicas"]
    [crash] = [each for each in DISTURBANCES if each.name == "crash after a write"]
    scoreboard.require(await sweep(REDIS, scenario, sample(crash, SHARE)))


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_disturbed_run_ends_as_the_undisturbed_one(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(REDIS, scenario, disturbance))


def test_selected_scenarios_and_disturbances_exist() -> None:
    assert {str(scenario) for scenario in SCENARIOS} >= OF_EACH_NIGHT.keys()
    assert {str(disturbance) for disturbance in DISTURBANCES} >= SHARED_DISTURBANCES.union(*OF_EACH_NIGHT.values())
