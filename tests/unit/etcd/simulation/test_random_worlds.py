"""Random specs and failures in any order: no acknowledged write is lost, and the cluster recovers in the end.

The whole operator runs on the in-memory API server over `FakeEtcd`, which checks for lost writes. Once nothing fails
any more, the cluster reaches its desired state, or the status names what needs a user; then nothing is written.
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
from shared.testing.harness.outage import status_lost
from shared.testing.harness.scenario import ScenarioStep, Stage, apply, later
from shared.testing.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, MIDDLE, NAME, NEW, OLD, member
from tests.unit.etcd.simulation.database import FakeEtcd
from tests.unit.etcd.simulation.raft import quorum

MAX_SIZE = 5
MAX_TURNS = 12

MANUAL_REASONS = frozenset(
    {"QuorumLost", "DataLost", "UpgradeRefused", "VolumeInTheWay", "TokenRefused", "FormerDataKept"}
)
"""Reasons that need a user."""


@dataclass(frozen=True)
class Event:
    """An event, and the number of turns of operator and cluster before the next one.

    Attributes:
        step: step of the scenario; None for a restart of the operator.
    """

    text: str
    step: ScenarioStep | None
    turns: int

    def __repr__(self) -> str:
        return f"{self.text} ({self.turns})"


def cluster_spec(size: int, version: str) -> ScenarioStep:
    return apply(NAME, size=size, version=version)


def one(text: str, act: Callable[[Stage], object]) -> ScenarioStep:
    def tolerant(stage: Stage) -> None:
        with suppress(NotFound):  # the object does not exist
            act(stage)

    return ScenarioStep(text, tolerant)


def pod_deleted(number: int) -> ScenarioStep:
    return one(
        f"{member(number)} is deleted",
        lambda stage: stage.user_client.delete(POD, stage.namespace, member(number), gracePeriodSeconds=0),
    )


def member_lost(number: int, *, keep_quorum: bool) -> ScenarioStep:
    """Lose a pod with its volume; with `keep_quorum`, only if the other members are a quorum."""

    def act(stage: Stage) -> None:
        if keep_quorum and not _survives(stage, f"data-{member(number)}"):
            return
        stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{member(number)}")
        stage.user_client.delete(POD, stage.namespace, member(number), gracePeriodSeconds=0)

    return one(f"{member(number)} is lost", act)


def _survives(stage: Stage, volume: str) -> bool:
    """Whether every cluster keeps a quorum of complete disks without this volume."""
    etcd: FakeEtcd = stage.database
    claims = {
        claim["metadata"]["uid"]
        for claim in stage.find(PERSISTENT_VOLUME_CLAIM)
        if not claim["metadata"].get("deletionTimestamp") and claim["metadata"]["name"] != volume
    }
    for cluster in etcd.clusters.values():
        voters = [record.id for record in cluster.now if not record.learner]
        kept = {
            disk.member
            for uid, disk in etcd.disks.items()
            if uid in claims and disk.cluster == cluster.id and disk.index == cluster.index
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


def unreachable(number: int) -> ScenarioStep:
    return to_etcd(f"the operator does not reach {member(number)}", lambda etcd: etcd.unreachable.add(number))


def lags(number: int) -> ScenarioStep:
    return to_etcd(f"{member(number)} does not catch up", lambda etcd: etcd.lagging.add(member(number)))


def disk_away(number: int) -> ScenarioStep:
    return to_etcd(f"the disk of {member(number)} is not mounted", lambda etcd: etcd.unmount(member(number)))


def majority_away(numbers: frozenset[int]) -> ScenarioStep:
    """Unmount several disks at once."""

    def act(etcd: FakeEtcd) -> None:
        for number in numbers:
            etcd.unmount(member(number))

    return to_etcd(f"the disks of {sorted(numbers)} are not mounted", act)


def _mounted(etcd: FakeEtcd) -> None:
    for number in range(MAX_SIZE):
        etcd.unmount(member(number), mounts=True)


def _confirm(stage: Stage) -> None:
    with suppress(StopIteration):
        _set_recovery(stage, confirm=next(token for found in stage.find() if (token := _offered(found))))
        stage.database.guard.agree(stage.database)


def _offered(found: Obj) -> str:
    return str(((found.get("status") or {}).get("recovery") or {}).get("token") or "")


def _set_recovery(stage: Stage, **recovery: str) -> None:
    stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": recovery or None}})


def _withdraw(stage: Stage) -> None:
    stage.database.guard.agreed.clear()
    _set_recovery(stage)


def _release(stage: Stage) -> None:
    """Release the data that the last confirmed recovery kept."""
    [found] = stage.find()
    if token := (found["spec"].get("recovery") or {}).get("confirm"):
        stage.database.guard.released = True
        _set_recovery(stage, release=token, confirm=token)


def leads(number: int) -> ScenarioStep:
    def act(etcd: FakeEtcd) -> None:
        for cluster in etcd.clusters.values():
            for process in etcd.members_of(cluster):
                disk = etcd.disks[process.command.disk]
                if process.pod == member(number) and disk.member in etcd.voting(cluster):
                    cluster.leader, cluster.term = disk.member, cluster.term + 1

    return to_etcd(f"{member(number)} leads", act)


def _recover_all(etcd: FakeEtcd) -> None:
    etcd.cut_off = False
    etcd.failing.clear()
    etcd.lagging.clear()
    etcd.unreachable.clear()
    _mounted(etcd)
    for process in list(etcd.processes.values()):
        etcd.hang(process.pod, hangs=False)


CUT_OFF = to_etcd("the operator reaches no member", lambda etcd: setattr(etcd, "cut_off", True))
REACHES = to_etcd("the operator reaches members", lambda etcd: setattr(etcd, "cut_off", False))
RECOVERED = to_etcd("nothing fails", _recover_all)
MOUNTED = to_etcd("all disks are mounted", _mounted)
CONFIRMED = one("the offered recovery is confirmed", _confirm)
WITHDRAWN = one("the confirmation is withdrawn", _withdraw)
RELEASED = one("the kept data is released", _release)
MONTHS = later(300 * 86400.0)
FULL = to_etcd("the quota is exhausted", lambda etcd: etcd.fill() if etcd.running else None)
STATUS_LOST = one("the status is lost", status_lost)


def event_lists(*, keep_quorum: bool) -> st.SearchStrategy[list[Event]]:
    """Generate a course of events.

    Args:
        keep_quorum: whether a quorum never loses its disks.
    """
    number = st.integers(0, MAX_SIZE - 1)
    steps = st.one_of(
        st.builds(cluster_spec, st.integers(1, MAX_SIZE), st.sampled_from([OLD, MIDDLE, NEW])),
        number.map(pod_deleted),
        number.map(lambda at: member_lost(at, keep_quorum=keep_quorum)),
        number.map(failing),
        number.map(hangs),
        number.map(lags),
        number.map(leads),
        number.map(unreachable),
        st.sampled_from([CUT_OFF, REACHES, RECOVERED, RECOVERED, FULL, STATUS_LOST, later(60), later(700), None]),
    )
    if not keep_quorum:  # losses, and what users decide
        steps = st.one_of(
            steps,
            number.map(disk_away),
            st.frozensets(number, min_size=2).map(majority_away),
            st.sampled_from([MOUNTED, CONFIRMED, CONFIRMED, WITHDRAWN, RELEASED, MONTHS]),
        )
    turns = st.integers(0, MAX_TURNS)
    return st.lists(
        st.builds(lambda step, turns: Event(step.text if step else "the operator crashes", step, turns), steps, turns),
        max_size=12,
    )


async def course(size: int, version: str, events: list[Event]) -> ScenarioRun:
    """Run the events, then end all failures and let time pass until nothing changes."""
    play = ScenarioRun(World(ETCD))
    await play.step(ScenarioStep("created", cluster_spec(size, version).act))
    for event in events:
        if event.step is None:
            play.end()
            play.begin()
        else:
            event.step.act(play.stage)
            play.resync()
        await play._turn(event.turns)
    RECOVERED.act(play.stage)
    for _ in range(6):
        play.stage.database.written(ENTRIES_PER_SNAPSHOT + 1)
        later(700).act(play.stage)
        play.resync()
        await play.settle()
    return play


def ready_condition(play: ScenarioRun) -> Obj:
    [found] = play.stage.find()
    return accessors.condition(found, conditions.READY)


async def require_desired_state(play: ScenarioRun) -> None:
    """Require the desired state, and that the operator writes nothing more."""
    [found] = play.stage.find()
    etcd: FakeEtcd = play.stage.database
    cluster = etcd.cluster()
    size = found["spec"]["size"]
    assert not any(record.learner for record in cluster.now)
    assert len(cluster.now) == len(etcd.voting(cluster)) == len(play.stage.find(POD)) == size
    assert {process.command.version.series for process in etcd.running} == {cluster.version}
    assert len([disk for disk in etcd.disks.values() if disk.member]) == size, "data of former members is deleted"
    before = play.world.server.log.all_writes.copy()
    play.resync()
    await play.settle()
    play.end()
    play.begin()
    await play.settle()
    assert play.world.server.log.all_writes == before


def run_with_a_quorum(size: int, version: str, events: list[Event]) -> None:
    async def run() -> None:
        play = await course(size, version, events)
        condition = ready_condition(play)
        if condition["reason"] == "UpgradeRefused":  # the last spec was a downgrade or skipped a minor version
            return
        assert condition["reason"] == "Ready", condition["message"]
        await require_desired_state(play)

    asyncio.run(run())


def run_with_any_failure(size: int, version: str, events: list[Event]) -> None:
    async def run() -> None:
        play = await course(size, version, events)
        condition = ready_condition(play)
        assert condition["reason"] in MANUAL_REASONS | {"Ready"}, f"{condition['reason']}: {condition['message']}"
        if condition["reason"] == "Ready":
            await require_desired_state(play)

    asyncio.run(run())


SIZES, VERSIONS = st.integers(1, MAX_SIZE), st.sampled_from([OLD, MIDDLE, NEW])


def profile(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.nightly
@profile(20)
@given(SIZES, VERSIONS, event_lists(keep_quorum=True))
def test_cluster_recovers_while_a_quorum_keeps_its_disks(size: int, version: str, events: list[Event]) -> None:
    run_with_a_quorum(size, version, events)


@pytest.mark.nightly
@profile(20)
@given(SIZES, VERSIONS, event_lists(keep_quorum=False))
def test_operator_loses_no_write_after_any_failure(size: int, version: str, events: list[Event]) -> None:
    run_with_any_failure(size, version, events)


@pytest.mark.weekly
@profile(400)
@given(SIZES, VERSIONS, event_lists(keep_quorum=True))
def test_cluster_recovers_while_a_quorum_keeps_its_disks_long(size: int, version: str, events: list[Event]) -> None:
    run_with_a_quorum(size, version, events)


@pytest.mark.weekly
@profile(400)
@given(SIZES, VERSIONS, event_lists(keep_quorum=False))
def test_operator_loses_no_write_after_any_failure_long(size: int, version: str, events: list[Event]) -> None:
    run_with_any_failure(size, version, events)
