"""Plans and their execution as a cluster shows it: watches and the operator's log, here of simulated worlds."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.plans import planning, report
from e2e.plans.comparison import Duration, differences, durations, side_by_side
from e2e.plans.executed import EXECUTOR, RECONCILER, Event, Execution, execution
from shared.kubernetes.kinds import POD, Obj
from shared.observability.logs import JsonFormatter
from simulator.plan import Person, Plan
from simulator.recorder import KUBERNETES, OPERATOR, MemberChange, Move, PodChange, Step
from tests.harness.scenario import edit
from tests.harness.scenario_runner import ScenarioRun
from tests.support import plays
from tests.support.planning import CASES, WORLDS, Case, planned, start_together
from tests.support.virtual_time import in_virtual_time

REFERENCE = "default/cache"


class Cluster(logging.Handler):
    """A simulated world as a real cluster shows it: events of watches, and lines of the operator's log."""

    def __init__(self, play: ScenarioRun) -> None:
        super().__init__(logging.INFO)
        self._world = play.world
        self._format = JsonFormatter()
        self._number = 0
        self.events: list[Event] = []
        self.lines: list[str] = []
        kind = play.world.subject.controller(play.world.database).kind
        for each in (POD, kind):
            for _, obj in self._world.server.objects(each):
                self._note({"type": "ADDED", "object": obj}, each.name)
            self._world.server.subscribe(lambda event, name=each.name: self._note(event, name), each)  # type: ignore[misc]
        self.began = self._at()

    def _at(self) -> float:
        """Return the time of the world; two things never happen at the same one."""
        self._number += 1
        return self._world.clock.now.timestamp() + self._number / 1e6

    def _note(self, event: Obj, kind: str) -> None:
        self.events.append(Event(self._at(), event["type"], {"kind": kind} | event["object"]))

    def emit(self, record: logging.LogRecord) -> None:
        line = json.loads(self._format.format(record))
        line["time"] = datetime.fromtimestamp(self._at(), UTC).isoformat()
        self.lines.append(json.dumps(line))

    def execution(self) -> Execution:
        return execution(self.events, self.lines, self.began, REFERENCE)


@contextmanager
def shown(play: ScenarioRun) -> Iterator[Cluster]:
    """Yield a world as a real cluster shows it."""
    cluster = Cluster(play)
    loggers = [logging.getLogger(name) for name in (EXECUTOR, RECONCILER)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(cluster)
        logger.setLevel(logging.INFO)
    try:
        yield cluster
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(cluster)
            logger.setLevel(level)


async def executed(case: Case) -> tuple[Plan, Execution]:
    """Return the plan of a change, and what the world then shows."""
    play = await plays.begun(WORLDS[case.operator][0], *case.given)
    plan = await planned(case.operator, play, case.spec)
    start_together(play)
    with shown(play) as cluster:
        await play.step(edit(None, {"spec": case.spec}))
        return plan, cluster.execution()


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{each.operator}: {each.what}", marks=each.marks) for each in CASES]
)
@in_virtual_time
async def test_execution_of_a_plan_does_not_differ_from_it(case: Case) -> None:
    plan, execution = await executed(case)
    found = differences(plan, execution)
    assert not found, side_by_side(plan, execution, found)
    assert execution.steps
    assert all(each.predicted >= 0 and each.taken >= 0 for each in durations(plan, execution))


@in_virtual_time
async def test_hibernation_is_executed_as_planned() -> None:
    case = next(each for each in CASES if each.operator == "redis")
    plan, execution = await executed(case._replace(spec={"hibernate": True}))
    assert differences(plan, execution) == []
    assert (execution.reason, execution.ready) == ("Hibernated", False)


PLAN = Plan(
    "EtcdCluster",
    "default",
    "demo",
    "restarts",
    (
        Step(OPERATOR, "change", "StatefulSet demo", ("spec.replicas: 3 → 4",), seconds=0.1),
        Step(OPERATOR, "call", "add a learner at https://demo-3", members=(MemberChange("demo-3", "", "learner"),)),
        Step(KUBERNETES, "starts", "Pod demo-3", pods=(PodChange("demo-3", "starts"),), seconds=3.0),
        Step(OPERATOR, "call", "promote demo-3", members=(MemberChange("demo-3", "learner", "voter"),), seconds=1.0),
        Step(OPERATOR, "evict", "Pod demo-1", pods=(PodChange("demo-1", "restarts"),), seconds=4.0),
        Step(OPERATOR, "evict", "Pod demo-0", pods=(PodChange("demo-0", "restarts"),), seconds=4.0),
        Step(OPERATOR, "change", "Secret demo-connection", minor=True),
    ),
    ready=True,
    reason="Ready",
)


def same() -> Execution:
    """Return an execution that is the plan, with a second for each step."""
    steps = tuple(step for step in PLAN.steps if not step.minor)
    begins = tuple(1000.0 + number for number in range(len(steps)))
    return Execution(
        steps, begins, 1010.0, {"demo-3": ("", "learner", "voter")}, (), ("Scaling", "Ready"), "Ready", True
    )


def without(steps: tuple[Step, ...], *numbers: int) -> tuple[Step, ...]:
    return tuple(step for number, step in enumerate(steps) if number not in numbers)


