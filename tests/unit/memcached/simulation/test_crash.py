"""Crash harness: a Memcached that is disturbed at any write ends in the same state as an undisturbed one."""

from __future__ import annotations

import pytest

from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.memcached.scenarios import MEMCACHED, SCENARIOS

OFTEN = {"crash after a write"}
"""Disturbances of which the short suite has a third; of the others it has a twentieth, others after each commit."""

CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=pytest.mark.in_turn(10 if str(disturbance) in OFTEN else 40),
    )
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
]


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_disturbed_scenario_ends_like_an_undisturbed_one(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(MEMCACHED, scenario, disturbance))


def test_disturbances_of_every_run_exist() -> None:
    assert {str(disturbance) for disturbance in DISTURBANCES} >= OFTEN
