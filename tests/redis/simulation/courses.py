"""Random courses: changes, faults, losses, consents and other tenants in any order, judged after each step.

A course is drawn from its number. It begins with a cluster that is Ready, and ends when all faults are over and users
have decided what the status requires. The guard (`guard`) watches every operation and every key, and judges (`judges`)
what the operator reports whenever it has settled.

    python -m tests.redis.simulation.courses --first 1 --count 1000

runs courses one after the other, for hours if need be, and prints those that fail.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes import accessors
from shared.kubernetes.errors import AlreadyExists, NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.status import conditions
from simulator.redis import atomic_migration
from simulator.redis.client import KEYS, Entry
from simulator.redis.node import slot_of
from simulator.redis.process import Process
from tests.harness.reference_run import panics
from tests.harness.scenario import ScenarioStep, Stage, apply, create, later, limit_turns
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.losses import (
    DAY,
    ON_HOSTS,
    SUBJECT,
    destroyed,
    hidden,
    hosts,
    moved,
    shard_of,
    withdrawn,
)
from tests.redis.simulation.moving_slots import redis_of
from tests.support import course_runner
from tests.support.redis.scenarios import NAME, NEW, OLD, OTHER, recovery_confirmed, to_redis

STEPS = 10
"""Events of a course."""

MAX_PODS = 9

PERSISTENCE: dict[str, Obj] = {
    "log": {},
    "nothing": {"appendonly": "no", "save": ""},
    "snapshots": {"appendonly": "no", "save": "3600 1"},
}
"""Settings by what a node keeps on its disk."""

UNDECIDED = frozenset(
    {"SlotsLost", "SlotsUnserved", "DataAway", "TokenRefused", "NodeNotEmpty", "IdentityLost", "RedisUnreachable"}
)
"""Reasons of Ready while a user must decide, or data is away."""

FOREIGN = b"a key of another tenant"

LOSSES = (
    *("lose", "lose", "lose", "put_back", "put_back", "unmount", "mount"),
    *("confirm", "confirm", "confirm", "withdraw", "repeat"),
    *("hide", "hide", "show", "go_down", "come_up"),
    *("pause", "pause", "months"),
)
CHANGES = (
    *("resize", "resize", "resize", "upgrade", "persist", "delete_by_hand", "keep"),
    *("interrupt", "interrupt", "interrupt", "interrupt"),
    *("restart_all", "scale_by_hand", "fail_over", "open_slot", "migrate_slots"),
    *("kill", "lose", "confirm", "hide", "show", "go_down", "come_up", "pause", "pause"),
)
TENANTS = (
    *("swap", "swap", "squat", "squat", "lead_astray", "lead_astray", "hold_claim", "copy_volume", "take_claim"),
    *("resize", "resize", "interrupt", "restart_all", "kill", "hang", "recover", "cut"),
    *("lose", "lose", "confirm", "hide", "show", "go_down", "come_up", "pause", "pause"),
)
EVERYTHING = (*LOSSES, *CHANGES, *TENANTS)
DRAWN = {"losses": LOSSES, "changes": CHANGES, "tenants": TENANTS, "everything": EVERYTHING}
"""Themes from which the number of a course draws one. It would draw another one if there were more."""

DRAINS = (*EVERYTHING, *("drain",) * len(EVERYTHING))

SLEEPS = (*EVERYTHING, *("hibernate", "wake") * (len(EVERYTHING) // 3))
"""Events of the theme `hibernation`: two of five stop all pods, or let them return."""

VARIED = (*EVERYTHING, *("migrate_slots",) * 5, *("save", "persist", "fail_over") * 2)
THEMES = {**DRAWN, "drains": DRAINS, "variants": VARIED, "hibernation": SLEEPS}

VERSIONS = {"redis": (OLD, NEW), "valkey": ("9.0.1", "9.0.1")}
"""Version of a cluster at its beginning and after an upgrade, by engine."""

VARIANTS = (
    ("redis", ("8.4.6", "8.6.7"), 1),
    ("redis", ("8.2.9", "8.4.6"), 1),
    ("valkey", ("9.0.1", "9.1.0"), 16),
)
"""Engine, these versions, and databases of the clusters of the theme `variants`."""


@dataclass(frozen=True)
class Kind:
    """Properties of a cluster that never change.

    Attributes:
        storage: where the data is: directories of the Kubernetes nodes (`hosts`), volumes, or the pods.
        copies: replicas of each primary.
        tenants: whether another tenant has a RedisCluster next to it, with `foreign_copies` replicas of each primary.
        versions: version at the beginning, and after an upgrade.
        databases: databases of a node. Admission refuses several: nodes have had them since an earlier release.
        snapshots: whether nodes keep snapshots at the beginning, and no log of writes.
    """

    storage: str
    copies: int
    engine: str
    tenants: bool
    foreign_copies: int = 0
    versions: tuple[str, str] = (OLD, NEW)
    databases: int = 1
    snapshots: bool = False

    @property
    def least(self) -> int:
        """Pods of the smallest cluster."""
        return 3 * (1 + self.copies)

    def __str__(self) -> str:
        return ", ".join(
            [
                f"{self.engine} {self.versions[0]} on {self.storage}, {self.copies} copies",
                *([f"tenants with {self.foreign_copies} copies"] if self.tenants else ()),
                *([f"{self.databases} databases"] if self.databases > 1 else ()),
                *(["snapshots"] if self.snapshots else ()),
            ]
        )


@dataclass
class Desired:
    """The spec, as the user has it now."""

    kind: Kind
    replicas: int
    is_upgraded: bool = False
    persistence: str = ""
    on_delete: bool = False
    retains: bool = True
    keeps: bool = False
    hibernates: bool = False

    def __post_init__(self) -> None:
        self.persistence = self.persistence or ("snapshots" if self.kind.snapshots else "log")

    @property
    def version(self) -> str:
        return self.kind.versions[self.is_upgraded]

    def step(self) -> ScenarioStep:
        """Apply the spec."""
        spec: dict[str, Any] = {"replicasPerMaster": self.kind.copies}
        pod: Obj = {}
        if self.kind.storage == "hosts":
            pod |= ON_HOSTS["pod"][0]
        elif self.kind.storage == "volumes":
            spec["storage"] = {"size": "1Gi"} if self.retains else {"size": "1Gi", "retain": False}
        if config := PERSISTENCE[self.persistence]:
            spec["config"] = config
        if self.on_delete:
            pod |= {"updateStrategy": {"type": "OnDelete"}}
        if pod:
            spec["pod"] = [pod]
        if self.keeps:
            spec["finalizers"] = ""
        if self.hibernates and self.kind.storage == "volumes" and self.persistence != "nothing":  # or it is refused
            spec["hibernate"] = True
        if self.kind.engine == "valkey":
            spec["repository"] = "valkey/valkey"
        return apply(NAME, replicas=self.replicas, version=self.version, **spec)


_begun: dict[Kind, World] = {}


async def world_of(kind: Kind) -> World:
    """Return a world in which the cluster is Ready and clients have written; built once."""
    if kind not in _begun:
        _begun[kind] = await build(kind, World(SUBJECT))
    return _begun[kind].fork()


async def build(kind: Kind, world: World) -> World:
    """Create the cluster in a world, and let it become Ready and clients write."""
    play = ScenarioRun(world)
    redis = redis_of(world)
    redis.tidy, redis.databases = True, kind.databases
    await play.step(Desired(kind, kind.least).step())
    if kind.databases > 1:
        redis.client.add(tuple(b"\0\3%s" % key for key in KEYS), ())
    await play.wait(5, times=2)
    if kind.tenants:
        copies = kind.foreign_copies
        spec: Obj = {"replicasPerMaster": copies, "storage": {"size": "1Gi"}}
        await play.step(apply(OTHER, replicas=3 * (1 + copies), version=OLD, **spec))
        for process in redis.running:
            if process.cluster == OTHER and process.node.me.slots:
                process.node.keys[FOREIGN] = Entry(0, text=process.node.id.encode())
                process.node.offset += 1
    await play.settle()
    play.end()
    return play.world


class Course:
    """A random course of events.

    Attributes:
        text: the events so far.
        steps: number of steps, after each of which the judges looked.
    """

    def __init__(self, number: int, theme: str = "") -> None:
        self.number = number
        self.chance = chance = Random(number)
        self.theme = theme or chance.choice(tuple(DRAWN))
        storage = chance.choice(("hosts", "hosts", "volumes", "pods") if self.theme == "losses" else _STORAGE)
        engine = "redis" if self.theme == "losses" else chance.choice(("redis", "redis", "valkey"))
        tenants = self.theme in ("tenants", "everything")
        self.kind = Kind(storage, chance.choice((0, 1, 1, 1)), engine, tenants, versions=VERSIONS[engine])
        if self.theme == "hibernation":
            self.kind = replace(self.kind, storage="volumes")
        if self.theme == "variants":
            engine, versions, databases = chance.choice(VARIANTS)
            tenants, saves = chance.random() < 0.5, chance.random() < 0.5
            self.kind = Kind(storage, self.kind.copies, engine, tenants, int(tenants), versions, databases, saves)
        self.desired = Desired(self.kind, self.kind.least)
        self.text: list[str] = []
        self.steps = 0
        self.home: dict[str, str] = {}
        self.tokens: list[str] = []
        self.opened: set[int] = set()
        self.panics = panics()

    # The world.

    @property
    def redis(self) -> FakeRedis:
        return redis_of(self.play.world)

    @property
    def mine(self) -> Obj:
        return next(found for found in self.play.stage.find() if found["metadata"]["name"] == NAME)

    @property
    def ready(self) -> Obj:
        return accessors.condition(self.mine, conditions.READY)

    @property
    def servers(self) -> list[Process]:
        return [process for process in self.redis.running if process.cluster == NAME]

    @property
    def result(self) -> str:
        return f"{self.theme}: {self.ready['reason']}"

    @property
    def days(self) -> float:
        return (self.play.world.clock.now - self.begun) / timedelta(days=1)

    @property
    def pods(self) -> list[str]:
        """Return the pods of the cluster that exist."""
        return [name for name in hosts(self.play.stage) if name.startswith(f"{NAME}-")]

    @property
    def primaries(self) -> list[Process]:
        return [process for process in self.servers if process.node.me.slots and not process.node.me.primary]

    async def begin(self, world: World | None = None) -> None:
        """Begin with a cluster that is Ready, in a world of its own or in a given one."""
        self.play = ScenarioRun(await (build(self.kind, world) if world else world_of(self.kind)))
        self.begun = self.play.world.clock.now
        self.play.begin()
        await self.go(later(1))
        assert self.ready["reason"] == "Ready", self.ready
        self.home = hosts(self.play.stage)

    async def go(self, *steps: ScenarioStep) -> None:
        """Carry out steps, and judge the end of each that settles."""
        for step in steps:
            self.steps += 1
            self.text.append(str(step) if step.turns is None else f"{step} ({step.turns} turns)")
            await self.play.step(replace(step, unobserved=step.turns is None))
            if step.turns is None:
                for pod, host in hosts(self.play.stage).items():
                    self.home.setdefault(pod, host)
                assert panics() == self.panics, "a reconcile raised an unexpected exception"

    async def event(self) -> None:
        await getattr(self, f"_{self.chance.choice(THEMES[self.theme])}")()

    def some(self) -> list[str]:
        """Return the pods of a shard, or any pods."""
        with suppress(ZeroDivisionError):
            if self.chance.random() < 0.7:
                return [pod for pod in shard_of(self.redis, self.chance.randrange(3)) if pod in self.pods]
        pods = self.pods
        return self.chance.sample(pods, min(len(pods), self.chance.choice((1, 1, 2, len(pods)))))

    # Losses, and what users decide.

    async def _lose(self) -> None:
        pods = self.some()
        if self.kind.storage == "hosts" and pods:
            await self.go(moved(pods))
        elif pods:
            await self.go(*destroyed(pods))

    async def _put_back(self) -> None:
        if self.kind.storage == "hosts":
            for pod, host in hosts(self.play.stage).items():
                if pod.startswith(f"{NAME}-") and host != self.home.get(pod, host):
                    await self.go(moved([pod], [self.home[pod]]))

    async def _confirm(self) -> None:
        if offered := (self.mine.get("status") or {}).get("recovery"):
            self.tokens.append(offered["token"])
            await self.go(of_mine(recovery_confirmed()))

    async def _withdraw(self) -> None:
        await self.go(withdrawn())

    async def _repeat(self) -> None:
        """Apply the manifest of an earlier recovery again, as GitOps does."""
        offered = (self.mine["status"].get("recovery") or {}).get("token")
        if tokens := [token for token in self.tokens if token != offered]:
            token = self.chance.choice(tokens)
            await self.go(withdrawn())
            patch = {"spec": {"recovery": {"confirm": token}}}
            act: Callable[[Stage], object] = lambda stage: stage.user_client.merge(  # noqa: E731
                stage.kind, stage.namespace, NAME, patch
            )
            await self.go(ScenarioStep(f"the user confirms {token} again", act))

    async def _pause(self) -> None:
        await self.go(later(self.chance.choice((5, 30, 700))))

    async def _months(self) -> None:
        await self.pass_time(self.chance.choice((2 * 3600, 30 * DAY, 300 * DAY)))

    async def pass_time(self, seconds: float) -> None:
        """Let hours or months pass at once."""
        await self.go(later(seconds))

    async def _hide(self) -> None:
        primaries = [process.pod for process in self.primaries]
        await self.go(hidden(self.chance.choice((self.some(), self.pods, primaries))))

    async def _show(self) -> None:
        await self.go(hidden(()))

    async def _go_down(self) -> None:
        self.text.append("the operator ends")
        self.play.end()

    async def _come_up(self) -> None:
        if self.play.operator is None:
            self.text.append("the operator begins")
            self.play.begin()
            await self.go(later(1))

    async def _unmount(self) -> None:
        await self._mounts(self.some(), mounts=False)

    async def _mount(self) -> None:
        await self._mounts(self.pods, mounts=True)

    async def _mounts(self, pods: list[str], *, mounts: bool) -> None:
        def act(redis: FakeRedis) -> None:
            for process in list(redis.processes.values()):
                away = f"above {process.disk}" in redis.disks
                if process.pod in pods and not process.exit_message and away == mounts:
                    redis.stop(process, "killed")
                    redis.unmount(process.pod, mounts=mounts)

        if self.kind.storage != "pods":
            what = "are mounted" if mounts else "are not mounted"
            await self.go(to_redis(f"the disks of {', '.join(pods)} {what}", act))

    # Changes by users, and what happens in their middle.

    def _resized(self) -> ScenarioStep:
        least, shard = self.kind.least, 1 + self.kind.copies
        sizes = {least, least + 1, least + shard, least + 2 * shard, MAX_PODS}
        self.desired.replicas = self.chance.choice(sorted(size for size in sizes if size <= max(MAX_PODS, least)))
        return self.desired.step()

    def _upgraded(self) -> ScenarioStep:
        self.desired.is_upgraded = True
        return self.desired.step()

    def _persisted(self) -> ScenarioStep:
        left = PERSISTENCE.keys() - {self.desired.persistence, *(() if self.kind.snapshots else ("snapshots",))}
        self.desired.persistence = self.chance.choice(sorted(left)) if len(left) > 1 else left.pop()
        return self.desired.step()

    def _deleted_by_hand(self) -> ScenarioStep:
        self.desired.on_delete = not self.desired.on_delete
        return self.desired.step()

    def _kept(self) -> ScenarioStep:
        self.desired.keeps, self.desired.retains = self.chance.choice(((False, True), (False, False), (True, False)))
        return self.desired.step()

    async def _resize(self) -> None:
        await self.go(self._resized())

    async def _upgrade(self) -> None:
        await self.go(self._upgraded())

    async def _persist(self) -> None:
        await self.go(self._persisted())

    async def _delete_by_hand(self) -> None:
        await self.go(self._deleted_by_hand())

    async def _keep(self) -> None:
        await self.go(self._kept())

    def _hibernated(self) -> ScenarioStep:
        self.desired.hibernates = True
        return self.desired.step()

    def _woken(self) -> ScenarioStep:
        self.desired.hibernates = False
        return self.desired.step()

    async def _hibernate(self) -> None:
        """Stop all pods; something may happen in the middle."""
        await self._in_turns(self._hibernated())

    async def _wake(self) -> None:
        await self._in_turns(self._woken())

    async def _in_turns(self, step: ScenarioStep) -> None:
        await self.go(step if self.chance.random() < 0.5 else limit_turns(step, self.chance.randrange(1, 40)))

    async def _interrupt(self) -> None:
        """Change the spec, and let something happen before that is complete."""
        changes = (self._resized, self._resized, self._resized, self._upgraded, self._persisted, self._kept)
        await self.go(limit_turns(self.chance.choice(changes)(), self.chance.randrange(1, 25)))
        happens = ("restart_all", "scale_by_hand", "fail_over", "kill", "lose", "hide", "crash", "resize")
        more = ("swap", "squat", "lead_astray") if self.kind.tenants else ()
        await getattr(self, f"_{self.chance.choice((*happens, *more))}")()

    async def _crash(self) -> None:
        await self._go_down()
        await self._come_up()

    async def _restart_all(self) -> None:
        await self.go(deleted(self.pods))

    async def _scale_by_hand(self) -> None:
        """Scale the StatefulSet; its controller deletes pods before the operator observes it."""
        count = self.chance.choice((2, self.kind.least, self.desired.replicas, self.desired.replicas + 1))

        def act(stage: Stage) -> None:
            with suppress(NotFound):
                stage.user_client.merge(STATEFUL_SET, stage.namespace, NAME, {"spec": {"replicas": count}})
                stage.workloads.settle()

        await self.go(ScenarioStep(f"kubectl scale statefulset --replicas {count}", act))

    async def _fail_over(self) -> None:
        """Let a user promote a replica: of the source of a move, if slots move."""
        replicas = [process for process in self.servers if process.node.lead is not None and process.linked]
        moving = {process.node.id for process in self.servers if process.node.migrating or process.migrations}
        chosen = [process for process in replicas if process.node.me.primary in moving] or replicas
        if not chosen:
            return
        process = self.chance.choice(chosen)

        def act(redis: FakeRedis) -> None:
            process.election.manual = redis.now + 5.0
            redis.guard.user_failovers = True

        await self.go(to_redis(f"{process.pod} runs CLUSTER FAILOVER", act))

    async def _open_slot(self) -> None:
        """Let a user begin to move an empty slot, as redis-cli does."""
        primaries = self.primaries
        if len(primaries) < 2 or self.opened:
            return
        source, target = self.chance.sample(primaries, 2)
        used = {slot_of(key) for key in self.redis.guard.records}
        slot = self.chance.choice([slot for slot in Slots(source.node.me.slots) if slot not in used][:500] or [-1])
        if slot < 0 or any(slot in {**each.node.migrating, **each.node.importing} for each in self.servers):
            return
        self.opened.add(slot)

        def act(_: FakeRedis) -> None:
            target.node.importing[slot], source.node.migrating[slot] = source.node.id, target.node.id

        await self.go(to_redis(f"the user opens slot {slot} of {source.pod} for {target.pod}", act))

    async def _migrate_slots(self) -> None:
        """Let a user move slots with the servers' own command, or cancel what moves."""
        primaries = self.primaries
        if len(primaries) < 2 or not (self.kind.engine == "valkey" or any(each.imports_slots for each in primaries)):
            return
        source, target = self.chance.sample(primaries, 2)
        first = next(iter(Slots(source.node.me.slots)))
        cancels = self.chance.random() < 0.4

        def act(redis: FakeRedis) -> None:
            words = [b"SLOTSRANGE", b"%d" % first, b"%d" % first, b"NODE", target.node.id.encode()]
            with suppress(Exception):  # refused: the slot moves already
                if self.kind.engine == "redis" and cancels:
                    atomic_migration.cancel_tasks(redis, target, [b"CANCEL", b"ALL"])
                elif self.kind.engine == "redis":
                    atomic_migration.import_slots(redis, target, words[:3])
                elif cancels:
                    atomic_migration.cancel(redis, source, [])
                else:
                    atomic_migration.migrate_slots(redis, source, words)

        what = f"cancels the moves of {source.pod}" if cancels else f"moves slot {first} from {source.pod}"
        await self.go(to_redis(f"the user {what}", act))

    # Faults.

    async def _kill(self) -> None:
        """Restart the containers of pods."""
        pods = self.some()

        def act(redis: FakeRedis) -> None:
            for process in list(redis.processes.values()):
                if process.pod in pods and not process.exit_message:
                    redis.stop(process, "killed")

        await self.go(to_redis(f"the containers of {', '.join(pods)} restart", act))

    async def _drain(self) -> None:
        """Delete pods; their servers run on while the kubelet delays SIGTERM, so that primaries can hand over."""
        pods = self.some()

        def act(stage: Stage) -> None:
            stage.workloads.sleep_before_stop()
            for pod in pods:
                with suppress(NotFound):
                    stage.user_client.delete(POD, stage.namespace, pod)

        await self.go(ScenarioStep(f"{', '.join(pods)} are drained", act))

    async def _save(self) -> None:
        """Let pods save a snapshot, as their save points do."""
        pods = self.some()

        def act(_: FakeRedis) -> None:
            for process in self.servers:
                if process.pod in pods and process.saves:
                    process.node.save()

        await self.go(to_redis(f"{', '.join(pods)} save a snapshot", act))

    async def _hang(self) -> None:
        pod = self.chance.choice(self.pods or [""])
        await self.go(to_redis(f"{pod} hangs", lambda redis: redis.hang(pod)))

    async def _cut(self) -> None:
        first = self.chance.randrange(3)
        sides = {f"{NAME}-{number}": 1 for number in range(first, MAX_PODS, 3)}
        await self.go(to_redis(f"{', '.join(sides)} are cut off", lambda redis: setattr(redis, "partitions", sides)))

    async def _recover(self) -> None:
        def act(redis: FakeRedis) -> None:
            redis.partitions = {}
            for process in list(redis.processes.values()):
                if process.hangs:
                    redis.hang(process.pod, hangs=False)

        await self.go(to_redis("hanging servers and the network recover", act))

    # Other tenants.

    def _at(self, name: str) -> dict[str, str]:
        return {
            pod["metadata"]["name"]: pod["status"]["podIP"]
            for pod in self.play.stage.find(POD)
            if pod["metadata"]["name"].startswith(f"{name}-") and (pod.get("status") or {}).get("podIP")
        }

    async def _swap(self) -> None:
        """Restart pods of both clusters at once: each gets an address of the other."""
        here, there = self._at(NAME), self._at(OTHER)
        own = self.chance.sample(sorted(here), min(len(here), self.chance.choice((1, 2, len(there), len(here)))))
        foreign = sorted(there)[: max(1, len(own))]

        def act(stage: Stage) -> None:
            stage.workloads.reuse_addresses([*(there[pod] for pod in foreign), *(here[pod] for pod in sorted(own))])
            _delete_pods(stage, [*own, *foreign])

        await self.go(ScenarioStep(f"{', '.join(sorted(own))} and {', '.join(foreign)} swap addresses", act))

    async def _squat(self) -> None:
        """Restart pods of this cluster, and then those of the other one, which get their former addresses."""
        here, there = self._at(NAME), self._at(OTHER)
        own = [pod for pod in self.some() if pod in here]
        if not own:
            return
        await self.go(limit_turns(deleted(own), self.chance.choice((1, 3, 12, 40))))
        foreign = sorted(there)[: len(own)]

        def act(stage: Stage) -> None:
            used = set(self._at(NAME).values())
            stage.workloads.reuse_addresses([here[pod] for pod in own if here[pod] not in used])
            _delete_pods(stage, foreign)

        await self.go(ScenarioStep(f"{', '.join(foreign)} get the former addresses of {', '.join(own)}", act))

    async def _lead_astray(self, *, is_hostile: bool | None = None) -> None:
        """Leave the link of a replica at the former address of its primary, which another tenant has, or the reverse.

        Args:
            is_hostile: whether that server accepts any password; None to draw it.
        """
        replicas = [process for process in self.servers if process.node.me.primary]
        others = [process for process in self.redis.running if process.cluster == OTHER]
        foreign = [process for process in others if process.node.me.slots]
        if not replicas or not foreign:
            return
        if is_hostile is None and len(foreign) < len(others) and self.primaries and self.chance.random() < 0.5:
            replicas, foreign, is_hostile = [each for each in others if each.node.me.primary], self.primaries, False
        replica, other = self.chance.choice(replicas), self.chance.choice(foreign)
        accepts = self.chance.random() < 0.5 if is_hostile is None else is_hostile

        def act(_: FakeRedis) -> None:
            replica.source, replica.linked, replica.syncing = (other.address, other.port), False, 0.0
            other.is_hostile = accepts

        which = f"{other.pod}{', which accepts any password,' if accepts else ''}"
        await self.go(to_redis(f"the link of {replica.pod} stays at an address that {which} has", act))

    async def _hold_claim(self) -> None:
        """Let another user create the claim of a pod that does not exist yet."""
        await self.go(claimed(self._next()))

    async def _copy_volume(self) -> None:
        """Let a user create that claim from a snapshot of a volume of this cluster."""
        claims = [claim for claim in self.play.stage.find(PERSISTENT_VOLUME_CLAIM) if _is_of(claim)]
        if claims:
            await self.go(claimed(self._next(), self.chance.choice(claims)["metadata"]["uid"]))

    async def _take_claim(self) -> None:
        """Destroy a volume; another user creates a claim with its name before the operator does."""
        if self.kind.storage != "volumes" or not self.pods:
            return
        pod = self.chance.choice(self.pods)
        number = int(pod.rpartition("-")[2])
        await self.go(*(limit_turns(step, 0) for step in destroyed([pod])), claimed(number))

    def _next(self) -> int:
        return max((int(pod.rpartition("-")[2]) for pod in self.pods), default=-1) + self.chance.choice((1, 1, 2))

    # The end.

    async def end(self) -> None:
        """End all faults, and let the users decide what is left."""
        await self._show()
        await self._recover()
        await self.go(self._given_back())
        self.desired.on_delete = self.desired.hibernates = False
        await self.go(self.desired.step())
        await self._mount()
        await self._put_back()
        await self._come_up()
        if self.opened:
            await self.go(self._closed())
        for _ in range(8):
            await self.go(later(60))
            if self.ready["reason"] == "Ready":
                break
            if advised := _ADVICE.search(self.ready["message"]):  # nothing comes back any more
                await self.go(*destroyed(advised[1].split(", ")))
            elif self.ready["reason"] in ("SlotsLost", "DataAway", "TokenRefused"):
                await self._confirm()
        reason = self.ready["reason"]
        allowed = UNDECIDED | ({"RollBlocked"} if not self.kind.copies else set())
        assert reason in allowed | {"Ready"}, self.ready
        if reason == "Ready":
            self.redis.guard.require_resolved(self.redis)
            self._require_converged()
            await self._require_still()

    def _given_back(self) -> ScenarioStep:
        """Delete the claims of other users."""

        def act(stage: Stage) -> None:
            for claim in stage.find(PERSISTENT_VOLUME_CLAIM):
                if not claim["metadata"].get("labels"):
                    stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, claim["metadata"]["name"])

        return ScenarioStep("users take back their claims", act)

    def _closed(self) -> ScenarioStep:
        """Close the slots that a user opened, at all nodes: those whose disk was away are back with open slots."""

        def act(_: FakeRedis) -> None:
            for process in self.servers:
                for slot in self.opened:
                    process.node.migrating.pop(slot, None)
                    process.node.importing.pop(slot, None)

        return to_redis(f"the user closes slot {', '.join(map(str, sorted(self.opened)))}", act)

    def _require_converged(self) -> None:
        shape = next(shape for shape in self.redis.state() if shape["nodes"])
        primaries = self.desired.replicas // (1 + self.kind.copies)
        owning = [owned for owned in shape["slots by primary"] if owned]
        assert len(owning) == max(3, primaries), shape
        assert max(owning) - min(owning) <= 1, shape
        assert shape["open slots"] == 0, shape
        assert {process.version for process in self.servers} == {self.desired.version}
        if self.kind.tenants:
            for process in self.redis.running:
                if process.cluster == OTHER and process.node.me.slots:
                    assert process.node.keys.get(FOREIGN), f"{process.pod} has lost the key of another tenant"

    async def _require_still(self) -> None:
        before = len(self.play.world.server.log.all_writes)
        self.play.resync()
        await self.play.settle()
        written = self.play.world.server.log.all_writes[before:]
        assert not written, f"the settled operator writes: {written}"


