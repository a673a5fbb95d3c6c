"""Random changes and faults in any order: the operator loses no acknowledged write, and converges.

The whole operator runs on the in-memory API server and `FakeRedis`, which detects unsafe operations. Once all faults
are over, the cluster reaches its spec, or the status names what the user must do. Then the operator writes nothing
more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.kubernetes import accessors
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.status import conditions
from simulator.redis.node import ALL
from tests.harness.scenario import ScenarioStep, Stage, apply, if_present, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import DISKS, NAME, NEW, OLD, REDIS, node

PODS = 9
TURNS = 12

NEEDS_USER = frozenset({"SlotsLost", "VersionRefused", "NodeNotEmpty"})
"""Ready reasons that only the user can resolve."""


@dataclass(frozen=True)
class Event:
    """An event, and the number of turns until the next one.

    Attributes:
        step: None for a crash and restart of the operator.
    """

    text: str
    step: ScenarioStep | None
    turns: int

    def __repr__(self) -> str:
        return f"{self.text} ({self.turns})"


@dataclass(frozen=True)
class Kind:
    """Settings of a cluster that never change."""

    disks: bool
    replicas_per_master: int

    @property
    def least(self) -> int:
        """Pods of the smallest possible cluster."""
        return 3 * (1 + self.replicas_per_master)

    @property
    def volatile(self) -> bool:
        """Whether any restart of a pod loses data."""
        return not self.disks and not self.replicas_per_master

    def spec(self, replicas: int, version: str) -> ScenarioStep:
        fields = DISKS if self.disks else {}
        return apply(
            NAME,
            replicas=max(replicas, self.least),
            version=version,
            replicasPerMaster=self.replicas_per_master,
            **fields,
        )


def pod_deleted(number: int) -> ScenarioStep:
    return if_present(
        f"{node(number)} is deleted",
        lambda stage: stage.user_client.delete(POD, stage.namespace, node(number), gracePeriodSeconds=0),
    )


def pod_and_volume_lost(number: int) -> ScenarioStep:
    """Delete a pod and its volume."""

    def act(stage: Stage) -> None:
        with suppress(NotFound):
            stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{node(number)}")
        stage.user_client.delete(POD, stage.namespace, node(number), gracePeriodSeconds=0)

    return if_present(f"{node(number)} is lost", act)


def to_redis(text: str, act: Callable[[FakeRedis], object]) -> ScenarioStep:
    return if_present(text, lambda stage: act(stage.database))


def failing(number: int) -> ScenarioStep:
    return to_redis(f"{node(number)} does not start", lambda redis: redis.failing.update({node(number): "NodeLost"}))


def restarts(number: int) -> ScenarioStep:
    """Restart the container of a pod."""

    def act(redis: FakeRedis) -> None:
        for process in list(redis.processes.values()):
            if process.pod == node(number):
                redis.stop(process, "killed")

    return to_redis(f"{node(number)} restarts", act)


def hangs(number: int) -> ScenarioStep:
    return to_redis(f"{node(number)} hangs", lambda redis: redis.hang(node(number)))


def lags(number: int) -> ScenarioStep:
    return to_redis(f"{node(number)} lags", lambda redis: redis.lagging.add(node(number)))


def cut(number: int) -> ScenarioStep:
    """Put a node, and every third one from there, on the other side of a split network."""

    def act(redis: FakeRedis) -> None:
        redis.partitions = {node(other): 1 for other in range(number, PODS, 3)}

    return to_redis(f"{node(number)} and every third from there are cut off", act)


def fails_over(number: int) -> ScenarioStep:
    """Trigger a manual failover as a user does.

    If slots move to its primary at the same time, Redis itself may lose writes. A primary that receives a slot raises
    its epoch without an election, possibly above the one in which its successor was just elected. No server reports
    that it is about to be replaced, so no operator can wait for it.
    """

    def act(redis: FakeRedis) -> None:
        for process in redis.running:
            if process.pod == node(number) and process.node.lead is not None and process.linked:
                process.election.manual = redis.now + 5.0
                redis.guard.user_failovers = True

    return to_redis(f"{node(number)} runs CLUSTER FAILOVER", act)


def _recover(redis: FakeRedis) -> None:
    redis.cut_off = False
    redis.failing.clear()
    redis.lagging.clear()
    redis.partitions.clear()
    for process in list(redis.processes.values()):
        if process.hangs:
            redis.hang(process.pod, hangs=False)


CUT_OFF = to_redis("the operator reaches no node", lambda redis: setattr(redis, "cut_off", True))
CONNECTED = to_redis("the operator reaches nodes", lambda redis: setattr(redis, "cut_off", False))
RECOVERED = to_redis("all faults end", _recover)


def events(kind: Kind, *, planned: bool) -> st.SearchStrategy[list[Event]]:
    """Generate a list of events.

    Args:
        planned: whether only changes by users and crashes of the operator happen.
    """
    number = st.integers(0, PODS - 1)
    changes = [
        st.builds(kind.spec, st.integers(3, PODS), st.sampled_from([OLD, NEW])),
        st.sampled_from([later(5), later(60), None]),
        number.map(fails_over),
    ]
    faults = [
        number.map(pod_deleted),
        number.map(pod_and_volume_lost),
        number.map(failing),
        number.map(restarts),
        number.map(hangs),
        number.map(lags),
        number.map(cut),
        st.sampled_from([CUT_OFF, CONNECTED, RECOVERED, RECOVERED, later(700)]),
    ]
    return st.lists(
        st.builds(
            lambda step, turns: Event(step.text if step else "the operator crashes", step, turns),
            st.one_of(*changes, *(() if planned else faults)),
            st.integers(0, TURNS),
        ),
        max_size=8,
    )


async def course(kind: Kind, replicas: int, happens: list[Event]) -> ScenarioRun:
    """Run the events, end all faults, and wait until the cluster has converged."""
    play = ScenarioRun(World(REDIS))
    await play.step(kind.spec(replicas, OLD))
    for event in happens:
        if event.step is None:
            play.end()
            play.begin()
        else:
            event.step.act(play.stage)
            play.resync()
        await play._turn(event.turns)
    RECOVERED.act(play.stage)
    await play.wait(130, times=5)
    return play


def ready_condition(play: ScenarioRun) -> Obj:
    [found] = play.stage.find()
    return accessors.condition(found, conditions.READY)


async def require_converged(play: ScenarioRun) -> None:
    """Require the state that Ready promises, and that the operator writes nothing more."""
    [found] = play.stage.find()
    redis: FakeRedis = play.stage.database
    replicas = found["spec"]["replicas"]
    primaries = replicas // (1 + found["spec"]["replicasPerMaster"])
    [shape] = redis.state()
    assert shape["nodes"] == len(play.stage.find(POD)) == replicas
    assert shape["healthy"]
    assert shape["consistent"]
    assert shape["clusters"] == 1
    assert shape["open slots"] == 0
    owning = [owned for owned in shape["slots by primary"] if owned]
    assert len(owning) == max(3, primaries)
    assert sum(owning) == ALL.bit_count()
    assert max(owning) - min(owning) <= 1
    assert {process.version for process in redis.running} == {found["spec"]["version"]}
    assert len([disk for disk in redis.disks.values() if disk.id]) == replicas, "removed nodes leave no disk"
    before = play.world.server.log.all_writes.copy()
    play.resync()
    await play.settle()
    play.end()
    play.begin()
    await play.settle()
    assert play.world.server.log.all_writes == before


def check_planned_changes(kind: Kind, replicas: int, happens: list[Event]) -> None:
    async def run() -> None:
        play = await course(kind, replicas, happens)
        play.stage.database.guard.require_resolved(play.stage.database)
        ready = ready_condition(play)
        if ready["reason"] == "VersionRefused" or (kind.volatile and ready["reason"] == "RollBlocked"):
            return  # correct: the last change is a downgrade, or would lose the data
        assert ready["reason"] == "Ready", f"{ready['reason']}: {ready['message']}"
        await require_converged(play)

    asyncio.run(run())


def check_faults(kind: Kind, replicas: int, happens: list[Event]) -> None:
    async def run() -> None:
        play = await course(kind, replicas, happens)
        ready = ready_condition(play)
        reported = ready["message"] if ready["reason"] == "SlotStuck" else ""
        play.stage.database.guard.require_resolved(play.stage.database, reported)
        allowed = NEEDS_USER | ({"RollBlocked"} if kind.volatile else set())
        assert ready["reason"] in allowed | {"Ready"}, f"{ready['reason']}: {ready['message']}"
        if ready["reason"] == "Ready":
            await require_converged(play)

    asyncio.run(run())


KINDS = st.builds(Kind, st.booleans(), st.sampled_from([0, 1, 1, 1, 2]))
SIZES = st.integers(3, PODS)


def examples(examples: int, **given: Any) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow, **given)


@st.composite
def cases(draw: st.DrawFn, *, planned: bool) -> tuple[Kind, int, list[Event]]:
    kind = draw(KINDS)
    return kind, draw(SIZES), draw(events(kind, planned=planned))


@pytest.mark.nightly
@examples(4, derandomize=True)  # the same each night; each week draws new ones
@given(cases(planned=True))
def test_planned_changes_lose_no_write(case: tuple[Kind, int, list[Event]]) -> None:
    check_planned_changes(*case)


@pytest.mark.nightly
@examples(4, derandomize=True)  # the same each night; each week draws new ones
@given(cases(planned=False))
def test_operator_loses_no_write_under_faults(case: tuple[Kind, int, list[Event]]) -> None:
    check_faults(*case)


@pytest.mark.weekly
@examples(300)
@given(cases(planned=True))
def test_planned_changes_lose_no_write_in_many_examples(case: tuple[Kind, int, list[Event]]) -> None:
    check_planned_changes(*case)


@pytest.mark.weekly
@examples(300)
@given(cases(planned=False))
def test_operator_loses_no_write_under_faults_in_many_examples(case: tuple[Kind, int, list[Event]]) -> None:
    check_faults(*case)
