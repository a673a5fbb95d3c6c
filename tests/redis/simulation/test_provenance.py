"""Open slots that the operator did not open: it finishes none of them, and brings no deleted key back (R17)."""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.client import Request
from simulator.faults import CALL, Crash
from simulator.redis import data
from simulator.redis.node import slot_of
from simulator.redis.process import Process
from tests.harness.scenario import ScenarioStep, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import redis_of, settled, status
from tests.support.redis.scenarios import NAME, REDIS, cluster

pytestmark = pytest.mark.nightly

DELETED = 130


def owner_has(redis: FakeRedis, key: bytes) -> bool:
    node = redis.node(redis.owner(slot_of(key), NAME))
    return node is not None and key in node.keys


def owner_of(redis: FakeRedis, key: bytes) -> Process:
    node = redis.node(redis.owner(slot_of(key), NAME))
    assert node is not None
    process = redis.process_of(node)
    assert process is not None
    return process


async def test_primary_with_an_older_copy_brings_no_deleted_key_back() -> None:
    """A primary restarts with data from before some of its slots moved, and marks these slots as importing."""
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(6))
    redis: FakeRedis = play.stage.database
    source = next(process for process in redis.running if process.node.me.slots)
    keys = [key for number in range(6000) if source.node.me.slots >> slot_of(key := b"stored:%d" % number) & 1]
    for key in keys:
        data.put(redis, source, key, b"1")
    older = {key: source.node.keys[key] for key in keys}
    await play.step(cluster(8))
    moved = [key for key in keys if not source.node.me.slots >> slot_of(key) & 1][:DELETED]
    assert len(moved) == DELETED
    for key in moved:
        owner = owner_of(redis, key)
        del owner.node.keys[key]
        data.wrote(owner)
    source.node.keys |= older
    redis.stop(source, "killed")
    play.world.settle_workloads()  # the container is back before a replica is elected
    for _ in range(3):
        play.resync()
        await play.settle()
        later(5).act(play.stage)
    found = status(play)
    restarted = redis.named(source.pod)
    assert [key for key in moved if owner_has(redis, key)] == [], "deleted keys came back"
    assert not restarted.node.importing, "the marks are removed, so that the node follows later owners"
    assert all(key in restarted.node.keys for key in moved), "the operator deletes no key"
    condition = accessors.condition_in(found["conditions"], "ForeignKeys")
    assert f"{source.pod} holds " in condition["message"]
    assert accessors.condition_in(found["conditions"], "Ready")["status"] == "True"
    before = play.world.server.log.all_writes.copy()
    await play.wait(40, times=2)
    assert play.world.server.log.all_writes == before, "the report does not flap"
    for key in [key for key in restarted.node.keys if not restarted.node.me.slots >> slot_of(key) & 1]:
        del restarted.node.keys[key]
    await play.wait(40)
    assert not accessors.condition_in(status(play)["conditions"], "ForeignKeys")


async def test_slots_that_another_client_migrates_are_left_alone() -> None:
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(6))
    redis: FakeRedis = play.stage.database
    source, target, *_ = (process for process in redis.running if process.node.me.slots)
    slot = next(number for number in range(16384) if source.node.me.slots >> number & 1)
    target.node.importing[slot], source.node.migrating[slot] = source.node.id, target.node.id
    await play.wait(40)
    assert slot in target.node.importing
    assert slot in source.node.migrating
    condition = accessors.condition_in(status(play)["conditions"], "ForeignMigration")
    assert condition["message"].startswith(f"Slot {slot} migrate")
    await play.step(cluster(8))
    assert slot in source.node.migrating, "other slots move, this one does not"
    assert sorted(process.node.me.slots.bit_count() for process in redis.running if process.node.me.slots) == [4096] * 4


