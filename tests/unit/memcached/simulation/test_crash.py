"""Crash harness: a Memcached that is disturbed at any write ends in the same state as an undisturbed one."""

from __future__ import annotations

import pytest

from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.memcached.scenarios import MEMCACHED, SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
async def test_disturbed_scenario_ends_like_an_undisturbed_one(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(MEMCACHED, scenario, disturbance))
