"""Crash harness: a Memcached that is disturbed at any write ends in the same state as an undisturbed one."""

from __future__ import annotations

import pytest

from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.scenario import Scenario
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.levels import swept
from tests.support.memcached.scenarios import MEMCACHED, SCENARIOS

OF_EACH_COMMIT = {
    "create with all optional objects": {"crash after a write", "lost response"},
    "switch the workload": {"crash after a write", "stale view"},
    "owned objects deleted": {"crash after a write"},
    "upgrade from release 0.1.0": {"crash after a write", "missed event"},
    "orphaned and adopted": {"missed event"},
}
"""Disturbances by scenario that run for each commit, at all points."""

NIGHTLY_SHARE = 3
"""Points of the other disturbances for each one that runs each night; all of them run each week."""

CASES = [
    case
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
    for case in (
        [pytest.param(scenario, disturbance, id=f"{scenario}-{disturbance}")]
        if str(disturbance) in OF_EACH_COMMIT.get(scenario.name, ())
        else swept(scenario, disturbance, NIGHTLY_SHARE, each_night=True)
    )
]


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_disturbed_scenario_ends_like_an_undisturbed_one(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(MEMCACHED, scenario, disturbance))


def test_scenarios_and_disturbances_of_each_commit_exist() -> None:
    assert {str(scenario) for scenario in SCENARIOS} >= OF_EACH_COMMIT.keys()
    assert {str(disturbance) for disturbance in DISTURBANCES} >= set().union(*OF_EACH_COMMIT.values())
