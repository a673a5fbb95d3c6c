"""A target of a real Redis 7.0 that has marked a slot of the source as unclaimed keeps the slot that it receives."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2e.databases.redis_servers import OLDEST, Cluster, Node, Redis
from operators.redis.client.connection import connect
from operators.redis.client.server import Access, Command, Endpoint, Server
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.containers.support.redis_moving import fill, move_with, require_whole

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
