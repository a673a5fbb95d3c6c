"""Disturbed runs of every scenario end like the undisturbed reference run, and lose no acknowledged write."""

from __future__ import annotations

import pytest

from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.outage import sample
from tests.harness.scenario import Scenario
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.etcd.outages import OUTAGES, STATUS_LOST
from tests.support.etcd.scenarios import ETCD, SCENARIOS
from tests.support.levels import swept

OF_EACH_COMMIT = ("crash after a write", "stale view")
"""Disturbances of the scenario "create" that run for each commit, at one in `COMMIT_SHARE` points."""

COMMIT_SHARE = 3

NIGHTLY_SHARE = 8
"""Points of a disturbance for each one that runs each night; all of them run each week."""

QUICK = {"all events late", "stale view"}
"""Disturbances that run with each scenario each night; the others run each week."""

SOME = {"create", "a later member lost with its volume", "upgrade", "lost quorum and recovery", "restore"}
OFTEN = QUICK | {"crash after a write"}
"""The same, for the scenarios of `SOME`."""

OUTAGE_SHARE = 12
"""One in so many points of an outage runs each night, and all of them each week."""

SELECTED = SOME | {
    "second upgrade before a Raft snapshot",
    "second upgrade requested while the operator is cut off",
    "downgrade",
    "exhausted quota",
    "a corrupt member",
    "volumes adopted without a majority",
}
"""Scenarios that meet outages each night."""

ENDS_WITHOUT_RECORD = {
    "downgrade reverted midway": "a member that does not start is not known to have run a later version",
    **dict.fromkeys(
        (
            "lost quorum",
            "hibernation",
            "scale up and hibernate in one change",
            "hibernation withdrawn and requested again midway",
        ),
        "sizes, versions and URLs of members that do not answer are not known any more",
    ),
    "scheduled backups": "the schedule begins when it is first observed",
}
"""Scenarios that end in another way if the status is lost, each with the reason."""

COUNTS_ENTRIES = "second upgrade blocked by log entries"
"""Scenario whose message at the end has the number of log entries."""

OUTAGE_CASES = [
    case
    for scenario in SCENARIOS
    if scenario.name != COUNTS_ENTRIES
    for found in OUTAGES
    if not (scenario.name in ENDS_WITHOUT_RECORD and str(found).startswith(STATUS_LOST))
    for case in swept(scenario, found, OUTAGE_SHARE, each_night=scenario.name in SELECTED)
]


def _runs_each_night(scenario: Scenario, disturbance: Disturbance) -> bool:
    return str(disturbance) in (OFTEN if scenario.name in SOME else QUICK)


CASES = [
    case
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
    for case in swept(scenario, disturbance, NIGHTLY_SHARE, each_night=_runs_each_night(scenario, disturbance))
]


@pytest.mark.parametrize("name", OF_EACH_COMMIT)
async def test_disturbed_run_ends_like_the_reference_run_at_some_points(name: str, scoreboard: Scoreboard) -> None:
    [scenario] = [each for each in SCENARIOS if each.name == "create"]
    [disturbance] = [each for each in DISTURBANCES if each.name == name]
    scoreboard.require(await sweep(ETCD, scenario, sample(disturbance, COMMIT_SHARE)))


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_disturbed_run_ends_like_the_reference_run(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(ETCD, scenario, disturbance))


@pytest.mark.parametrize(("scenario", "failure"), OUTAGE_CASES)
async def test_operator_that_knows_less_does_no_harm_and_recovers(
    scenario: Scenario, failure: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(ETCD, scenario, failure))


def test_selected_scenarios_and_disturbances_exist() -> None:
    assert {str(scenario) for scenario in SCENARIOS} >= SELECTED | ENDS_WITHOUT_RECORD.keys() | {COUNTS_ENTRIES}
    assert {str(disturbance) for disturbance in DISTURBANCES} >= OFTEN.union(OF_EACH_COMMIT)
