"""Why a node that is to be removed stays."""

from __future__ import annotations

from shared.kubernetes import accessors
from simulator.redis import data
from simulator.redis.node import slot_of
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import status
from tests.support.redis.scenarios import REDIS, cluster


async def test_removed_primary_with_foreign_keys_reports_why_it_stays() -> None:
    """The slots of the node have moved, but it has a key of another slot: maybe the only copy, so a user decides."""
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(4, replicasPerMaster=0))
    redis: FakeRedis = play.stage.database
    removed = redis.named("cache-3")
    key = next(key for number in range(100) if not removed.node.me.slots >> slot_of(key := b"stored:%d" % number) & 1)
    owner = next(process for process in redis.running if process.node.me.slots >> slot_of(key) & 1)
    data.put(redis, owner, key, b"1")
    removed.node.keys[key] = owner.node.keys[key]
    await play.step(cluster(3, replicasPerMaster=0))
    await play.wait(40, times=3)
    ready = accessors.condition_in(status(play)["conditions"], "Ready")
    assert ready["status"] == "False"
    assert f"{removed.pod} is not removed, because it holds 1 keys of slots that it does not own" in ready["message"]
    assert "ForeignKeys" in ready["message"]
    assert redis.named(removed.pod).node.keys.keys() == {key}, "the operator deletes no key"
    del redis.named(removed.pod).node.keys[key]
    await play.wait(40, times=3)
    assert accessors.condition_in(status(play)["conditions"], "Ready")["status"] == "True"
    assert len(redis.running) == 3
