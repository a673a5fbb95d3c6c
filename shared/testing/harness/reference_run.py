"""How a scenario goes if nothing goes wrong: what to disturb, and with what to compare the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shared.kubernetes import accessors
from shared.kubernetes.accessors import resource_version
from shared.kubernetes.kinds import POD, Obj
from shared.observability import metrics
from shared.status import conditions
from shared.testing.harness.harness import View, look
from shared.testing.harness.outcome import Reference
from shared.testing.harness.scenario import Scenario, ScenarioStep, Stage, Subject, story
from shared.testing.harness.scenario_runner import Play, World

_SEEDS = (0, 1)


class Occasion(NamedTuple):
    """When something could go wrong.

    Attributes:
        text: what happened then, for people.
        step: the number of the step that led to it.
        about: the object of an event.
    """

    text: str
    step: int
    about: str = ""


@dataclass
class Course:
    """An undisturbed run.

    Attributes:
        reference: how it ends.
        writes: what the operator wrote, in order.
        events: what the operator's watches brought, in order.
        moments: the number of a step, and what a list would have shown before it became something else.
        halts: the world before the steps, and after each.
    """

    subject: Subject
    scenario: Scenario
    reference: Reference
    writes: list[Occasion]
    events: list[Occasion]
    moments: list[tuple[int, View]]
    halts: list[World]

    def play(self, occasions: list[Occasion], nth: int) -> tuple[Play, tuple[ScenarioStep, ...], int]:
        """A run that has come as far as the rest before the nth of the occasions.

        Returns:
            The run, the steps that are left, and how many occasions come before that one.
        """
        step = occasions[nth].step
        while step and self.scenario.steps[step - 1].turns is not None:
            step -= 1
        before = sum(occasion.step < step for occasion in occasions)
        return Play(self.halts[step].fork()), self.scenario.steps[step:], nth - before

    @classmethod
    async def learn(cls, subject: Subject, scenario: Scenario) -> Course:
        """Play it undisturbed, in two worlds.

        Raises:
            AssertionError: it does not end as it says it does, or differently each time, or a reconcile is a defect.
        """
        before = panics()
        starts = [await _given(World(subject, seed=seed), scenario) for seed in _SEEDS]
        plays = [Play(start.fork()) for start in starts]
        tracks = _Tracks(plays[0])
        for step in scenario.steps:
            await plays[0].step(step)
            tracks.halt()
        await plays[0].go(())
        tracks.halt()
        await plays[1].go(scenario.steps)
        for play in plays:
            _require_end(scenario, play.stage)
        assert panics() == before, f"{scenario}: a reconcile ended in a defect; the log tells of it"
        reference = Reference(*(play.world.outcome for play in plays))
        return cls(subject, scenario, reference, tracks.writes, tracks.events, tracks.moments, tracks.halts[:-1])


class _Tracks:
    """What is noted during the run."""

    def __init__(self, play: Play) -> None:
        self.writes: list[Occasion] = []
        self.events: list[Occasion] = []
        self.moments: list[tuple[int, View]] = []
        self.halts = [play.world.fork()]
        self._play = play
        self._controller = play.world.subject.controller(play.world.database)
        self._seen: tuple[int, View] = (0, self._look())
        for kind in self._controller.kinds:
            play.world.server.subscribe(self._note, kind)

    @property
    def _step(self) -> int:
        return len(self.halts) - 1

    def halt(self) -> None:
        """A step is over."""
        new = self._play.world.server.log.all_writes[len(self.writes) :]
        self.writes += [Occasion(str(write), self._step) for write in new]
        self.halts.append(self._play.world.fork())
        self._turn()

    def _note(self, event: Obj) -> None:
        if self._play.operator is not None:
            obj = event["object"]
            about = f"{obj['kind']} {obj['metadata']['name']}"
            self.events.append(Occasion(f"{event['type']} {about}", self._step, about))
        self._turn()

    def _turn(self) -> None:
        """A moment is over when other objects, or other specs, are there than before."""
        before, now = self._seen, (self._step, self._look())
        if _gist(before[1]) != _gist(now[1]):
            self.moments.append(before)
        self._seen = now

    def _look(self) -> View:
        return look(self._controller, self._play.world.server)


def _gist(view: View) -> set[tuple[str, object]]:
    """What a stale view must differ in to be another: which objects there are, and what is asked of them."""
    return {
        (obj["metadata"]["uid"], kind != POD and (obj["metadata"].get("generation") or resource_version(obj)))
        for kind, listing in view.items()
        for obj in listing["items"]
    }


def panics() -> float:
    """Reconciles of this process that ended in a defect, as the metric counts them."""
    samples = [sample for family in metrics.PANICS.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def _given(world: World, scenario: Scenario) -> World:
    play = Play(world)
    await play.go(scenario.given)
    play.end()
    play.world.forget()
    return play.world.fork()


def _require_end(scenario: Scenario, stage: Stage) -> None:
    reasons = {str(accessors.condition(found, conditions.READY).get("reason", "")) for found in stage.find()}
    wanted = {scenario.ends} if scenario.ends else set()
    said = [accessors.condition(found, conditions.READY).get("message", "") for found in stage.find()]
    assert reasons == wanted, (
        f"{scenario}: {story((*scenario.given, *scenario.steps))}: ends with {sorted(reasons) or 'no resource'} rather "
        f"than {scenario.ends or 'no resource'}: {said}"
    )
