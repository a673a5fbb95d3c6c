"""Disturbed runs of every scenario end like the undisturbed reference run, and lose no acknowledged write."""

from __future__ import annotations

import pytest

from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.etcd.scenarios import ETCD, SCENARIOS

QUICK = {"all events late", "stale view"}
"""Disturbances that run with every scenario; `make test-long` runs the others, except those of `SOME`."""

SOME = {"create", "a later member lost with its volume", "upgrade", "lost quorum and recovery", "restore"}
OFTEN = QUICK | {"crash after a write"}

CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=() if str(disturbance) in (OFTEN if scenario.name in SOME else QUICK) else pytest.mark.long,
    )
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
]


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_disturbed_run_ends_like_the_reference_run(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(ETCD, scenario, disturbance))


def test_selected_scenarios_and_disturbances_exist() -> None:
    assert {str(scenario) for scenario in SCENARIOS} >= SOME
    assert {str(disturbance) for disturbance in DISTURBANCES} >= OFTEN
