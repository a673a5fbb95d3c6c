"""Disturbed runs of every scenario end like the undisturbed reference run, and lose no acknowledged write."""

from __future__ import annotations

import pytest

from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.outage import sample
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.etcd.outages import OUTAGES, STATUS_LOST
from tests.support.etcd.scenarios import ETCD, SCENARIOS

QUICK = {"all events late", "stale view"}
"""Disturbances that run with each scenario after one in thirty commits; `make test-long` runs the others."""

SOME = {"create", "a later member lost with its volume", "upgrade", "lost quorum and recovery", "restore"}
OFTEN = QUICK | {"crash after a write"}
"""The same, for the scenarios of `SOME`."""

IN_SHORT_TURNS = {"create", "upgrade"}
"""Scenarios of `SOME` that run with these after one in three commits."""

OUTAGE_SHARE = 12
"""One in so many points of an outage runs in the short suite, after one in four commits; `make test-long` runs all."""

SELECTED = SOME | {
    "second upgrade before a Raft snapshot",
    "second upgrade requested while the operator is cut off",
    "downgrade",
    "exhausted quota",
    "a corrupt member",
    "volumes adopted without a majority",
}
"""Scenarios that meet outages in the short suite."""

ENDS_WITHOUT_RECORD = {
    "downgrade reverted midway": "a member that does not start is not known to have run a later version",
    "lost quorum": "sizes, versions and URLs of members that do not answer are not known any more",
    "scheduled backups": "the schedule begins when it is first observed",
}
"""Scenarios that end in another way if the status is lost, each with the reason."""

COUNTS_ENTRIES = "second upgrade blocked by log entries"
"""Scenario whose message at the end has the number of log entries."""

OUTAGE_CASES = [
    pytest.param(
        scenario,
        sample(found, OUTAGE_SHARE) if short else found,
        id=f"{scenario}-{found}{'-sample' if short else ''}",
        marks=pytest.mark.in_turn(12) if short else pytest.mark.long,
    )
    for scenario in SCENARIOS
    if scenario.name != COUNTS_ENTRIES
    for found in OUTAGES
    if not (scenario.name in ENDS_WITHOUT_RECORD and str(found).startswith(STATUS_LOST))
    for short in ((True, False) if scenario.name in SELECTED else (False,))
]


def _marks(scenario: Scenario, disturbance: Disturbance) -> tuple[pytest.MarkDecorator, ...]:
    often = OFTEN if scenario.name in SOME else QUICK
    if str(disturbance) not in often:
        return (pytest.mark.long,)
    return (pytest.mark.in_turn(10 if scenario.name in IN_SHORT_TURNS else 60),)


CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=_marks(scenario, disturbance),
    )
    for scenario in SCENARIOS
    for disturbance in DISTURBANCES
]


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
    assert {str(disturbance) for disturbance in DISTURBANCES} >= OFTEN
    assert SOME >= IN_SHORT_TURNS
