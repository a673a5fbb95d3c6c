"""Disturbances that last: an outage begins before a step or at a write, and ends when the world has settled in it.

During an outage the operator must do nothing that it would regret, and afterwards the run must end as the reference
run does. What fails is up to the subject: the connection to its database, some of the servers, or the status.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from tests.harness.disturbance import Disturbance
from tests.harness.outcome import HISTORY
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Stage
from tests.harness.scenario_runner import ScenarioRun

Change = Callable[[Stage], object]


@dataclass(frozen=True, slots=True)
class Outage:
    """A failure that lasts until the world has settled in it.

    Attributes:
        begin, end: change the world when the outage begins and ends; no watch event reports it.
        afterwards: changes the world once it has settled after the end.
    """

    begin: Change
    end: Change
    afterwards: Change | None = None


def disturbance(name: str, failure: Outage, *, unstable: tuple[str, ...] = ()) -> Disturbance:
    """Return a disturbance that begins an outage at each step and each write of a scenario.

    Args:
        unstable: fields that may end differently from the reference run.
    """

    def points(course: ReferenceRun) -> list[str]:
        steps = [f"during '{step}'" for step in course.scenario.steps]
        return steps + [f"from the write {point.text} on" for point in course.writes]

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        steps = len(course.scenario.steps)
        return await (_at_step(course, nth, failure) if nth < steps else _at_write(course, nth - steps, failure))

    return Disturbance(name, points, play, counts="any", unstable=(*HISTORY, *unstable))


def sample(full: Disturbance, share: int) -> Disturbance:
    """Return a disturbance that strikes one in `share` points of each scenario, always the same ones."""

    def chosen(course: ReferenceRun) -> list[int]:
        count = len(full.points(course))
        first = sum(map(ord, f"{course.scenario} {full}")) % share
        return list(range(min(first, count - 1), count, share)) if count else []

    def points(course: ReferenceRun) -> list[str]:
        found = full.points(course)
        return [found[index] for index in chosen(course)]

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        return await full.play(course, chosen(course)[nth])

    return replace(full, points=points, play=play)


def status_lost(stage: Stage) -> None:
    """Remove the status of every resource, as a restore of the resources from a backup does."""
    for found in stage.find():
        status = dict.fromkeys(found.get("status") or {})
        name = found["metadata"]["name"]
        stage.user_client.merge(stage.kind, stage.namespace, name, {"status": status}, subresource="status")


def every(*changes: Change) -> Change:
    """Return the changes as one."""

    def act(stage: Stage) -> None:
        for change in changes:
            change(stage)

    return act


async def _at_step(course: ReferenceRun, nth: int, failure: Outage) -> ScenarioRun:
    steps, start = course.scenario.steps, nth
    while start and steps[start - 1].turns is not None:
        start -= 1
    run = ScenarioRun(course.snapshots[start].fork())
    for step in steps[start:nth]:
        await run.step(step)
    if run.operator is None:
        run.begin()
    failure.begin(run.stage)
    run.resync()
    if nth == start:  # nothing settles between steps that happen at once
        await run.settle()
    run.after_step = _ending(run, failure)
    await run.run_steps(steps[nth:])
    await _end(run)
    return run


async def _at_write(course: ReferenceRun, nth: int, failure: Outage) -> ScenarioRun:
    """Reject the nth write as stale: the operator observes the world again, in which the outage has begun."""
    run, steps, skip = course.play(course.writes, nth)
    faults = run.world.server.faults
    faults.answer(409, skip=skip)

    def strike() -> None:
        faults.on_strike = lambda: None
        failure.begin(run.stage)
        run.after_step = _ending(run, failure)

    faults.on_strike = strike
    await run.run_steps(steps)
    await _end(run)
    return run


def _ending(run: ScenarioRun, failure: Outage) -> Callable[[], Awaitable[bool]]:
    """Return a hook that ends the outage when the world has settled."""

    async def after_step() -> bool:
        if run.operator is None:  # it has to observe the outage, and its end
            return False
        run.after_step = _nothing
        failure.end(run.stage)
        run.resync()
        if failure.afterwards is not None:
            await run.settle()
            failure.afterwards(run.stage)
            run.resync()
        return True

    return after_step


async def _nothing() -> bool:
    return False


async def _end(run: ScenarioRun) -> None:
    """End the outage if no settled step followed."""
    if await run.after_step():
        await run.run_steps(())
