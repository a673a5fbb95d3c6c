"""The undisturbed run of a scenario: the points for disturbances, and the outcome to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shared.kubernetes import accessors
from shared.kubernetes.accessors import resource_version
from shared.kubernetes.kinds import POD, Obj
from shared.observability import metrics
from shared.status import conditions
from simulator.harness import View, list_view
from tests.harness.outcome import Reference
from tests.harness.scenario import Scenario, ScenarioStep, Stage, Subject, describe_steps
from tests.harness.scenario_runner import ScenarioRun, World

_SEEDS = (0, 1)


class InjectionPoint(NamedTuple):
    """A point at which a disturbance can be injected.

    Attributes:
        text: description for reports.
        step: index of the step that led to it.
        about: object of an event.
    """

    text: str
    step: int
    about: str = ""


@dataclass
class ReferenceRun:
    """An undisturbed run.

    Attributes:
        reference: expected outcome.
        writes: writes of the operator, in order.
        events: watch events of the operator, in order.
        views: distinct views over time, each with the index of its step.
        snapshots: the world before the first step and after each step.
    """

    subject: Subject
    scenario: Scenario
    reference: Reference
    writes: list[InjectionPoint]
    events: list[InjectionPoint]
    views: list[tuple[int, View]]
    snapshots: list[World]

    def play(self, points: list[InjectionPoint], nth: int) -> tuple[ScenarioRun, tuple[ScenarioStep, ...], int]:
        """Start a run at the last settled state before the nth point.

        Returns:
            The run, the remaining steps, and the number of points between its start and the nth one.
        """
        step = points[nth].step
        while step and self.scenario.steps[step - 1].turns is not None:
            step -= 1
        before = sum(point.step < step for point in points)
        return ScenarioRun(self.snapshots[step].fork()), self.scenario.steps[step:], nth - before

    @classmethod
    async def record(cls, subject: Subject, scenario: Scenario) -> ReferenceRun:
        """Run the scenario undisturbed in two worlds.

        Raises:
            AssertionError: the run does not end as declared, ends differently in the two worlds, or raises an
                unexpected exception in a reconcile.
        """
        before = panics()
        starts = [await _world_after_setup(World(subject, seed=seed), scenario) for seed in _SEEDS]
        plays = [ScenarioRun(start.fork()) for start in starts]
        recorder = _Recorder(plays[0])
        for step in scenario.steps:
            await plays[0].step(step)
            recorder.halt()
        await plays[0].run_steps(())
        recorder.halt()
        await plays[1].run_steps(scenario.steps)
        for play in plays:
            _require_end(scenario, play.stage)
        assert panics() == before, f"{scenario}: a reconcile raised an unexpected exception; see the log"
        reference = Reference(*(play.world.outcome for play in plays))
        return cls(
            subject, scenario, reference, recorder.writes, recorder.events, recorder.views, recorder.snapshots[:-1]
        )


class _Recorder:
    """Records a run."""

    def __init__(self, play: ScenarioRun) -> None:
        self.writes: list[InjectionPoint] = []
        self.events: list[InjectionPoint] = []
        self.views: list[tuple[int, View]] = []
        self.snapshots = [play.world.fork()]
        self._play = play
        self._controller = play.world.subject.controller(play.world.database)
        self._view: tuple[int, View] = (0, self._list())
        for kind in self._controller.kinds:
            play.world.server.subscribe(self._record_event, kind)

    @property
    def _step(self) -> int:
        return len(self.snapshots) - 1

    def halt(self) -> None:
        """Record the end of a step."""
        new = self._play.world.server.log.all_writes[len(self.writes) :]
        self.writes += [InjectionPoint(str(write), self._step) for write in new]
        self.snapshots.append(self._play.world.fork())
        self._record_view()

    def _record_event(self, event: Obj) -> None:
        if self._play.operator is not None:
            obj = event["object"]
            about = f"{obj['kind']} {obj['metadata']['name']}"
            self.events.append(InjectionPoint(f"{event['type']} {about}", self._step, about))
        self._record_view()

    def _record_view(self) -> None:
        """Record the previous view if objects or specs differ from it."""
        before, now = self._view, (self._step, self._list())
        if _distinguishing_parts(before[1]) != _distinguishing_parts(now[1]):
            self.views.append(before)
        self._view = now

    def _list(self) -> View:
        return list_view(self._controller, self._play.world.server)


def _distinguishing_parts(view: View) -> set[tuple[str, object]]:
    """Return the parts in which a stale view must differ to count as distinct: the existing objects and their specs."""
    return {
        (obj["metadata"]["uid"], kind != POD and (obj["metadata"].get("generation") or resource_version(obj)))
        for kind, listing in view.items()
        for obj in listing["items"]
    }


def panics() -> float:
    """Return the number of reconciles in this process that raised an unexpected exception, from the metric."""
    samples = [sample for family in metrics.PANICS.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def _world_after_setup(world: World, scenario: Scenario) -> World:
    play = ScenarioRun(world)
    await play.run_steps(scenario.given)
    play.end()
    play.world.start_counting()
    return play.world.fork()


def _require_end(scenario: Scenario, stage: Stage) -> None:
    reasons = {str(accessors.condition(found, conditions.READY).get("reason", "")) for found in stage.find()}
    expected = {scenario.ends} if scenario.ends else set()
    messages = [accessors.condition(found, conditions.READY).get("message", "") for found in stage.find()]
    assert reasons == expected, (
        f"{scenario} ({describe_steps((*scenario.given, *scenario.steps))}): expected "
        f"{f'Ready condition with reason {scenario.ends}' if scenario.ends else 'no resource'}, found "
        f"{', '.join(sorted(reasons)) or 'no resource'}: {messages}"
    )
