"""A pause of the reconciliation, for every kind: nothing is written but the status, at any moment, for any reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import EVENT, POD, SERVICE, Obj
from shared.status import conditions
from shared.status.reconciliation_pause import PAUSE
from simulator.api_server.request_log import Write
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, at_once, edit, later, lose
from tests.harness.scenario_runner import ScenarioRun, World
from tests.platform.unit.test_owned_objects import CASES, Case

KINDS = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
DAY = 86_400.0


def _pause(case: Case, value: str | None = "true") -> ScenarioStep:
    return edit(None, {"metadata": {"annotations": {PAUSE: value}}}, case.name)


def _resource(run: ScenarioRun, case: Case) -> Obj:
    [found] = (each for each in run.stage.find() if each["metadata"]["name"] == case.name)
    return found


def _writes(run: ScenarioRun, since: int = 0) -> list[str]:
    """Return the writes and database calls of the operator, without those of events and of the resource's status."""
    own = run.stage.kind.name
    return [
        str(write)
        for write in run.world.server.log.all_writes[since:]
        if write.kind != EVENT.name and (write.kind, write.subresource) != (own, "status")
    ]


def _reason(run: ScenarioRun, case: Case) -> tuple[str, str]:
    ready = condition(_resource(run, case), conditions.READY)
    return ready["status"], ready["reason"]


def _log_writes(world: World, note: Callable[[], None]) -> None:
    """Call `note` after each write and each database call of the operator."""

    class Noting(list[Write]):
        def append(self, write: Write) -> None:
            super().append(write)
            note()

    world.server.log.all_writes = Noting(world.server.log.all_writes)


@KINDS
async def test_new_resource_that_is_paused_gets_no_object(case: Case) -> None:
    run = ScenarioRun(World(case.subject))
    await run.run_steps(case.given)
    await run.run_steps((*at_once(case.full[0][0], _pause(case)), later(DAY)))
    assert _writes(run) == []
    resource = _resource(run, case)
    assert _reason(run, case) == ("False", "ReconciliationPaused")
    paused = condition(resource, conditions.PAUSED)
    assert PAUSE in paused["message"]
    since = paused["lastTransitionTime"]
    await run.wait(DAY)
    assert condition(_resource(run, case), conditions.PAUSED)["lastTransitionTime"] == since
    await run.run_steps((_pause(case, None),))
    assert _writes(run)
    assert condition(_resource(run, case), conditions.PAUSED) == {}
    assert _reason(run, case) == ("True", case.ends)


@KINDS
async def test_paused_resource_is_neither_repaired_nor_renewed_nor_changed(case: Case) -> None:
    run = ScenarioRun(World(case.subject))
    await run.run_steps((*case.given, case.full[0][0], _pause(case)))
    before = len(run.world.server.log.all_writes)
    has_ended = case.ends == "Complete"  # an EtcdBackup
    assert _reason(run, case) == ("True", case.ends if has_ended else "ReconciliationPaused")
    if not has_ended:
        run.stage.user_client.delete(SERVICE, NAMESPACE, case.name)
        await run.run_steps((lose(POD), case.least))
        assert _reason(run, case) == ("False", "ReconciliationPaused")
        assert f"Apply Service {case.name}" in condition(_resource(run, case), conditions.PAUSED)["message"]
    await run.wait(80 * DAY, times=2)  # certificates would be renewed
    assert _writes(run, before) == []


async def _paused_after(case: Case, number: int) -> tuple[ScenarioRun, int]:
    """Create a resource, and pause it right after the given number of writes of the operator."""
    run = ScenarioRun(World(case.subject))
    await run.run_steps(case.given)
    log, pauses = run.world.server.log, list[int]()

    def note() -> None:
        if len(log.all_writes) == number and _is_there(run, case):
            _pause(case).act(run.stage)
            pauses.append(number)

    _log_writes(run.world, note)
    await run.run_steps((case.full[0][0],))
    return run, (pauses or [len(log.all_writes)])[0]


def _is_there(run: ScenarioRun, case: Case) -> bool:
    return any(each["metadata"]["name"] == case.name for each in run.stage.find())


@pytest.mark.parametrize(
    "every",
    [
        pytest.param(1, marks=pytest.mark.weekly, id="each"),
        pytest.param(4, marks=pytest.mark.nightly, id="a quarter"),
        pytest.param(9, id="some"),
    ],
)
@KINDS
async def test_pause_in_the_middle_of_the_creation_ends_all_writes(case: Case, every: int) -> None:
    run = ScenarioRun(World(case.subject))
    await run.run_steps((*case.given, case.full[0][0]))
    writes = len(run.world.server.log.all_writes)
    for number in range(1, writes, every):
        run, since = await _paused_after(case, number)
        assert _writes(run, since) == [], f"after write {number} of {writes}"
        await run.run_steps((_pause(case, "false"),))
        assert _reason(run, case) == ("True", case.ends), f"after write {number} of {writes}"


@pytest.mark.parametrize(("value", "is_paused"), [("true", True), ("yes", True), ("", True), ("False", False)])
async def test_value_that_is_not_understood_pauses(value: str, is_paused: bool) -> None:
    case = CASES["Memcached"]
    run = ScenarioRun(World(case.subject))
    await run.run_steps(at_once(case.full[0][0], _pause(case, value)))
    assert bool(_writes(run)) is not is_paused


async def test_invalid_spec_of_a_paused_resource_is_reported_as_paused() -> None:
    case = CASES["Memcached"]
    run = ScenarioRun(World(case.subject))
    wrong = edit(None, {"spec": {"size": "many"}}, case.name)
    await run.run_steps(at_once(case.full[0][0], _pause(case), wrong))
    assert _reason(run, case) == ("False", "ReconciliationPaused")
    assert "spec.size" in condition(_resource(run, case), conditions.PAUSED)["message"]
