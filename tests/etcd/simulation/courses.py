"""Random courses: specs, failures, losses, consents, months, backups and other tenants in any order.

A course is drawn from its number. It begins with a cluster that is Ready, and ends when all faults are over. Three
judges watch it: the guard (`guard`) every operation and every acknowledged write, `judge_status` what the resource
reports, `judge_backups` what its EtcdBackups report. At the end the cluster has its desired state, or the status names
what a user must decide; then nothing is written.

    python -m tests.etcd.simulation.courses --first 1 --count 1000

runs courses one after the other, for hours if need be, and prints those that fail.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from operators.etcd.api import backup as backup_api
from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT
from operators.etcd.objects.names import CLIENTS, SERVES
from operators.etcd.operator import backups, clusters
from shared.kubernetes import accessors
from shared.kubernetes.errors import AlreadyExists
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.kubernetes.secret_provenance import ADOPT
from shared.status import conditions
from simulator.etcd.raft import Cluster, quorum
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.outage import status_lost
from tests.harness.reference_run import panics
from tests.harness.scenario import ScenarioStep, Stage, apply, create, edit, if_present, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support import course_runner
from tests.support.etcd.scenarios import ETCD, MIDDLE, NAME, NEW, OLD, OPTIONS, TLS, member
from tests.support.plays import issued_with_new_keys

STEPS = 12
"""Events of a course."""

MAX_SIZE = 5
MAX_TURNS = 12
"""Longest pause after an event, in turns of operator and cluster, unless they settle."""

PASSES = 3
"""Times that both controllers settle: a snapshot that fails is attempted again and again until the next one is due."""

DAY = 86400.0

UNDECIDED = frozenset({"QuorumLost", "DataLost", "UpgradeRefused", "VolumeInTheWay", "TokenRefused", "FormerDataKept"})
"""Reasons of Ready while a user must decide."""

SUBJECT = replace(ETCD, controller=lambda etcd: replace(clusters(OPTIONS, etcd.connect), issue=issued_with_new_keys))
"""The operator, with certificates that are valid from the time of the world on."""

SNAPSHOTS = "snapshots"
"""Claim to which snapshots are written."""

DAILY: Obj = {
    "backup": {"schedule": "0 0 * * *", "retention": 2, "destination": {"volume": {"claimName": SNAPSHOTS}}},
}

FAILURES = (
    *("resize", "resize", "delete", "lose", "fail", "hang", "lag", "lead", "hide"),
    *("cut_off", "reach", "recover", "recover", "fill", "lose_status", "pause", "crash"),
)
LOSSES = (
    *("unmount", "unmount", "unmount_many", "mount", "lose", "lose"),
    *("confirm", "confirm", "confirm", "withdraw", "release", "months"),
)
AGES = ("age", "age", "age", "take_claim", "give_claim", "give_claim")
TENANTS = ("squat", "squat", "squat", "lag", "resize")
SLEEPS = (*FAILURES, *LOSSES, *("hibernate", "hibernate", "wake", "wake") * 5)
DRAWN = {
    "failures": FAILURES,
    "losses": (*FAILURES, *LOSSES),
    "ages": (*FAILURES, *AGES),
    "tenants": (*FAILURES, *TENANTS, *LOSSES),
    "everything": (*FAILURES, *LOSSES, *AGES, *TENANTS),
}
"""Themes from which the number of a course draws one. It would draw another one if there were more."""

THEMES = {**DRAWN, "hibernation": SLEEPS}


@dataclass(frozen=True)
class Kind:
    """Properties of a cluster that never change.

    Attributes:
        size, version: of the cluster at the beginning.
        tls: whether it has certificates of the operator.
        has_backups: whether a snapshot is taken every day.
    """

    size: int
    version: str
    tls: bool
    has_backups: bool

    def __str__(self) -> str:
        return f"{self.size} of {self.version}{', TLS' * self.tls}{', backups' * self.has_backups}"

    def spec(self, size: int, version: str) -> ScenarioStep:
        """Apply a spec."""
        return apply(
            NAME, size=size, version=version, **(TLS if self.tls else {}), **(DAILY if self.has_backups else {})
        )


_begun: dict[Kind, World] = {}


async def world_of(kind: Kind) -> World:
    """Return a world in which the cluster is Ready; built once."""
    if kind not in _begun:
        _begun[kind] = await build(kind, World(SUBJECT))
    return _begun[kind].fork()


async def build(kind: Kind, world: World) -> World:
    """Create the cluster in a world, and let it become Ready."""
    play = ScenarioRun(world)
    await play.step(CLAIMED)
    await play.step(kind.spec(kind.size, kind.version))
    play.end()
    return world


def pod_deleted(number: int) -> ScenarioStep:
    return if_present(
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

    return if_present(f"{member(number)} is lost", act)


def _survives(stage: Stage, volume: str) -> bool:
    """Whether every cluster keeps a quorum of complete disks without this volume."""
    etcd: FakeEtcd = stage.database
    claims = {
        claim["metadata"]["uid"]
        for claim in stage.find(PERSISTENT_VOLUME_CLAIM)
        if not claim["metadata"].get("deletionTimestamp") and claim["metadata"]["name"] != volume
    }
    for cluster in etcd.clusters.values():
        if cluster.foreign:
            continue
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
    return if_present(text, lambda stage: act(stage.database))


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
    [found] = stage.find()
    if recovery := (found.get("status") or {}).get("recovery"):
        _set_recovery(stage, confirm=recovery["token"])
        stage.database.guard.agree(stage.database, recovery)


def _set_recovery(stage: Stage, **recovery: str | None) -> None:
    stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": recovery or None}})


def _withdraw(stage: Stage) -> None:
    stage.database.guard.agreed.clear()
    _set_recovery(stage)


def released(*, keeps_confirmation: bool) -> ScenarioStep:
    """Release the data that the last confirmed recovery kept.

    Args:
        keeps_confirmation: whether the confirmation stays in the spec.
    """

    def act(stage: Stage) -> None:
        [found] = stage.find()
        if token := (found["spec"].get("recovery") or {}).get("confirm"):
            stage.database.guard.released.add(token)
            if not keeps_confirmation:
                stage.database.guard.agreed.clear()
            _set_recovery(stage, release=token, confirm=token if keeps_confirmation else None)

    return if_present(f"the kept data is released{'' if keeps_confirmation else ', without a confirmation'}", act)


def leads(number: int) -> ScenarioStep:
    def act(etcd: FakeEtcd) -> None:
        for cluster in etcd.clusters.values():
            for process in etcd.members_of(cluster):
                disk = etcd.disks[process.command.disk]
                if process.pod == member(number) and disk.member in etcd.voting(cluster):
                    cluster.leader, cluster.term = disk.member, cluster.term + 1

    return to_etcd(f"{member(number)} leads", act)


def squatted(number: int) -> ScenarioStep:
    return to_etcd(f"another tenant gets the address of {member(number)}", lambda etcd: etcd.squat(member(number)))


def _fill(etcd: FakeEtcd) -> None:
    if any(not etcd.clusters[etcd.disks[process.command.disk].cluster].foreign for process in etcd.running):
        etcd.fill()


def _take_claim(stage: Stage) -> None:
    stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, SNAPSHOTS)


def _give_claim(stage: Stage) -> None:
    with suppress(AlreadyExists):
        CLAIMED.act(stage)


def _recover_all(etcd: FakeEtcd) -> None:
    etcd.cut_off = False
    etcd.failing.clear()
    etcd.lagging.clear()
    etcd.unreachable.clear()
    etcd.end_squatting()
    _mounted(etcd)
    for process in list(etcd.processes.values()):
        etcd.hang(process.pod, hangs=False)


CUT_OFF = to_etcd("the operator reaches no member", lambda etcd: setattr(etcd, "cut_off", True))
REACHES = to_etcd("the operator reaches members", lambda etcd: setattr(etcd, "cut_off", False))
RECOVERED = to_etcd("nothing fails", _recover_all)
MOUNTED = to_etcd("all disks are mounted", _mounted)
CONFIRMED = if_present("the offered recovery is confirmed", _confirm)
WITHDRAWN = if_present("the confirmation is withdrawn", _withdraw)
FULL = to_etcd("the quota is exhausted", _fill)
STATUS_LOST = if_present("the status is lost", status_lost)
CLAIM_TAKEN = if_present("the volume for snapshots is deleted", _take_claim)
CLAIM_GIVEN = if_present("the volume for snapshots is created", _give_claim)


HIBERNATED = edit(None, {"spec": {"hibernate": True}}, NAME)
WOKEN = edit(None, {"spec": {"hibernate": False}}, NAME)

CLAIMED = create(
    PERSISTENT_VOLUME_CLAIM,
    SNAPSHOTS,
    spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
)


class Course:
    """A random course of events.

    Attributes:
        text: the events so far.
        steps: number of events and pauses.
    """

    def __init__(self, number: int, theme: str = "") -> None:
        self.number = number
        self.chance = chance = Random(number)
        self.theme = theme or chance.choice(tuple(DRAWN))
        versions, mixed = (OLD, MIDDLE, NEW), self.theme == "everything" and chance.random() < 0.5
        has_tls = self.theme == "ages" or mixed
        self.kind = Kind(chance.randint(1, MAX_SIZE), chance.choice(versions), has_tls, has_tls)
        self.text: list[str] = []
        self.steps = 0
        self.panics = panics()

    # The world.

    @property
    def etcd(self) -> FakeEtcd:
        found: FakeEtcd = self.play.world.database  # type: ignore[assignment]
        return found

    @property
    def mine(self) -> Obj:
        [found] = self.play.stage.find()
        return found

    @property
    def ready(self) -> Obj:
        return accessors.condition(self.mine, conditions.READY)

    @property
    def result(self) -> str:
        return f"{self.theme}: {self.ready['reason']}"

    @property
    def days(self) -> float:
        return (self.play.world.clock.now - self.begun) / timedelta(days=1)

    @property
    def snapshots(self) -> list[Obj]:
        """The EtcdBackups."""
        return self.play.stage.find(backup_api.API.kind)

    async def begin(self, world: World | None = None) -> None:
        """Begin with a cluster that is Ready, in a world of its own or in a given one."""
        self.play = ScenarioRun(await (build(self.kind, world) if world else world_of(self.kind)))
        self.begun = self.play.world.clock.now
        self._start()
        await self.settle()
        assert self.ready["reason"] == "Ready", self.ready

    def _start(self) -> None:
        """Start a process of the operator, which has two controllers."""
        self.play.begin()
        controller = backups(OPTIONS, self.etcd.connect)
        self.backups = self.play.world.harness(controller, 100.0)  # longer than the first backoff between two attempts

    async def go(self, step: ScenarioStep, turns: int | None = None) -> None:
        """Carry out a step, and let the world settle, or let some turns pass."""
        self.steps += 1
        self.text.append(f"{step}{'' if turns is None else f' ({turns} turns)'}")
        step.act(self.play.stage)
        self.play.resync()
        if turns is None:
            await self.settle()
        else:
            await self.play._turn(turns)

    async def settle(self) -> None:
        """Let both controllers settle, and judge what they report."""
        world = self.play.world
        self.etcd.settle("time passes")  # members renew their connections with the certificates of now
        for _ in range(PASSES if self.kind.has_backups else 1):
            await self.play.settle()
            await self.backups.settle()
            world.require_safe()
        assert panics() == self.panics, "a reconcile raised an unexpected exception"
        self.play.resync()
        await self.play.settle()
        judge_status(self.etcd, self.mine)
        schedule = accessors.status_of(self.mine).get("backup") or {}
        judge_backups(self.etcd, self.snapshots, schedule.get("lastName"))

    async def event(self) -> None:
        await getattr(self, f"_{self.chance.choice(THEMES[self.theme])}")()

    async def pass_time(self, seconds: float) -> None:
        """Let days pass at once."""
        await self.go(later(seconds))

    async def _one(self, step: ScenarioStep) -> None:
        """Carry out a step in the middle of others, or wait for its end."""
        chance = self.chance
        await self.go(step, None if chance.random() < 0.3 else chance.randint(0, MAX_TURNS))

    @property
    def _some(self) -> int:
        return self.chance.randrange(MAX_SIZE)

    # Failures.

    async def _resize(self) -> None:
        version = self.chance.choice((OLD, MIDDLE, NEW))
        await self._one(self.kind.spec(self.chance.randint(1, MAX_SIZE), version))

    async def _hibernate(self) -> None:
        await self._one(HIBERNATED)

    async def _wake(self) -> None:
        await self._one(WOKEN)

    async def _delete(self) -> None:
        await self._one(pod_deleted(self._some))

    async def _lose(self) -> None:
        await self._one(member_lost(self._some, keep_quorum=self.theme in ("failures", "ages")))

    async def _fail(self) -> None:
        await self._one(failing(self._some))

    async def _hang(self) -> None:
        await self._one(hangs(self._some))

    async def _lag(self) -> None:
        await self._one(lags(self._some))

    async def _lead(self) -> None:
        await self._one(leads(self._some))

    async def _hide(self) -> None:
        await self._one(unreachable(self._some))

    async def _cut_off(self) -> None:
        await self._one(CUT_OFF)

    async def _reach(self) -> None:
        await self._one(REACHES)

    async def _recover(self) -> None:
        await self._one(RECOVERED)

    async def _fill(self) -> None:
        await self._one(FULL)

    async def _lose_status(self) -> None:
        await self._one(STATUS_LOST)

    async def _pause(self) -> None:
        await self._one(later(self.chance.choice((60, 700))))

    async def _crash(self) -> None:
        self.text.append("the operator crashes")
        self.play.end()
        self.backups.stop()
        self._start()
        await self.play._turn(self.chance.randint(0, MAX_TURNS))

    # Losses, and what users decide.

    async def _unmount(self) -> None:
        await self._one(disk_away(self._some))

    async def _unmount_many(self) -> None:
        numbers = self.chance.sample(range(MAX_SIZE), self.chance.randint(2, MAX_SIZE))
        await self._one(majority_away(frozenset(numbers)))

    async def _mount(self) -> None:
        await self._one(MOUNTED)

    async def _confirm(self) -> None:
        await self._one(CONFIRMED)

    async def _withdraw(self) -> None:
        await self._one(WITHDRAWN)

    async def _release(self) -> None:
        await self._one(released(keeps_confirmation=self.chance.random() < 0.5))

    async def _months(self) -> None:
        await (self._age() if self.kind.tls else self._one(later(300 * DAY)))

    # Time, certificates and snapshots.

    async def _age(self) -> None:
        """Let up to a year pass while the operator runs: certificates are renewed, and snapshots are taken."""
        await self._adopt()
        for _ in range(self.chance.choice((1, 4, 18))):
            await self.pass_time(20 * DAY)

    async def _adopt(self) -> None:
        """Let the user adopt the Secrets whose origin a lost status no longer proves, as the message advises."""
        stalled = accessors.condition(self.mine, conditions.STALLED)  # has the whole command
        if advised := _ADVICE.search(stalled.get("message", "")):
            note = {"metadata": {"annotations": {ADOPT: advised[1]}}}
            await self.go(edit(None, note, NAME))

    async def _take_claim(self) -> None:
        await self._one(CLAIM_TAKEN)

    async def _give_claim(self) -> None:
        await self._one(CLAIM_GIVEN)

    # Other tenants.

    async def _squat(self) -> None:
        await self._one(squatted(self._some))

    # The end.

    async def end(self) -> None:
        """End all faults, and let time pass until nothing changes."""
        await self.go(RECOVERED)
        if self.mine["spec"].get("hibernate"):
            await self.go(WOKEN)
        await self.go(CLAIM_GIVEN)
        await self._adopt()
        for _ in range(6):
            self.etcd.written(ENTRIES_PER_SNAPSHOT + 1)
            await self.go(later(700))
        reason = self.ready["reason"]
        allowed = {"UpgradeRefused"} if self.theme in ("failures", "ages") else UNDECIDED
        assert reason in allowed | {"Ready"}, self.ready
        if reason != "Ready":
            return
        if self.kind.has_backups:
            await self._require_snapshots()
        self._require_converged()
        await self._require_still()

    async def _require_snapshots(self) -> None:
        """Require that a snapshot is taken every day."""
        for _ in range(2):
            await self.go(later(DAY))
        taken = [found["status"]["completedAt"] for found in self.snapshots if _is_complete(found)]
        since = self.play.world.clock.now - timedelta(days=1.1)
        assert any(datetime.fromisoformat(each) > since for each in taken), f"the last snapshots are of {taken[-2:]}"

    def _require_converged(self) -> None:
        etcd, cluster = self.etcd, self.etcd.cluster()
        size = self.mine["spec"]["size"]
        assert not any(record.learner for record in cluster.now)
        pods = [pod["metadata"]["name"] for pod in self.play.stage.find(POD)]
        members = [name for name in pods if not (self.kind.has_backups and name.endswith("-snapshot"))]
        assert len(cluster.now) == len(etcd.voting(cluster)) == size
        assert len(members) == size, f"pods at the end: {members}"
        assert {process.command.version.series for process in etcd.running} == {cluster.version}
        assert len([disk for disk in etcd.disks.values() if disk.member]) == size, "data of former members is deleted"

    async def _require_still(self) -> None:
        before = self.play.world.server.log.all_writes.copy()
        self.play.resync()
        await self.play.settle()
        self.play.end()
        self.play.begin()
        await self.play.settle()
        written = self.play.world.server.log.all_writes[len(before) :]
        assert not written, f"the settled operator writes: {written}"


_ADVICE = re.compile(rf"{re.escape(ADOPT)}=([\w,-]+)")
"""The message that advises to adopt Secrets, with their UIDs."""


def own_cluster(etcd: FakeEtcd, found: Obj) -> Cluster | None:
    """Return the cluster whose id the status has."""
    recorded = (found.get("status") or {}).get("clusterID")
    return etcd.clusters.get(int(recorded, 16)) if recorded else None


def judge_status(etcd: FakeEtcd, found: Obj) -> None:
    """Judge a status as data: each value must be true of the members.

    Raises:
        AssertionError: a value is not true.
    """
    status = found.get("status") or {}
    known = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    cluster = own_cluster(etcd, found)
    assert cluster is not None or not status.get("clusterID"), f"clusterID {status['clusterID']} is of no cluster"
    assert cluster is None or not cluster.foreign, f"clusterID {status['clusterID']} is of another tenant's cluster"
    if known.get("Available") == "True":
        assert cluster is not None, "Available is True, though no cluster is recorded"
        assert etcd.has_quorum(cluster), "Available is True, though the cluster has no quorum"
        pods = [pod for _, pod in etcd.objects(POD) if accessors.label(pod, SERVES) == CLIENTS]
        ready = [pod for pod in pods if accessors.condition(pod, conditions.READY).get("status") == "True"]
        assert ready, "Available is True, though the Service has no endpoint"
    if known.get("Ready") == "True":
        assert cluster is not None, "Ready is True, though no cluster is recorded"
        assert not etcd.cut_off, "Ready is True, though the operator reaches no member"
        voting = len(etcd.voting(cluster))
        assert voting == found["spec"]["size"], f"Ready is True with {voting} voters that keep up"


def judge_backups(etcd: FakeEtcd, found: list[Obj], last_name: str | None = None) -> None:
    """Judge the EtcdBackups: a complete one has a snapshot of this revision, and only a current one counts.

    Args:
        last_name: status.backup.lastName of the cluster.

    Raises:
        AssertionError: one claims a snapshot that is not there.
    """
    for backup in found:
        if not _is_complete(backup):
            continue
        status, name = backup["status"], backup["metadata"]["name"]
        stored = etcd.snapshots.get(status["file"])
        assert stored is not None, f"{name} is complete, though {status['file']} is not stored"
        assert stored == status["revision"], f"{name} has revision {status['revision']}, its file {stored}"
        is_stale = status["file"] in etcd.stale_snapshots
        assert status["current"] != is_stale, f"{name} reports {status['current']}, and is {is_stale=}"
        assert not is_stale or name != last_name, f"{name} counts as the last snapshot, and is stale"


def _is_complete(backup: Obj) -> bool:
    return bool((backup.get("status") or {}).get("phase") == backup_api.COMPLETE)


async def check(number: int, theme: str = "") -> Course:
    """Run a course to its end, as `course_runner.follow` does."""
    course = Course(number, theme)
    await course_runner.follow(course, number, STEPS)
    return course


if __name__ == "__main__":
    sys.exit(course_runner.run(check, THEMES, __doc__))
