"""A real Redis 7.0 keeps the slot that it receives, and slots that no node owns are assigned to their keys."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from operators.redis.api.engine_versions import Engine, features
from operators.redis.client.commands import execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.server import Access, Command, Endpoint, Server
from operators.redis.migration.commands import AssignSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.support.containers.redis_moving import fill, move_with, require_whole
from tools.databases.redis_servers import OLDEST, OPEN, Cluster, Node, Redis

SLOT = 0


async def _times(at: Node, of: Node) -> tuple[int, int]:
    """Return the time of the unanswered PING of one node to another, 0 without one, and of the last PONG."""
    async with at.connected() as server:
        lines = str(await server.execute("CLUSTER", "NODES")).splitlines()
    sent, received = next(line.split()[4:6] for line in lines if line.startswith(of.id))
    return int(sent), int(received)


async def _mark_unclaimed(cluster: Cluster, at: Node, owner: Node) -> None:
    """Make a node mark the slot as unclaimed, although its owner claims it.

    The node learns the owner from SETSLOT NODE. Then it reads a message of the owner from before that one had the slot.
    """
    async with at.connected() as server, owner.connected() as other:
        await server.execute("CLUSTER", "SETSLOT", SLOT, "IMPORTING", owner.id)
        await server.execute("CLUSTER", "SETSLOT", SLOT, "NODE", at.id)
        await cluster.until(lambda reports: SLOT not in reports[owner.id].me.slots)
        await server.execute("CLUSTER", "SETSLOT", SLOT, "NODE", owner.id)
        _, before = await _times(at, owner)
        while (await _times(at, owner))[1] == before:  # noqa: ASYNC110  # a PONG is no event here
            await asyncio.sleep(0.05)
        await other.execute("CLUSTER", "SETSLOT", SLOT, "IMPORTING", at.id)
        await other.execute("CLUSTER", "SETSLOT", SLOT, "NODE", owner.id)


@dataclass
class _LateClaim:
    """Connections that let the target execute SETSLOT NODE right before it reads a PING that the source sent earlier.

    Attributes:
        was_late: whether that has happened.
    """

    source: Node
    target: Node
    was_late: bool = False

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        return _Delaying(self, connect(endpoint, access), endpoint.name == self.target.name)


@dataclass
class _Delaying:
    late: _LateClaim
    server: Server
    is_target: bool

    async def execute(self, *command: str | int | bytes) -> Any:
        return await self.server.execute(*command)

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        source, target = self.late.source, self.late.target
        if not self.is_target or not any(command[3:] == ("NODE", target.id) for command in commands):
            return await self.server.pipe(commands)
        target.signal(signal.SIGSTOP)
        try:
            sending = asyncio.create_task(self.server.pipe(commands))
            await asyncio.sleep(0.2)  # the commands are in the socket of the target before the PING is
            waits = 0
            while waits < 3:
                waits = waits + 1 if (await _times(source, target))[0] else 0
                await asyncio.sleep(0.05)
        finally:
            target.signal(signal.SIGCONT)
        self.late.was_late = True
        return await sending

    async def aclose(self) -> None:
        await self.server.aclose()


async def test_earlier_claim_of_the_source_does_not_take_a_moved_slot_back(redis: Redis) -> None:
    with redis.cluster(OLDEST, cluster_node_timeout="10000") as cluster:
        await cluster.form(2)
        source, target = cluster.nodes
        await _mark_unclaimed(cluster, target, source)
        await cluster.settled()
        wrote = await fill(cluster, Slots.of(SLOT))
        late = _LateClaim(source, target)
        await move_with(late.connect, cluster, [Move(source.id, target.id, Slots.of(SLOT))])
        assert late.was_late
        reports = await cluster.reports()
        assert {node_id: (SLOT in each.me.slots, each.keys) for node_id, each in reports.items()} == {
            source.id: (False, 0),
            target.id: (True, len(wrote)),
        }
        await require_whole(cluster, wrote)


async def test_slot_that_no_node_owns_is_assigned_to_the_node_with_its_keys(
    redis: Redis, engine: tuple[str, str]
) -> None:
    """Each node takes the other one for the owner: the source was informed, and then the target lost its table.

    Redis 8.4 and later report 0 keys of a slot that a node neither owns nor imports (clusterCanAccessKeysInSlot).
    """
    is_hidden = features(Engine.parse(" ".join(engine))).migration == "import"
    with redis.cluster(engine) as cluster:
        await cluster.form(3)
        one, two, three = cluster.nodes
        wrote = await fill(cluster, Slots.of(SLOT))
        async with one.connected() as source, two.connected() as target:
            await target.execute("CLUSTER", "SETSLOT", SLOT, "IMPORTING", one.id)
            await source.execute("CLUSTER", "SETSLOT", SLOT, "MIGRATING", two.id)
            await source.execute("MIGRATE", "127.0.0.1", two.port, "", 0, 1000, "KEYS", *wrote)
            await source.execute("CLUSTER", "SETSLOT", SLOT, "NODE", two.id)
            await target.execute("CLUSTER", "SETSLOT", SLOT, "STABLE")
        await asyncio.sleep(2)
        reports = await cluster.reports()
        assert not [each for each in reports.values() if SLOT in each.me.slots]
        assert reports[two.id].by_id[one.id].slots & Slots.of(SLOT)
        nodes = {node.id: node.endpoint for node in cluster.nodes}
        with pytest.raises(Refused, match=f"Slots {SLOT} are not assigned"):
            await execute(connect, AssignSlots(OPEN, one.id, Slots.of(SLOT), nodes))
        away = nodes | {"f" * 40: three.endpoint}
        with pytest.raises(Unreachable):
            await execute(connect, AssignSlots(OPEN, two.id, Slots.of(SLOT), away))
        assert SLOT not in (await two.report()).me.slots
        if is_hidden:
            with pytest.raises(Refused, match="of slots that it does not own"):
                await execute(connect, AssignSlots(OPEN, two.id, Slots.of(SLOT), nodes))
            async with two.connected() as target:  # as in docs/runbook/redis.md, SlotsUnserved
                await target.execute("CLUSTER", "SETSLOT", SLOT, "IMPORTING", one.id)
                assert await target.execute("CLUSTER", "COUNTKEYSINSLOT", SLOT) == len(wrote)
        await execute(connect, AssignSlots(OPEN, two.id, Slots.of(SLOT), nodes))
        await require_whole(cluster, wrote)
        assert SLOT in (await two.report()).me.slots


@pytest.mark.weekly
async def test_slot_is_not_assigned_as_empty_while_a_node_has_keys_that_it_does_not_count(redis: Redis) -> None:
    """Redis 8.4 and later report 0 keys of a slot that a node does not own, although it still has them."""
    with redis.cluster(("redis", "8.6")) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        wrote = await fill(cluster, Slots.of(SLOT))
        async with one.connected() as first, two.connected() as second:
            await second.execute("CLUSTER", "SETSLOT", SLOT, "IMPORTING", one.id)
            await first.execute("CLUSTER", "SETSLOT", SLOT, "MIGRATING", two.id)
            await first.execute("MIGRATE", "127.0.0.1", two.port, "", 0, 1000, "KEYS", *wrote)
            await first.execute("CLUSTER", "SETSLOT", SLOT, "NODE", two.id)
            await second.execute("CLUSTER", "SETSLOT", SLOT, "STABLE")
            assert await second.execute("CLUSTER", "COUNTKEYSINSLOT", SLOT) == 0
        nodes = {node.id: node.endpoint for node in cluster.nodes}
        with pytest.raises(Refused, match=f"has {len(wrote)} keys of slots that it does not own"):
            await execute(connect, AssignSlots(OPEN, one.id, Slots.of(SLOT), nodes, is_empty=True))


@pytest.mark.parametrize("of", [OLDEST, pytest.param(("redis", "8.6"), marks=pytest.mark.weekly)])
async def test_empty_slot_that_no_node_owns_is_assigned_only_as_empty(redis: Redis, of: tuple[str, str]) -> None:
    with redis.cluster(of) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        async with one.connected() as server:
            await server.execute("CLUSTER", "SETSLOT", SLOT, "NODE", two.id)
        nodes = {node.id: node.endpoint for node in cluster.nodes}
        with pytest.raises(Refused, match=f"Slots {SLOT} are not assigned"):
            await execute(connect, AssignSlots(OPEN, two.id, Slots.of(SLOT), nodes))
        await execute(connect, AssignSlots(OPEN, two.id, Slots.of(SLOT), nodes, is_empty=True))
        assert SLOT in (await cluster.settled())[two.id].me.slots
