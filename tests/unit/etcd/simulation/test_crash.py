"""Whatever goes wrong at whichever moment, an EtcdCluster ends as if nothing had happened, and no write is lost."""

from __future__ import annotations

import pytest

from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.etcd.scenarios import ETCD, SCENARIOS

QUICK = {"all news late", "a stale view"}
"""Tried with every scenario at once; the rest by `make test-long`, but for SOME."""

SOME = {"create", "another lost with its volume", "upgraded", "a quorum lost and recovered", "restored"}
OFTEN = QUICK | {"a crash after"}

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
async def test_it_ends_as_if_nothing_had_happened(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(ETCD, scenario, disturbance))


def test_what_is_tried_at_once_is_there() -> None:
    assert {str(scenario) for scenario in SCENARIOS} >= SOME
    assert {str(disturbance) for disturbance in DISTURBANCES} >= OFTEN
