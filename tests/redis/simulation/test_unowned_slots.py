"""Slots that no node owns, because each of two nodes takes the other one for the owner, return to their keys."""

from __future__ import annotations

from simulator.redis.node import slot_of
from simulator.redis.process import Process
from tests.harness.scenario import later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.moving_slots import healed, redis_of, settled
from tests.support.redis.scenarios import REDIS, cluster


async def test_slot_that_no_node_owns_returns_to_its_keys() -> None:
    play = ScenarioRun(await settled(World(REDIS), cluster(6)))
    later(5).act(play.stage)
    redis = redis_of(play.world)
    redis.advance()
    play.begin()
    await play.settle()
    primaries = sorted((each for each in redis.running if each.node.keys and each.node.me.slots), key=_epoch)
    other, *_, holder = primaries
    bit = 1 << slot_of(next(iter(holder.node.keys)))
    holder.node.me.slots &= ~bit
    holder.node.known[other.node.id].slots |= bit
    later(3).act(play.stage)
    redis.advance()
    assert not any(each.node.me.slots & bit for each in redis.running)
    play.resync()
    await play.settle()
    await healed(play)
    assert holder.node.me.slots & bit
    assert all(each.node.known[holder.node.id].slots & bit for each in redis.running)


def _epoch(process: Process) -> int:
    return process.node.me.epoch
