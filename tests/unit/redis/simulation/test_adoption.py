"""Adoption of volumes by a whole operator whose status is lost before anything has started on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.testing.harness.disturbance import Disturbance
from shared.testing.harness.outage import Outage, disturbance, every, status_lost
from shared.testing.harness.reference_run import ReferenceRun
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scenario_runner import ScenarioRun
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.redis.scenarios import REDIS, SCENARIOS

pytestmark = pytest.mark.nightly

POINTS = "PATCH PersistentVolumeClaim", "APPLY StatefulSet"
"""Writes at which the status is lost: before the first claim is handed over, and after the last one."""


def _status_lost_before_the_start() -> Disturbance:
    full = disturbance("the status is lost", Outage(status_lost, every()))

    def chosen(course: ReferenceRun) -> list[int]:
        points = full.points(course)
        return [next(index for index, text in enumerate(points) if write in text) for write in POINTS]

    def points(course: ReferenceRun) -> list[str]:
        return [full.points(course)[index] for index in chosen(course)]

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        return await full.play(course, chosen(course)[nth])

    return replace(full, points=points, play=play)


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.name.startswith("adopt volumes")], ids=str)
async def test_adoption_is_recorded_again_if_the_status_is_lost_before_the_start(
    scenario: Scenario, scoreboard: Scoreboard
) -> None:
    """Before, the cluster counted as new, and its pods never received clients."""
    scoreboard.require(await sweep(REDIS, scenario, _status_lost_before_the_start()))