def test_equal_sides_do_not_differ() -> None:
    assert differences(PLAN, same()) == []


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("pods", lambda it: {"steps": (*it.steps[:4], it.steps[5], it.steps[4])}),
        ("pods", lambda it: {"steps": without(it.steps, 5)}),
        ("calls", lambda it: {"steps": without(it.steps, 3)}),
        ("writes", lambda it: {"steps": (it.steps[0], *it.steps)}),
        ("members", lambda it: {"roles": {"demo-3": ("", "learner")}}),
        ("members", lambda it: {"roles": {**it.roles, "demo-0": ("voter", "")}}),
        ("slots", lambda it: {"moves": (Move("demo-0", "demo-1", 5),)}),
        ("end", lambda it: {"ready": False}),
        ("end", lambda it: {"reason": "Degraded"}),
    ],
    ids=[
        "order",
        "no restart",
        "no call",
        "one more write",
        "learner",
        "member leaves",
        "slots",
        "not Ready",
        "reason",
    ],
)
def test_each_difference_is_found_and_shown(what: str, change: Any) -> None:
    execution = dataclasses.replace(same(), **change(same()))
    execution = dataclasses.replace(execution, begins=tuple(map(float, range(len(execution.steps)))))
    found = differences(PLAN, execution)
    assert what in [each.what for each in found]
    text = side_by_side(PLAN, execution, found)
    assert f"\n{what}:\n" in text
    assert "  ≠ " in text
    assert "  4.0  evict Pod demo-1: demo-1 restarts" in text


def test_calls_that_are_repeated_or_depend_on_gossip_are_no_difference() -> None:
    plan = dataclasses.replace(PLAN, steps=(*PLAN.steps, Step(OPERATOR, "call", "let demo-6, demo-7 meet demo-0")))
    more = ("promote demo-3", "let demo-6 meet demo-0", "let demo-7 meet demo-0", "wait 0.5 s, for gossip")
    steps = (*same().steps, *(Step(OPERATOR, "call", text) for text in more))
    begins = tuple(1000.0 + number for number in range(len(steps)))
    assert differences(plan, dataclasses.replace(same(), steps=steps, begins=begins)) == []


def test_new_pods_may_have_the_roles_of_each_other() -> None:
    """The role follows from the Kubernetes node, which the scheduler chooses."""
    starts = [Step(KUBERNETES, "starts", f"Pod demo-{n}", pods=(PodChange(f"demo-{n}", "starts"),)) for n in (6, 7)]

    def side(primary: str, replica: str) -> tuple[Plan, Execution]:
        joins = (MemberChange(primary, "", "primary"), MemberChange(replica, "", "replica"))
        call = Step(OPERATOR, "call", f"let {replica} replicate {primary}", members=joins)
        moved = (Move("demo-0", primary, 1366),)
        slots = Step(OPERATOR, "call", f"move slots: 1366 from demo-0 to {primary}", moves=moved)
        steps = (*starts, call, slots)
        roles = {primary: ("", "primary"), replica: ("", "replica")}
        plan = dataclasses.replace(PLAN, kind="RedisCluster", steps=steps)
        return plan, Execution(steps, (1.0, 2.0, 3.0, 4.0), 5.0, roles, moved, ("Ready",), "Ready", True)

    plan, _ = side("demo-7", "demo-6")
    assert differences(plan, side("demo-7", "demo-6")[1]) == []
    assert differences(plan, side("demo-6", "demo-7")[1]) == []
    assert [each.what for each in differences(plan, side("demo-6", "demo-5")[1])] == ["calls", "members"]


def test_pods_that_start_together_have_no_order() -> None:
    starts = [Step(KUBERNETES, "starts", f"Pod demo-{n}", pods=(PodChange(f"demo-{n}", "starts"),)) for n in (5, 6)]
    plan = dataclasses.replace(PLAN, steps=(*PLAN.steps, *starts))
    steps = (*same().steps, *reversed(starts))
    begins = tuple(1000.0 + number for number in range(len(steps)))
    assert differences(plan, dataclasses.replace(same(), steps=steps, begins=begins)) == []


def test_durations_are_those_between_steps_that_both_sides_have() -> None:
    found = {each.step: each for each in durations(PLAN, same())}
    assert (found["starts Pod demo-3"].predicted, found["starts Pod demo-3"].taken) == (3.0, 1.0)
    assert (found["evict Pod demo-0"].predicted, found["evict Pod demo-0"].taken) == (4.0, 5.0)
    steps, begins = without(same().steps, 3), tuple(each for n, each in enumerate(same().begins) if n != 3)
    found = {each.step: each for each in durations(PLAN, dataclasses.replace(same(), steps=steps, begins=begins))}
    assert (found["starts Pod demo-3"].predicted, found["starts Pod demo-3"].taken) == (4.0, 2.0)


@pytest.mark.parametrize(
    ("predicted", "taken", "agrees"),
    [(10.0, 8.0, True), (10.0, 7.9, False), (8.0, 10.0, True), (7.4, 10.0, False), (0.1, 1.0, True), (0.1, 1.2, False)],
)
def test_duration_agrees_within_a_quarter_or_a_second(predicted: float, taken: float, agrees: bool) -> None:
    assert Duration("step", predicted, taken).agrees is agrees


def test_report_has_the_share_of_steps_that_agree() -> None:
    found = report.report([report.change(PLAN, {"size": 4}, durations(PLAN, same()))])
    assert (found["steps"], found["agreeing"], found["share"]) == (6, 4, 0.667)
    assert found["changes"][0]["spec"] == {"size": 4}
    assert "starts Pod demo-3" in report.text(found)
    assert report.report([])["share"] is None


def test_plan_is_read_from_its_json() -> None:
    setting = Step(OPERATOR, "call", "set a of b-0", moves=(Move("b-0", "b-1", 5),), others=("set a of b-1",))
    steps = (*PLAN.steps, setting)
    plan = dataclasses.replace(PLAN, steps=steps, person=Person("Paused", "It is paused."), assumptions=("none",))
    assert planning.parsed(json.dumps(dataclasses.asdict(plan))) == plan
