"""Scenarios of the crash harness on a real API server: some each night, all of them each week."""

from __future__ import annotations

from functools import cache

import pytest

from tests.harness.scenario import Scenario
from tests.harness.scoreboard import Scoreboard
from tests.platform.api.support.scenario_runner import SCRIPTS, LiveReferenceRun
from tests.support.memcached.scenarios import SCENARIOS
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly

SOME = {"create with all optional objects", "scale", "owned objects deleted", "upgrade from release 0.1.0"}
"""Scenarios that meet some disturbances each night; the others meet all each week."""

REFUSED = {"invalid, then repaired", "left invalid"}
"""Scenarios whose spec the CRD rejects."""

READS_FILES = {"create with TLS in mode self", "Secrets of TLS in mode self deleted"}
"""Scenarios whose servers serve what the operator issues. Here, no server reads the Secrets that its pod mounts."""

QUICK = ("crash after a write", "lost response")

CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=() if scenario.name in SOME and disturbance in QUICK else pytest.mark.weekly,
    )
    for scenario in SCENARIOS
    if scenario.name not in REFUSED | READS_FILES
    for disturbance in SCRIPTS
]

learn = cache(LiveReferenceRun.record)


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
def test_disturbed_scenario_ends_like_an_undisturbed_one(
    plane: ControlPlane, scenario: Scenario, disturbance: str, scoreboard: Scoreboard
) -> None:
    scoreboard.require(learn(plane, scenario).sweep(disturbance))