def fails_during_migration(redis: FakeRedis, *, source: bool) -> list[str]:
    """Stop an end of the first slot of which keys move, right before the second MIGRATE; return the pod."""
    seen: list[str] = []
    stopped: list[str] = []

    def strike(what: str) -> bool | None:
        if not what.startswith("MIGRATE at "):
            return None
        seen.append(what)
        if len(seen) != 2:
            return None
        giver = redis.named(what.removeprefix("MIGRATE at "))
        taker = redis.node(next(iter(giver.node.migrating.values())))
        assert taker is not None
        process = giver if source else redis.process_of(taker)
        assert process is not None
        stopped.append(process.pod)
        redis.failing[process.pod] = "NodeLost"
        redis.stop(process, "killed")
        return False

    redis.fault = strike
    return stopped


@pytest.mark.parametrize("source", [True, False], ids=["source", "target"])
async def test_migration_continues_with_the_promoted_replica(source: bool) -> None:
    """An end of a migration fails while slots are open; the marks of its replica are set before the nodes agree."""
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(8))
    redis: FakeRedis = play.stage.database
    for number in range(3000):
        key = b"stored:%d" % number
        data.put(redis, owner_of(redis, key), key, b"1")
    stopped = fails_during_migration(redis, source=source)
    await play.step(cluster(6))
    assert stopped
    await play.wait(5, times=8)
    redis.failing.clear()
    await play.wait(20, times=4)
    [shape] = redis.state()
    assert (shape["open slots"], shape["consistent"], shape["clusters"]) == (0, True, 1), status(play)["reason"]
    assert sorted(shape["slots by primary"]) == [5461, 5461, 5462]
    lost = [b"stored:%d" % number for number in range(3000) if not owner_has(redis, b"stored:%d" % number)]
    assert len(lost) <= 100, "only keys of the last batch, which no replica had yet"
    assert status(play)["moves"] == []


async def test_slots_that_were_never_opened_are_not_finished_after_a_failover_of_their_source() -> None:
    """A planned move never begins. Its target restarts with older data, and a replica of its source takes over."""
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(6))
    redis: FakeRedis = play.stage.database
    keys = [b"stored:%d" % number for number in range(6000)]
    for key in keys:
        data.put(redis, owner_of(redis, key), key, b"1")
    older = {
        process.pod: {key: process.node.keys[key] for key in keys if key in process.node.keys}
        for process in redis.running
        if process.node.me.slots
    }
    await play.step(cluster(8))
    after = redis_of(await settled(play.world.fork(), cluster(6)))
    target, moved = next(
        (process, found)
        for process in redis.running
        if (had := older.get(process.pod))
        and (gained := after.named(process.pod).node.me.slots & ~process.node.me.slots)
        and (found := [key for key in had if gained >> slot_of(key) & 1])
    )
    source = owner_of(redis, moved[0])
    moved = [key for key in moved if owner_of(redis, key) is source][:DELETED]
    await stopped_before_the_first_slot(play, cluster(6))
    for key in moved:
        del source.node.keys[key]
        data.wrote(source)
    later(2).act(play.stage)
    redis.advance()
    target.node.keys |= older[target.pod]
    redis.stop(target, "killed")
    play.world.settle_workloads()
    assert redis.named(target.pod).node.importing, "the server marks slots of its stray keys by itself"
    redis.failing[source.pod] = "NodeLost"
    redis.stop(source, "killed")
    later(12).act(play.stage)
    redis.advance()
    play.begin()
    redis.failing.clear()
    await play.wait(20, times=6)
    assert [key for key in moved if owner_has(redis, key)] == [], "deleted keys came back"
    condition = accessors.condition_in(status(play)["conditions"], "ForeignKeys")
    assert f"{target.pod} holds " in condition["message"]


async def stopped_before_the_first_slot(play: ScenarioRun, step: ScenarioStep) -> None:
    """Let the operator plan the moves of a step, and end it once all is planned, and no slot is open."""
    redis: FakeRedis = play.stage.database

    def strike(what: str) -> bool | None:
        if what.startswith("CLUSTER SETSLOT"):
            raise Crash(f"before {what}", Request(CALL, what))
        return None

    async def end(_: Crash) -> None:
        play.end()

    redis.fault, play.on_crash = strike, end
    await play.step(step)
    assert play.operator is None
    redis.fault = None
