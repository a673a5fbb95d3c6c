"""Small migrations by the whole operator on `FakeRedis`, and the judgement of their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from redis.crc import key_slot

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.status import conditions
from tests.harness.scenario import ScenarioStep, Stage, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import OLD, REDIS, cluster

SLOTS_MOVED = 5
"""Slots that move; all but the last have keys."""

VALKEY = "8.1.3"
"""A version that replicates the marks of open slots, and moves slots key by key."""


@dataclass(frozen=True)
class Shape:
    """A migration.

    Attributes:
        direction: whether the slots move to a new primary, or from one that is removed.
        replicas: replicas of each primary.
    """

    direction: Literal["out", "in"] = "out"
    replicas: int = 1
    engine: Literal["redis", "valkey"] = "redis"


@dataclass
class Start:
    """The world before a migration, and the migration without faults.

    Attributes:
        points: commands of the migration, in order.
        source, target: pods of its ends.
    """

    world: World
    step: ScenarioStep
    points: list[str]
    source: str
    target: str


def happens_after(run: ScenarioRun, number: int, event: Iterable[ScenarioStep]) -> Callable[[], bool]:
    """Let an event happen after a number of write commands of the operator; return whether it has happened so far."""
    left = number

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        for step in event if left == 0 else ():
            step.act(run.stage)

    redis_of(run.world).after = count
    return lambda: left <= 0


def spec(primaries: int, shape: Shape, **strategy: object) -> ScenarioStep:
    version, image = (OLD, {}) if shape.engine == "redis" else (VALKEY, {"repository": "valkey/valkey"})
    update: Obj = {"updateStrategy": {"pipeline": "2", **strategy}}
    return cluster(primaries * (1 + shape.replicas), version, replicasPerMaster=shape.replicas, **update, **image)


def assign(shape: Shape) -> ScenarioStep:
    """Return the step that moves a few slots from the first primary to a new one."""

    def act(stage: Stage) -> None:
        redis: FakeRedis = stage.database
        source = next(process.node.id for process in redis.running if process.node.me.slots)
        given = {"type": "AssignReceive", "assignStrategies": [{"slots": SLOTS_MOVED, "fromReplicas": source}]}
        spec(4, shape, **given).act(stage)

    return ScenarioStep(f"a fourth primary takes {SLOTS_MOVED} slots", act)


@cache
def keys_in(slots: tuple[int, ...]) -> dict[int, bytes]:
    """Return a hash tag for each slot."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < len(slots):
        tag = b"{%d}" % number
        if (slot := key_slot(tag)) in slots:
            found.setdefault(slot, tag)
        number += 1
    return found


async def settled(world: World, *steps: ScenarioStep) -> World:
    play = ScenarioRun(world)
    await play.run_steps(steps)
    play.end()
    return world


def redis_of(world: World) -> FakeRedis:
    assert isinstance(world.database, FakeRedis)
    return world.database


def of_migration(what: str) -> bool:
    """Whether a command moves slots."""
    return what.startswith(("CLUSTER SETSLOT", "MIGRATE", "DEL", "EVAL"))


def owner_of(world: World, slot: int) -> str:
    return next(process.pod for process in redis_of(world).running if process.node.me.slots >> slot & 1)


_starts: dict[Shape, Start] = {}


async def start_of(shape: Shape) -> Start:
    """Return the world in which a migration begins; built once."""
    if shape not in _starts:
        _starts[shape] = await build_start(shape)
    return _starts[shape]


async def build_start(shape: Shape) -> Start:
    before = await settled(World(REDIS), spec(3, shape))
    source = next(process for process in redis_of(before).running if process.node.me.slots)
    after = await settled(before.fork(), assign(shape))
    moved = source.node.me.slots & ~redis_of(after).named(source.pod).node.me.slots
    tags = keys_in(tuple(slot for slot in range(moved.bit_length()) if moved >> slot & 1)[: SLOTS_MOVED - 1])
    new = [tag + b"new%d" % number for tag in tags.values() for number in range(2)]
    old = [tag + b"old%d" % number for tag in tags.values() for number in range(3)]
    world = before
    redis_of(world).client.add(tuple(new), tuple(old))
    later(3).act(ScenarioRun(world).stage)
    redis_of(world).advance()
    step = assign(shape)
    if shape.direction == "in":
        world, step = await settled(world, assign(shape)), spec(3, shape, type="AssignReceive")
    slot = next(iter(tags))
    count = len(redis_of(world).commanded)
    end = await settled(world.fork(), step)
    points = [what for what in redis_of(end).commanded[count:] if of_migration(what)]
    assert sum("MIGRATE" in what for what in points) >= 2 * len(tags)
    return Start(world, step, points, owner_of(world, slot), owner_of(end, slot))


def status(play: ScenarioRun) -> Obj:
    """Return the status of the only resource."""
    [found] = play.stage.find()
    return dict(found["status"])


async def healed(play: ScenarioRun) -> None:
    """Wait until the operator has done what it can, and require that it has healed the cluster, or reports why not."""
    redis = redis_of(play.world)
    await play.wait(130, times=4)
    [found] = play.stage.find()
    ready = accessors.condition(found, conditions.READY)
    reason, message = ready["reason"], ready["message"]
    kept_twice = on_two_primaries(redis)
    assert reason == "Ready" or (reason == "SlotStuck" and kept_twice), f"{reason}: {message}"
    redis.guard.require_resolved(redis, message if reason == "SlotStuck" else "")


def on_two_primaries(redis: FakeRedis) -> set[bytes]:
    """Return the keys that two primaries have."""
    found: set[bytes] = set()
    several: set[bytes] = set()
    for process in redis.running:
        if not process.node.me.primary:
            several |= found & process.node.keys.keys()
            found |= process.node.keys.keys()
    return several
