"""Migration jobs of a real Valkey 9: those of other clients, and those that a person cancels."""

from __future__ import annotations

import asyncio

import pytest

from operators.redis.client.connection import connect
from operators.redis.client.errors import SlotStuck
from operators.redis.client.responses import mapping
from operators.redis.client.server import Server
from operators.redis.migration import coordinator
from operators.redis.migration.journal import Journal
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.support.containers.redis_moving import fill, require_whole
from tools.databases.redis_servers import NEWEST, Redis

pytestmark = pytest.mark.nightly

SLOTS = Slots.of(range(10))


async def states(server: Server) -> list[str]:
    return [mapping(each)["state"] for each in await server.execute("CLUSTER", "GETSLOTMIGRATIONS")]


async def test_jobs_of_a_person_are_awaited_and_cancelled_ones_stay_cancelled(redis: Redis) -> None:
    """The target does not respond, so that each job lasts until it is cancelled."""
    with redis.cluster(NEWEST, cluster_node_timeout="15000") as cluster:
        await cluster.form(2)
        wrote = await fill(cluster, SLOTS | Slots.of(100))
        one, two = cluster.nodes
        nodes = {node.id: node.endpoint for node in cluster.nodes}
        journal = Journal()

        async def move(budget: float) -> None:
            moves = [Move(one.id, two.id, SLOTS)]
            await coordinator.move(connect, cluster.access, nodes, moves, budget=budget, journal=journal)

        async with one.connected() as server:
            await server.execute("CONFIG", "SET", "repl-diskless-sync-delay", 0)
            await server.execute("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 100, 100, "NODE", two.id)
            await move(20.0)
            assert await states(server) == ["success", "success"], "the job of the person was awaited"
            report = await two.report()
            assert not (SLOTS | Slots.of(100)) - report.me.slots
            back = [Move(two.id, one.id, SLOTS)]
            async with two.connected() as target:
                await target.execute("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 0, 9, "NODE", one.id)
                await target.execute("CLUSTER", "CANCELSLOTMIGRATIONS")
                (last, *_) = [mapping(each) for each in await target.execute("CLUSTER", "GETSLOTMIGRATIONS")]
                assert (last["state"], last["operation"]) == ("cancelled", "EXPORT")
                now = int((await target.execute("TIME"))[0])
                assert abs(now - int(last["last_update_time"])) <= 2
                await journal.set_jobs(two.id, [last["name"]])  # as if the operator had started it
                await asyncio.sleep(1)
                with pytest.raises(SlotStuck, match="The operator tries again in"):
                    await coordinator.move(connect, cluster.access, nodes, back, journal=journal)
                assert (await states(target))[0] == "cancelled"
        await require_whole(cluster, wrote)
