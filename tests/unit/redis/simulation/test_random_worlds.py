"""Whatever people ask for and whatever fails, in any order: the operator loses no acknowledged write, and ends well.

The whole operator runs on the in-memory API server over `FakeRedis`, which knows what would be lost when. Once nothing
fails any more, a cluster becomes what its spec says, or the status says what waits for a person; and then nothing is
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.kubernetes import accessors
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.status import conditions
from shared.testing.harness.scenario import ScenarioStep, Stage, apply, later
from shared.testing.harness.scenario_runner import Play, World
from tests.support.redis.scenarios import DISKS, NAME, NEW, OLD, REDIS, node
from tests.unit.redis.simulation.database import FakeRedis
from tests.unit.redis.simulation.node import ALL

PLACES = 9
TURNS = 12

PERSONS = frozenset({"SlotsLost", "VersionRefused", "NodeNotEmpty"})
"""Reasons that no operator may settle by itself."""


@dataclass(frozen=True)
class Event:
    """Something that happens, and how many turns everybody has before the next.

    Attributes:
        step: None where the operator's process ends and another begins.
    """

    text: str
    step: ScenarioStep | None
    turns: int

    def __repr__(self) -> str:
        return f"{self.text} ({self.turns})"


@dataclass(frozen=True)
class Kind:
    """What a cluster is like from its creation on."""

    disks: bool
    replicas_per_master: int

    @property
    def least(self) -> int:
        """Pods of the smallest cluster that there can be."""
        return 3 * (1 + self.replicas_per_master)

    @property
    def holds(self) -> bool:
        """Whether no pod can be made anew without a loss."""
        return not self.disks and not self.replicas_per_master

    def wants(self, replicas: int, version: str) -> ScenarioStep:
        spec = DISKS if self.disks else {}
        return apply(
            NAME,
            replicas=max(replicas, self.least),
            version=version,
            replicasPerMaster=self.replicas_per_master,
            **spec,
        )


def one(text: str, act: Callable[[Stage], object]) -> ScenarioStep:
    def careful(stage: Stage) -> None:
        with suppress(NotFound):  # there is none to fail
            act(stage)

    return ScenarioStep(text, careful)


def pod_gone(number: int) -> ScenarioStep:
    return one(
        f"{node(number)} is deleted",
        lambda stage: stage.person.delete(POD, stage.namespace, node(number), gracePeriodSeconds=0),
    )


def place_lost(number: int) -> ScenarioStep:
    """A pod is lost with its volume."""

    def act(stage: Stage) -> None:
        with suppress(NotFound):
            stage.person.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{node(number)}")
        stage.person.delete(POD, stage.namespace, node(number), gracePeriodSeconds=0)

    return one(f"{node(number)} is lost", act)


def to_redis(text: str, act: Callable[[FakeRedis], object]) -> ScenarioStep:
    return one(text, lambda stage: act(stage.database))


def failing(number: int) -> ScenarioStep:
    return to_redis(f"{node(number)} does not start", lambda redis: redis.failing.update({node(number): "NodeLost"}))


def restarts(number: int) -> ScenarioStep:
    """A container ends and begins again, in the same pod."""

    def act(redis: FakeRedis) -> None:
        for process in list(redis.processes.values()):
            if process.pod == node(number):
                redis.stop(process, "killed")

    return to_redis(f"{node(number)} restarts", act)


def hangs(number: int) -> ScenarioStep:
    return to_redis(f"{node(number)} hangs", lambda redis: redis.hang(node(number)))


def lags(number: int) -> ScenarioStep:
    return to_redis(f"{node(number)} gets nothing", lambda redis: redis.lagging.add(node(number)))


def cut(number: int) -> ScenarioStep:
    """A node is on the other side of a split network, with the odd ones."""

    def act(redis: FakeRedis) -> None:
        redis.islands = {node(other): 1 for other in range(number, PLACES, 3)}

    return to_redis(f"{node(number)} and every third from there are cut off", act)


def fails_over(number: int) -> ScenarioStep:
    """A person lets a replica take over.

    Where slots come to its master at that very time, Redis itself may lose writes: a master that gets a slot takes an
    epoch without asking, which may be higher than the one in which its successor was just elected. No server tells that
    it is about to be succeeded, so no operator can wait for that.
    """

    def act(redis: FakeRedis) -> None:
        for process in redis.running:
            if process.pod == node(number) and process.node.lead is not None and process.linked:
                process.election.manual = redis.now + 5.0
                redis.guard.shaken = True

    return to_redis(f"{node(number)} is told to take over", act)


def _well(redis: FakeRedis) -> None:
    redis.cut_off = False
    redis.failing.clear()
    redis.lagging.clear()
    redis.islands.clear()
    for process in list(redis.processes.values()):
        if process.hangs:
            redis.hang(process.pod, hangs=False)


CUT_OFF = to_redis("the operator reaches no node", lambda redis: setattr(redis, "cut_off", True))
REACHES = to_redis("the operator reaches nodes", lambda redis: setattr(redis, "cut_off", False))
WELL = to_redis("all is well", _well)


def events(kind: Kind, *, planned: bool) -> st.SearchStrategy[list[Event]]:
    """A course of events.

    Args:
        planned: whether only what people ask for happens, and the operator's own end.
    """
    number = st.integers(0, PLACES - 1)
    wishes = [
        st.builds(kind.wants, st.integers(3, PLACES), st.sampled_from([OLD, NEW])),
        st.sampled_from([later(5), later(60), None]),
        number.map(fails_over),
    ]
    faults = [
        number.map(pod_gone),
        number.map(place_lost),
        number.map(failing),
        number.map(restarts),
        number.map(hangs),
        number.map(lags),
        number.map(cut),
        st.sampled_from([CUT_OFF, REACHES, WELL, WELL, later(700)]),
    ]
    return st.lists(
        st.builds(
            lambda step, turns: Event(step.text if step else "the operator crashes", step, turns),
            st.one_of(*wishes, *(() if planned else faults)),
            st.integers(0, TURNS),
        ),
        max_size=8,
    )


async def course(kind: Kind, replicas: int, happens: list[Event]) -> Play:
    """Let it happen; then nothing fails any more, and time passes until all rest."""
    play = Play(World(REDIS))
    await play.step(kind.wants(replicas, OLD))
    for event in happens:
        if event.step is None:
            play.end()
            play.begin()
        else:
            event.step.act(play.stage)
            play.look_again()
        await play._turn(event.turns)
    WELL.act(play.stage)
    for _ in range(5):
        later(130).act(play.stage)
        play.look_again()
        await play.settle()
    return play


def told(play: Play) -> Obj:
    [found] = play.stage.find()
    return accessors.condition(found, conditions.READY)


async def require_well(play: Play) -> None:
    """Require what Ready promises, and that nothing is left to write."""
    [found] = play.stage.find()
    redis: FakeRedis = play.stage.database
    replicas = found["spec"]["replicas"]
    primaries = replicas // (1 + found["spec"]["replicasPerMaster"])
    [shape] = redis.state()
    assert shape["nodes"] == len(play.stage.find(POD)) == replicas
    assert shape["well"]
    assert shape["agree"]
    assert shape["clusters"] == 1
    assert shape["open slots"] == 0
    owning = [owned for owned in shape["slots by master"] if owned]
    assert len(owning) == max(3, primaries)
    assert sum(owning) == ALL.bit_count()
    assert max(owning) - min(owning) <= 1
    assert {process.version for process in redis.running} == {found["spec"]["version"]}
    assert len([disk for disk in redis.disks.values() if disk.id]) == replicas, "what was left behind is gone"
    before = play.world.server.log.all_writes.copy()
    play.look_again()
    await play.settle()
    play.end()
    play.begin()
    await play.settle()
    assert play.world.server.log.all_writes == before


def planned_operations_lose_nothing(kind: Kind, replicas: int, happens: list[Event]) -> None:
    async def run() -> None:
        play = await course(kind, replicas, happens)
        redis: FakeRedis = play.stage.database
        assert not redis.guard.shaken, "nothing befell it but what was asked for"
        said = told(play)
        if said["reason"] == "VersionRefused" or (kind.holds and said["reason"] == "RollHeld"):
            return  # as it must: the last wish was back, or would cost the data
        assert said["reason"] == "Ready", f"{said['reason']}: {said['message']}"
        await require_well(play)

    asyncio.run(run())


def nothing_is_lost_by_the_operator(kind: Kind, replicas: int, happens: list[Event]) -> None:
    async def run() -> None:
        play = await course(kind, replicas, happens)
        said = told(play)
        persons = PERSONS | ({"RollHeld"} if kind.holds else set())
        assert said["reason"] in persons | {"Ready"}, f"{said['reason']}: {said['message']}"
        if said["reason"] == "Ready":
            await require_well(play)

    asyncio.run(run())


KINDS = st.builds(Kind, st.booleans(), st.sampled_from([0, 1, 1, 1, 2]))
SIZES = st.integers(3, PLACES)


def often(examples: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow)


@st.composite
def worlds(draw: st.DrawFn, *, planned: bool) -> tuple[Kind, int, list[Event]]:
    kind = draw(KINDS)
    return kind, draw(SIZES), draw(events(kind, planned=planned))


@often(4)
@given(worlds(planned=True))
def test_what_people_ask_for_loses_nothing(world: tuple[Kind, int, list[Event]]) -> None:
    planned_operations_lose_nothing(*world)


@often(4)
@given(worlds(planned=False))
def test_whatever_fails_the_operator_loses_nothing_more(world: tuple[Kind, int, list[Event]]) -> None:
    nothing_is_lost_by_the_operator(*world)


@pytest.mark.long
@often(300)
@given(worlds(planned=True))
def test_what_people_ask_for_loses_nothing_at_length(world: tuple[Kind, int, list[Event]]) -> None:
    planned_operations_lose_nothing(*world)


@pytest.mark.long
@often(300)
@given(worlds(planned=False))
def test_whatever_fails_the_operator_loses_nothing_more_at_length(world: tuple[Kind, int, list[Event]]) -> None:
    nothing_is_lost_by_the_operator(*world)