_ADVICE = re.compile(r", but ([a-z0-9, -]+) may have keys: .*delete the volume claims", re.DOTALL)
"""The message that advises to give up the data of some nodes, with their names."""

_STORAGE = ("hosts", "volumes", "volumes", "volumes", "pods")


def of_mine(step: ScenarioStep) -> ScenarioStep:
    """Carry out a step for which there is only one resource."""

    def act(stage: Stage) -> None:
        found = [each for each in stage.find() if each["metadata"]["name"] == NAME]
        step.act(_OneResource(stage, found))  # type: ignore[arg-type]

    return replace(step, act=act)


class _OneResource:
    def __init__(self, stage: Stage, found: list[Obj]) -> None:
        self._stage, self._found = stage, found

    def find(self) -> list[Obj]:
        return self._found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def deleted(pods: list[str]) -> ScenarioStep:
    return ScenarioStep(f"{', '.join(pods)} are deleted", lambda stage: _delete_pods(stage, pods))


def _delete_pods(stage: Stage, pods: list[str]) -> None:
    for pod in pods:
        with suppress(NotFound):
            stage.user_client.delete(POD, stage.namespace, pod, gracePeriodSeconds=0)


def _is_of(claim: Obj) -> bool:
    return bool(claim["metadata"].get("labels")) and claim["metadata"]["name"].startswith(f"data-{NAME}-")


def claimed(number: int, source: str = "") -> ScenarioStep:
    """Let another user create a claim without labels, from a snapshot of a volume if its UID is given."""
    name = f"data-{NAME}-{number}"

    def act(stage: Stage) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        try:
            create(PERSISTENT_VOLUME_CLAIM, name, spec=spec).act(stage)
        except AlreadyExists:
            return
        redis: FakeRedis = stage.database
        if source in redis.disks:
            [uid] = (
                each["metadata"]["uid"]
                for each in stage.find(PERSISTENT_VOLUME_CLAIM)
                if each["metadata"]["name"] == name
            )
            redis.disks[uid] = copy.deepcopy(redis.disks[source])
            redis.disks[uid].name, redis.disks[uid].cluster = name, "a copy"
            redis.files[uid] = redis.files[source]

    return ScenarioStep(f"another user creates {name}{' from a snapshot' if source else ''}", act)


async def check(number: int, theme: str = "") -> Course:
    """Run a course to its end, as `course_runner.follow` does."""
    course = Course(number, theme)
    await course_runner.follow(course, number, STEPS)
    return course


if __name__ == "__main__":
    sys.exit(course_runner.run(check, THEMES, __doc__))
