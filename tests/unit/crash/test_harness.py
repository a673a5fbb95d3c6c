"""The crash harness passes an operator that is right, and catches each that errs by the oracle that is made for it."""

from __future__ import annotations

import pytest

from shared.testing.disturbance import DISTURBANCES, Disturbance
from shared.testing.scenario import Scenario, apply, at_once, away, delete, edit
from shared.testing.served import CONFIG_MAP
from shared.testing.sweep import Oracle, sweep
from tests.unit.crash import ring
from tests.unit.crash.ring import RingOperator, subject

RIGHT = subject(RingOperator)

CREATE = Scenario("create", (apply(members=2, notes=True),))
NOTES = Scenario("notes off and on", (apply(), apply(notes=True)), given=(apply(notes=True),))
NOTES_LOST = Scenario(
    "notes lost",
    (apply(text="two", notes=True), delete(CONFIG_MAP), apply(text="three", notes=True)),
    given=(apply(text="one", notes=True),),
)
RESIZE = Scenario("resize", (apply(members=3), *away(apply(members=1)), *at_once(apply(members=4), apply(members=2))))
NO_NOTES = Scenario("notes off", (edit(None, {"spec": {"notes": False}}),), given=(apply(notes=True),))
GONE = Scenario("gone", (delete(),), given=(apply(notes=True),), ends="")

BY_NAME = {str(disturbance): disturbance for disturbance in DISTURBANCES}


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
@pytest.mark.parametrize("scenario", [CREATE, NOTES, NOTES_LOST, RESIZE, NO_NOTES, GONE], ids=str)
async def test_an_operator_that_is_right_passes(scenario: Scenario, disturbance: Disturbance) -> None:
    done = await sweep(RIGHT, scenario, disturbance)
    assert not done.failures, "\n".join(map(str, done.failures))
    assert done.passed == done.runs


@pytest.mark.parametrize(
    ("operator", "scenario", "disturbance", "oracle"),
    [
        (ring.CountsInMemory, CREATE, "a crash after", Oracle.END),
        (ring.NamesAtRandom, CREATE, "an answer lost, news late", Oracle.COUNTS),
        (ring.NamesAtRandom, CREATE, "an answer lost, news late", Oracle.END),
        (ring.DeletesByName, NOTES, "a stale view", Oracle.NEWER),
        (ring.MendsByName, NOTES_LOST, "a stale view", Oracle.NEWER),
        (ring.RecordsAfterwards, CREATE, "a crash after", Oracle.END),
        (ring.RecordsAfterwards, CREATE, "an answer lost", Oracle.END),
        (ring.TrustsItsCache, RESIZE, "a stale view", Oracle.NEWER),
        (ring.CountsTurns, NOTES, "an event unobserved", Oracle.END),
        (ring.BeginsAnew, CREATE, "a crash after", Oracle.COUNTS),
        (ring.SignsItsWork, CREATE, "all news late", Oracle.STILL),
        (ring.KnowsNoOther, CREATE, "a crash after", Oracle.DEFECT),
    ],
)
async def test_an_operator_that_errs_is_caught(
    operator: type[RingOperator], scenario: Scenario, disturbance: str, oracle: Oracle
) -> None:
    done = await sweep(subject(operator), scenario, BY_NAME[disturbance])
    assert oracle in {failure.oracle for failure in done.failures}, "\n".join(map(str, done.failures))
