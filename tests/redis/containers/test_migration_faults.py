"""Slot migration between real servers of which one hangs: a replica of the target, or the target itself."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

import pytest

from operators.redis.client.errors import RedisError
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.support.containers.redis_killing import Killer, Point
from tests.support.containers.redis_moving import FEW, KEYS, fill, move, move_with, require_whole
from tools.databases.redis_servers import OLDEST, Client, Redis

pytestmark = pytest.mark.nightly

BATCH = 2 * KEYS
"""Maximum number of keys that are at the target only: two slots, see MAX_PARALLEL_SLOTS."""


async def test_target_receives_one_batch_until_its_replica_has_it(redis: Redis) -> None:
    with redis.cluster(OLDEST, cluster_node_timeout="8000") as cluster:
        await cluster.form(3, 1)
        one, two, _, _, replica, _ = cluster.nodes
        slots = Slots.of(range(20))
        wrote = await fill(cluster, slots)
        await cluster.until(lambda reports: reports[replica.id].offset >= reports[two.id].offset)
        replica.signal(signal.SIGSTOP)
        try:
            with suppress(RedisError):
                await move(cluster, [Move(one.id, two.id, slots)], budget=2)
            assert (await two.report()).keys <= BATCH, "keys that only the target has"
        finally:
            replica.signal(signal.SIGCONT)
        await cluster.settled()
        await move(cluster, [Move(one.id, two.id, slots)])
        await require_whole(cluster, wrote)


async def test_key_that_is_deleted_while_the_target_hangs_stays_deleted(redis: Redis) -> None:
    with redis.cluster(OLDEST, cluster_node_timeout="4000") as cluster:
        await cluster.form(3)
        one, two, _ = cluster.nodes
        slots = Slots.of(0)
        wrote = await fill(cluster, slots)
        async with one.connected() as server:
            first = (await server.execute("CLUSTER", "GETKEYSINSLOT", 0, FEW))[0]
        client = Client(cluster)
        deleting: list[asyncio.Task[object]] = []

        def hang() -> None:
            two.signal(signal.SIGSTOP)
            deleting.append(asyncio.create_task(client.send(first, "DEL", first)))

        killer = Killer(Point("MIGRATE", 1, after=False), hang)
        moving = asyncio.create_task(move_with(killer.connect, cluster, [Move(one.id, two.id, slots)]))
        while not deleting:
            assert not moving.done()
            await asyncio.sleep(0.01)
        deleted = await deleting[0]  # the source is blocked until its MIGRATE times out, and still has the key
        two.signal(signal.SIGCONT)  # and now executes the RESTORE that the source gave up
        with suppress(RedisError):
            await moving
        await cluster.settled()
        await move(cluster, [Move(one.id, two.id, slots)])
        assert deleted == 1
        assert await client.send(first, "GET", first) is None, "a deleted key is alive again"
        await client.aclose()
        del wrote[first]
        await require_whole(cluster, wrote)
