"""Redis 8.4 and later delete the keys of slots that moved away afterwards: they are no data of the node any more."""

from __future__ import annotations

import pytest

from operators.redis.slots.hash_slots import Slots
from tools.databases.redis_servers import Redis, key_in

SLOT, KEYS = 0, 3000
DELAY_MICROSECONDS = 1000
"""Time for which the server waits after it has deleted some keys; without any, no report meets a deletion."""


@pytest.mark.weekly
async def test_keys_that_are_being_deleted_are_in_info_and_not_in_dbsize(redis: Redis) -> None:
    with redis.cluster(("redis", "8.6"), enable_debug_command="yes") as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        async with one.connected() as source, two.connected() as target:
            await source.execute("DEBUG", "ASM-TRIM-METHOD", "active", DELAY_MICROSECONDS)
            await source.pipe([("SET", key_in(SLOT, number), "value") for number in range(KEYS)])
            assert (await one.report()).trimming == 0
            await target.execute("CLUSTER", "MIGRATION", "IMPORT", SLOT, SLOT)
            while SLOT in (report := await one.report()).me.slots:
                pass
            assert 0 < report.trimming <= report.keys <= KEYS
            assert await source.execute("DBSIZE") == 0
            while (report := await one.report()).keys:
                assert report.trimming == report.keys, "the rest of its keys, and none of other slots"
            assert report.trimming == 0
            owner = await two.report()
            assert (owner.keys, owner.trimming) == (KEYS, 0)
            assert not owner.me.slots & report.me.slots
            assert owner.me.slots & Slots.of(SLOT)
