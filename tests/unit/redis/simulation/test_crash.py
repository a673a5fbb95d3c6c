"""Whatever goes wrong at whichever moment, a RedisCluster ends as if nothing had happened, and no write is lost."""

from __future__ import annotations

import pytest

from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.redis.scenarios import REDIS, SCENARIOS

AT_ONCE = {
    "create without replicas": {"a crash after", "a stale view"},
    "another replica": {"all news late"},
    "slots assigned": {"all news late", "a stale view"},
    "all pods gone": {"all news late"},
    "a master lost in memory": {"a crash after", "a stale view", "all news late"},
    "slots lost and recovered": {"all news late"},
    "settings changed live": {"all news late"},
    "another password": {"all news late"},
}
"""What is tried at once, by scenario; the rest by `make test-long`."""

REFUSALS = {"429", "500", "an answer lost, news late"}
"""Met by what all operators have in common: tried with these scenarios alone, for the others take hours."""

CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=() if str(disturbance) in AT_ONCE.get(scenario.name, ()) else pytest.mark.long,
    )
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
    if scenario.name in AT_ONCE or str(disturbance) not in REFUSALS
]


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_it_ends_as_if_nothing_had_happened(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(REDIS, scenario, disturbance))


def test_what_is_tried_at_once_is_there() -> None:
    assert {str(scenario) for scenario in SCENARIOS} >= AT_ONCE.keys()
    assert {str(disturbance) for disturbance in DISTURBANCES} >= set().union(REFUSALS, *AT_ONCE.values())
