"""Whatever people ask for and whatever fails, in any order: no acknowledged write is lost, and in the end all is well.

The whole operator runs on the in-memory API server over `FakeEtcd`, which knows what would be lost when. Once nothing
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

from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT
from shared.kubernetes import accessors
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.status import conditions
from shared.testing.harness.scenario import ScenarioStep, Stage, apply, later
from shared.testing.harness.scenario_runner import Play, World
from tests.support.etcd.scenarios import ETCD, MIDDLE, NAME, NEW, OLD, member
from tests.unit.etcd.simulation.database import FakeEtcd
from tests.unit.etcd.simulation.raft import quorum

PLACES = 5
TURNS = 12

PERSONS = frozenset({"QuorumLost", "DataLost", "UpgradeRefused", "VolumeInTheWay"})
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


def wants(size: int, version: str) -> ScenarioStep:
    return apply(NAME, size=size, version=version)


def one(text: str, act: Callable[[Stage], object]) -> ScenarioStep:
    def careful(stage: Stage) -> None:
        with suppress(NotFound):  # there is none to fail
            act(stage)

    return ScenarioStep(text, careful)


def pod_gone(number: int) -> ScenarioStep:
    return one(
        f"{member(number)} is deleted",
        lambda stage: stage.person.delete(POD, stage.namespace, member(number), gracePeriodSeconds=0),
    )


def place_lost(number: int, *, spared: bool) -> ScenarioStep:
    """A pod is lost with its volume; where the quorum is spared, only if the others are one."""

    def act(stage: Stage) -> None:
        if spared and not _survives(stage, f"data-{member(number)}"):
            return
        stage.person.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{member(number)}")
        stage.person.delete(POD, stage.namespace, member(number), gracePeriodSeconds=0)

    return one(f"{member(number)} is lost", act)


def _survives(stage: Stage, volume: str) -> bool:
    """Whether a quorum keeps its disks, with all that was written, if this volume goes, in every cluster there is."""
    etcd: FakeEtcd = stage.database
    there = {
        claim["metadata"]["uid"]
        for claim in stage.find(PERSISTENT_VOLUME_CLAIM)
        if not claim["metadata"].get("deletionTimestamp") and claim["metadata"]["name"] != volume
    }
    for cluster in etcd.clusters.values():
        voters = [seat.id for seat in cluster.now if not seat.learner]
        kept = {
            disk.member
            for uid, disk in etcd.disks.items()
            if uid in there and disk.cluster == cluster.id and disk.index == cluster.index
        }
        if len(kept & set(voters)) < quorum(cluster.now):
            return False
    return bool(etcd.clusters)


def to_etcd(text: str, act: Callable[[FakeEtcd], object]) -> ScenarioStep:
    return one(text, lambda stage: act(stage.database))


def failing(number: int) -> ScenarioStep:
    return to_etcd(f"{member(number)} does not start", lambda etcd: etcd.failing.update({member(number): "NodeLost"}))


def hangs(number: int) -> ScenarioStep:
    return to_etcd(f"{member(number)} hangs", lambda etcd: etcd.hang(member(number)))


def lags(number: int) -> ScenarioStep:
    return to_etcd(f"{member(number)} catches up with nobody", lambda etcd: etcd.lagging.add(member(number)))


def leads(number: int) -> ScenarioStep:
    def act(etcd: FakeEtcd) -> None:
        for cluster in etcd.clusters.values():
            for process in etcd.members_of(cluster):
                disk = etcd.disks[process.command.disk]
                if process.pod == member(number) and disk.member in etcd.voting(cluster):
                    cluster.leader, cluster.term = disk.member, cluster.term + 1

    return to_etcd(f"{member(number)} leads", act)


def _well(etcd: FakeEtcd) -> None:
    etcd.cut_off = False
    etcd.failing.clear()
    etcd.lagging.clear()
    for process in list(etcd.processes.values()):
        etcd.hang(process.pod, hangs=False)


CUT_OFF = to_etcd("the operator reaches no member", lambda etcd: setattr(etcd, "cut_off", True))
REACHES = to_etcd("the operator reaches members", lambda etcd: setattr(etcd, "cut_off", False))
WELL = to_etcd("all is well", _well)
FULL = to_etcd("the quota is used up", lambda etcd: etcd.fill() if etcd.running else None)


def events(*, spared: bool) -> st.SearchStrategy[list[Event]]:
    """A course of events.

    Args:
        spared: whether a quorum's disks are never lost.
    """
    number = st.integers(0, PLACES - 1)
    steps = st.one_of(
        st.builds(wants, st.integers(1, PLACES), st.sampled_from([OLD, MIDDLE, NEW])),
        number.map(pod_gone),
        number.map(lambda at: place_lost(at, spared=spared)),
        number.map(failing),
        number.map(hangs),
        number.map(lags),
        number.map(leads),
        st.sampled_from([CUT_OFF, REACHES, WELL, WELL, later(60), later(700), None]),
    )
    turns = st.integers(0, TURNS)
    return st.lists(
        st.builds(lambda step, turns: Event(step.text if step else "the operator crashes", step, turns), steps, turns),
        max_size=12,
    )


async def course(size: int, version: str, happens: list[Event]) -> Play:
    """Let it happen; then nothing fails any more, and time passes until all rest."""
    play = Play(World(ETCD))
    await play.step(ScenarioStep("asked for", wants(size, version).act))
    for event in happens:
        if event.step is None:
            play.end()
            play.begin()
        else:
            event.step.act(play.stage)
            play.look_again()
        await play._turn(event.turns)
    WELL.act(play.stage)
    for _ in range(6):
        play.stage.database.written(ENTRIES_PER_SNAPSHOT + 1)
        later(700).act(play.stage)
        play.look_again()
        await play.settle()
    return play


def told(play: Play) -> Obj:
    [found] = play.stage.find()
    return accessors.condition(found, conditions.READY)


async def require_well(play: Play) -> None:
    """Require what Ready promises, and that nothing is left to write."""
    [found] = play.stage.find()
    etcd: FakeEtcd = play.stage.database
    cluster = etcd.cluster()
    size = found["spec"]["size"]
    assert not any(seat.learner for seat in cluster.now)
    assert len(cluster.now) == len(etcd.voting(cluster)) == len(play.stage.find(POD)) == size
    assert {process.command.version.series for process in etcd.running} == {cluster.version}
    assert len([disk for disk in etcd.disks.values() if disk.member]) == size, "what members left is gone"
    before = play.world.server.log.all_writes.copy()
    play.look_again()
    await play.settle()
    play.end()
    play.begin()
    await play.settle()
    assert play.world.server.log.all_writes == before


def spared_quorums_heal(size: int, version: str, happens: list[Event]) -> None:
    async def run() -> None:
        play = await course(size, version, happens)
        said = told(play)
        if said["reason"] == "UpgradeRefused":  # as it must: the last wish was too far, or back
            return
        assert said["reason"] == "Ready", said["message"]
        await require_well(play)

    asyncio.run(run())


def nothing_is_lost(size: int, version: str, happens: list[Event]) -> None:
    async def run() -> None:
        play = await course(size, version, happens)
        said = told(play)
        assert said["reason"] in PERSONS | {"Ready"}, f"{said['reason']}: {said['message']}"
        if said["reason"] == "Ready":
            await require_well(play)

    asyncio.run(run())


SIZES, VERSIONS = st.integers(1, PLACES), st.sampled_from([OLD, MIDDLE, NEW])


def often(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@often(20)
@given(SIZES, VERSIONS, events(spared=True))
def test_while_a_quorum_keeps_its_disks_everything_heals(size: int, version: str, happens: list[Event]) -> None:
    spared_quorums_heal(size, version, happens)


@often(20)
@given(SIZES, VERSIONS, events(spared=False))
def test_whatever_is_lost_the_operator_loses_nothing_more(size: int, version: str, happens: list[Event]) -> None:
    nothing_is_lost(size, version, happens)


@pytest.mark.long
@often(400)
@given(SIZES, VERSIONS, events(spared=True))
def test_while_a_quorum_keeps_its_disks_everything_heals_at_length(
    size: int, version: str, happens: list[Event]
) -> None:
    spared_quorums_heal(size, version, happens)


@pytest.mark.long
@often(400)
@given(SIZES, VERSIONS, events(spared=False))
def test_whatever_is_lost_the_operator_loses_nothing_more_at_length(
    size: int, version: str, happens: list[Event]
) -> None:
    nothing_is_lost(size, version, happens)
