"""Whatever goes wrong at whichever moment, an EtcdCluster ends as if nothing had happened, and no write is lost."""

from __future__ import annotations

import pytest

from shared.testing.disturbance import DISTURBANCES, Disturbance
from shared.testing.scenario import Scenario
from shared.testing.scoreboard import Scoreboard
from shared.testing.sweep import sweep
from tests.etcd_scenarios import ETCD, SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
async def test_it_ends_as_if_nothing_had_happened(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(ETCD, scenario, disturbance))
