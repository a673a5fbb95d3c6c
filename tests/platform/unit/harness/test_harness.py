"""Tests of the crash harness: a correct operator passes, and the matching oracle catches each faulty one."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from shared.kubernetes.kinds import CONFIG_MAP, SERVICE
from shared.runtime.plan import PASS, Apply, Step
from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.outcome import Outcome, Reference
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import (
    Scenario,
    Subject,
    Unsafe,
    apply,
    at_once,
    delete,
    edit,
    later,
    operator_down,
)
from tests.harness.scenario_runner import ScenarioRun, World
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import Oracle, sweep
from tests.platform.unit.harness import ring
from tests.platform.unit.harness.ring import RingOperator, View, subject

CORRECT = subject(RingOperator)

CREATE = Scenario("create", (apply(members=2, notes=True),))
NOTES_TOGGLED = Scenario("notes toggled", (apply(), apply(notes=True)), given=(apply(notes=True),))
NOTES_SPOILED = Scenario(
    "notes spoiled", (edit(CONFIG_MAP, {"data": {"notes": "spoiled"}}),), given=(apply(text="one", notes=True),)
)
NOTES_DELETED = Scenario(
    "notes deleted",
    (apply(text="two", notes=True), delete(CONFIG_MAP), apply(text="three", notes=True)),
    given=(apply(text="one", notes=True),),
)
RESIZE = Scenario(
    "resize", (apply(members=3), *operator_down(apply(members=1)), *at_once(apply(members=4), apply(members=2)))
)
NOTES_DISABLED = Scenario("notes disabled", (edit(None, {"spec": {"notes": False}}),), given=(apply(notes=True),))
DELETED = Scenario("deleted", (delete(),), given=(apply(notes=True),), ends="")

BY_NAME = {str(disturbance): disturbance for disturbance in DISTURBANCES}


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
@pytest.mark.parametrize(
    "scenario", [CREATE, NOTES_TOGGLED, NOTES_SPOILED, NOTES_DELETED, RESIZE, NOTES_DISABLED, DELETED], ids=str
)
async def test_correct_operator_passes(scenario: Scenario, disturbance: Disturbance) -> None:
    done = await sweep(CORRECT, scenario, disturbance)
    assert not done.failures, "\n".join(map(str, done.failures))
    assert done.passed == done.runs


@pytest.mark.parametrize(
    ("operator", "scenario", "disturbance", "oracle"),
    [
        (ring.KeepsStateInMemory, CREATE, "crash after a write", Oracle.END),
        (ring.GeneratesNames, CREATE, "lost response, events late", Oracle.COUNTS),
        (ring.GeneratesNames, CREATE, "lost response, events late", Oracle.END),
        (ring.KeepsStateInMemory, CREATE, "shard moves to a replica with late events", Oracle.END),
        (ring.DeletesByName, NOTES_SPOILED, "stale view", Oracle.NEWER),
        (ring.PatchesByName, NOTES_DELETED, "stale view", Oracle.NEWER),
        (ring.RecordsTooLate, CREATE, "crash after a write", Oracle.END),
        (ring.RecordsTooLate, CREATE, "lost response", Oracle.END),
        (ring.ActsWhileObserving, RESIZE, "stale view", Oracle.NEWER),
        (ring.CountsToggles, NOTES_TOGGLED, "missed event", Oracle.END),
        (ring.DeletesAtStart, CREATE, "crash after a write", Oracle.COUNTS),
        (ring.ReportsProcess, CREATE, "all events late", Oracle.STILL),
        (ring.FailsOnForeignStatus, CREATE, "crash after a write", Oracle.DEFECT),
        (ring.Alternates, CREATE, "all events late", Oracle.FLAPPING),
    ],
)
async def test_faulty_operator_is_caught(
    operator: type[RingOperator], scenario: Scenario, disturbance: str, oracle: Oracle
) -> None:
    done = await sweep(subject(operator), scenario, BY_NAME[disturbance])
    assert oracle in {failure.oracle for failure in done.failures}, "\n".join(map(str, done.failures))


async def test_failure_names_the_run_and_the_difference() -> None:
    done = await sweep(subject(ring.KeepsStateInMemory), CREATE, BY_NAME["crash after a write"])
    assert (done.name, done.runs, done.passed) == ("ring/create", 5, 4)
    failure, *_ = done.failures
    assert str(failure).splitlines() == [
        "ring/create, disturbance 'crash after a write', point 1 of 5 (APPLY Service default/cache): "
        "failed: the run must end as the undisturbed run does",
        "    ConfigMap cache: missing",
    ]


async def test_failure_includes_the_traceback_of_an_unexpected_exception() -> None:
    done = await sweep(subject(ring.FailsOnForeignStatus), CREATE, BY_NAME["crash after a write"])
    defects = [failure for failure in done.failures if failure.oracle is Oracle.DEFECT]
    assert "KeyError: 'cache'" in str(defects[0])


async def test_database_calls_count_as_writes() -> None:
    course = await ReferenceRun.record(CORRECT, CREATE)
    assert [write.text for write in course.writes] == [
        "APPLY Service default/cache",
        "APPLY ConfigMap default/cache",
        "CALL add a member",
        "CALL add a member",
        "PATCH Ring default/cache/status",
    ]


async def test_scenario_with_the_wrong_declared_end_is_rejected() -> None:
    with pytest.raises(AssertionError, match="expected Ready condition with reason InvalidSpec, found Ready"):
        await ReferenceRun.record(CORRECT, Scenario("wrong", (apply(members=1),), ends="InvalidSpec"))


async def test_operator_that_never_settles_is_rejected() -> None:
    with pytest.raises(AssertionError, match="do not settle"):
        await ReferenceRun.record(subject(ring.CountsReconciles), CREATE)


async def test_unstable_reference_run_is_rejected() -> None:
    class DependsOnDate(RingOperator):
        def keep_notes(self, view: View) -> Step:
            ring = view.ring
            return Step.do(Apply(CONFIG_MAP, ring.config_map(ring.name))) if view.now.day % 2 else PASS

    with pytest.raises(AssertionError, match="ConfigMap of Ring cache #0 exists in only one run"):
        await ReferenceRun.record(subject(DependsOnDate), Scenario("notes on odd days", (apply(),)))


async def test_forked_worlds_are_independent() -> None:
    world = World(CORRECT)
    play = ScenarioRun(world)
    await play.run_steps((apply(members=1, notes=True),))
    before = world.outcome
    fork = ScenarioRun(world.fork())
    await fork.run_steps((apply(members=3), delete(SERVICE)))
    assert world.outcome == before
    assert fork.world.database.state() != world.database.state()


async def test_step_can_advance_the_clock() -> None:
    world = World(CORRECT)
    before = world.server.now()
    await ScenarioRun(world).run_steps((later(3600), apply()))
    [(_, ring_made)] = world.server.objects(ring.RING)
    assert (before, ring_made["metadata"]["creationTimestamp"]) == ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")


async def test_time_passes_for_short_timers_only() -> None:
    patient = Subject("ring", lambda members: ring.WaitsBeforeJoining(members).controller, ring.Members, patience=10.0)
    course = await ReferenceRun.record(patient, CREATE)
    assert course.reference.outcome.database == {"members": 2}
    hasty = dataclasses.replace(patient, patience=5.0)
    with pytest.raises(AssertionError, match="expected Ready condition with reason Ready, found Waiting"):
        await ReferenceRun.record(hasty, CREATE)


async def test_unsafe_operation_fails_the_run_although_the_operator_handles_it() -> None:
    guarded = dataclasses.replace(CORRECT, database=ring.Guarded)
    await ReferenceRun.record(guarded, CREATE)
    edited = Scenario("edited", (edit(SERVICE, {"spec": {"ports": None}}),), given=(apply(),))
    with pytest.raises(Unsafe, match="the operator wrote to cache"):
        await ReferenceRun.record(guarded, edited)


def outcome(**fields: object) -> Outcome:
    metadata = {"name": "cache", "uid": str(fields.pop("uid", "1")), "creationTimestamp": "2026-01-01T00:00:00Z"}
    return Outcome(((CONFIG_MAP, {"metadata": metadata, **fields}),), Counter())


def test_unstable_fields_times_and_uids_are_masked() -> None:
    reference = Reference(
        outcome(uid="1", ip="10.0.0.1", at="2026-01-01T00:00:00Z", names=["a", "b"], size=1),
        outcome(uid="2", ip="10.0.0.2", at="2026-01-01T00:00:00Z", names=["c", "d"], size=1),
    )
    assert not reference.differences(outcome(ip="::1", at="2027-01-01T00:00:00Z", names=["e", "f"], size=1))
    assert reference.differences(outcome(ip="10.0.0.1", at="never", names=["a"], size=2)) == [
        "ConfigMap cache: at: 'never', expected 'a time'",
        "ConfigMap cache: names.length: 1, expected 2",
        "ConfigMap cache: size: 2, expected 1",
    ]
    changed = outcome(at="2027-01-01T00:00:00Z", names=["", ""], size=2)
    assert not reference.differences(changed, unstable=["size"])
    assert not reference.differences(changed, unstable=["ConfigMap size"])
    assert reference.differences(changed, unstable=["Pod size"])


def test_list_items_are_identified_by_type_or_name() -> None:
    ready, stalled = {"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"}
    reference = Reference(outcome(conditions=[ready, stalled]), outcome(conditions=[ready, stalled]))
    assert not reference.differences(outcome(conditions=[stalled, ready]))
    found = reference.differences(outcome(conditions=[ready, stalled | {"status": "True"}]))
    assert found == ["ConfigMap cache: conditions.[Stalled].status: 'True', expected 'False'"]


def test_list_items_with_generated_names_are_counted() -> None:
    def jobs(*names: str) -> Outcome:
        return outcome(jobs=[{"name": name * 40, "state": "done"} for name in names])

    reference = Reference(jobs("a", "b"), jobs("c", "d"))
    assert not reference.differences(jobs("e", "f"))
    assert reference.differences(jobs("e"))[-1] == "ConfigMap cache: jobs.length: 1, expected 2"


async def test_scoreboard_counts_runs_and_raises_on_failures() -> None:
    board = Scoreboard()
    assert board.lines == []
    board.require(await sweep(CORRECT, CREATE, BY_NAME["crash after a write"]))
    board.require(await sweep(CORRECT, CREATE, BY_NAME["500"]))
    with pytest.raises(AssertionError, match="4 of 5 runs passed"):
        board.require(await sweep(subject(ring.KeepsStateInMemory), CREATE, BY_NAME["crash after a write"]))
    assert board.lines == ["ring/create 14/15", "total 14/15"]
