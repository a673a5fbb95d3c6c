"""Replicas that stay connected to a former address of their primary, which a server of another cluster gets.

Gossip changes the address of a node in the view of a replica, and does not move its link. Servers check no identity on
that link: unless the foreign server refuses the password of the replica, the replica drops its data and copies it.
"""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from simulator.redis.bus import GossipEntry, Message, process_gossip
from simulator.redis.client import Entry
from simulator.redis.node import SUSPECTED
from simulator.redis.process import Process
from tests.harness.scenario import apply, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.lab import GuardedLab
from tests.redis.simulation.moving_slots import redis_of, settled
from tests.support.redis.scenarios import NAME, OTHER, REDIS, addresses_swapped, cluster, lost

FOREIGN = b"a key of another tenant"


async def begun() -> tuple[ScenarioRun, FakeRedis]:
    """Return a cluster with keys, and next to it one of another tenant."""
    other = apply(OTHER, replicas=6, version="7.0.15", storage={"size": "1Gi"})
    run = ScenarioRun(await settled(World(REDIS), cluster(6), other))
    redis = redis_of(run.world)
    later(5).act(run.stage)
    redis.advance()
    for process in redis.running:
        if process.cluster == OTHER:
            process.node.keys[FOREIGN] = Entry(0, text=process.node.id.encode())
            process.node.offset += 1
    run.begin()
    await run.settle()
    return run, redis


def lead_astray(redis: FakeRedis, *, is_hostile: bool = False) -> tuple[Process, Process]:
    """Leave the link of a replica at an address that a primary of another tenant has by now.

    Args:
        is_hostile: whether that server accepts any password.
    """
    replica = next(process for process in redis.running if process.cluster == NAME and process.node.me.primary)
    foreign = next(process for process in redis.running if process.cluster == OTHER and process.node.me.slots)
    replica.source, replica.linked, replica.syncing = (foreign.address, foreign.port), False, 0.0
    foreign.is_hostile = is_hostile
    return replica, foreign


def is_truthful(redis: FakeRedis, found: Obj) -> bool:
    """Whether a resource that is Ready has no replica that is connected to another node than its primary."""
    ready = accessors.condition(found, "Ready")["status"] == "True"
    here = [process for process in redis.running if process.cluster == NAME and process.node.me.primary]
    ends = [(redis.at(*process.source), process.node.me.primary) for process in here]
    return not ready or all(end is not None and end.node.id == primary for end, primary in ends)


def mine(run: ScenarioRun) -> Obj:
    return next(found for found in run.stage.find() if found["metadata"]["name"] == NAME)


async def test_replica_at_the_address_of_a_foreign_server_keeps_its_keys() -> None:
    """A RedisCluster of another tenant, without spec.auth, refuses the password of the replica."""
    run, redis = await begun()
    replica, foreign = lead_astray(redis)
    before = dict(replica.node.keys)
    later(30).act(run.stage)
    redis.advance()
    assert before.keys() <= replica.node.keys.keys()
    assert FOREIGN not in replica.node.keys
    assert not replica.linked
    await run.wait(20)
    assert accessors.condition(mine(run), "Ready")["status"] == "True"
    assert is_truthful(redis, mine(run))
    assert replica.source != (foreign.address, foreign.port)
    run.world.require_safe()


async def test_no_replica_copies_another_cluster_whose_pods_get_the_addresses_of_its_own() -> None:
    run, redis = await begun()
    await run.run_steps((addresses_swapped(),))
    await run.wait(20, times=2)
    assert not redis.violations
    assert accessors.condition(mine(run), "Ready")["status"] == "True"
    run.world.require_safe()


@pytest.mark.parametrize("seconds", [0.25, 30.0], ids=["before it syncs", "after it copied foreign keys"])
async def test_replica_at_the_address_of_a_foreign_server_is_connected_to_its_primary(seconds: float) -> None:
    run, redis = await begun()
    replica, foreign = lead_astray(redis, is_hostile=True)
    later(seconds).act(run.stage)
    redis.advance()
    if seconds > 1:
        assert FOREIGN in replica.node.keys  # the world does what happened on a real cluster
    run.resync()
    await run.settle()
    assert is_truthful(redis, mine(run))
    await run.wait(20)
    assert accessors.condition(mine(run), "Ready")["status"] == "True"
    assert is_truthful(redis, mine(run))
    assert FOREIGN not in replica.node.keys
    assert replica.source != (foreign.address, foreign.port)
    run.world.require_safe()


async def test_gossip_does_not_move_the_link() -> None:
    """Another node reports the new address of a primary that the replica suspects to have failed."""
    lab = await GuardedLab.begin()
    replica, primary = lab.process("f"), lab.process("f").node.lead
    assert primary is not None
    before, reporter = replica.source, replica.node.known[lab.id("a")]
    primary.flags.add(SUSPECTED)
    entry = GossipEntry(primary.id, "10.9.9.9", 6379, unhealthy=False, replica=False)
    message = Message(reporter.id, reporter.address, 6379, 9, 1, reporter.slots, "", 0, (entry,))
    process_gossip(lab.redis, replica, message, reporter)
    assert primary.address == "10.9.9.9"
    assert replica.source == before


async def test_data_of_a_foreign_server_is_not_served_after_the_primary_fails() -> None:
    run, redis = await begun()
    replica, foreign = lead_astray(redis, is_hostile=True)
    primary = next(process for process in redis.running if process.node.id == replica.node.me.primary)
    later(30).act(run.stage)
    redis.advance()
    assert FOREIGN in replica.node.keys
    for failing in ({}, {primary.pod: "NodeLost"}, {}):
        redis.failing = failing
        later(20).act(run.stage)
        run.resync()
        await run.settle()
        assert is_truthful(redis, mine(run))
    serving = [process for process in redis.running if process.cluster == NAME and process.node.me.slots]
    assert not any(FOREIGN in process.node.keys for process in serving)
    assert foreign.node.keys[FOREIGN]


async def test_replica_that_was_emptied_is_not_promoted_without_consent() -> None:
    """The volume of the replica was reset by hand while its pod was away; then the primary loses its volume."""
    run, redis = await begun()
    primary = next(process for process in redis.running if process.cluster == NAME and process.node.me.slots)
    replica = redis.replicas_of(primary)[0]
    redis.failing[replica.pod] = "NodeLost"
    redis.stop(replica, "killed")
    redis.roll_back(replica.pod, {})
    redis.failing[primary.pod] = "NodeLost"
    for step in lost(int(primary.pod.rpartition("-")[2])):
        step.act(run.stage)
    redis.failing.pop(replica.pod)
    await run.wait(20, times=4)
    assert not redis.named(replica.pod).node.me.slots
    status = mine(run)["status"]
    assert status["recovery"]["token"]
    assert accessors.condition(mine(run), "Ready")["reason"] == "SlotsLost"
