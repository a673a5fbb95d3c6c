"""Helpers for tests of slot migration: write keys, migrate slots, verify the keys."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from operators.redis.client.commands import execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import Loading
from operators.redis.client.server import Connect
from operators.redis.migration import coordinator
from operators.redis.migration.commands import CloseSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.support.containers.redis_cutting import Scissors
from tools.databases.redis_servers import Client, Cluster, key_in

KEYS = 12
"""Number of keys per slot; more than one command migrates (`FEW`)."""

FEW = 5


async def fill(cluster: Cluster, slots: Slots, value: str = "v") -> dict[bytes, bytes]:
    """Write keys into each slot and return them with their values."""
    wrote = {key_in(slot, number): f"{value}{slot}-{number}".encode() for slot in slots for number in range(KEYS)}
    client = Client(cluster)
    for key, text in wrote.items():
        await client.send(key, "SET", key, text)
    await client.aclose()
    return wrote


async def move(
    cluster: Cluster,
    moves: Sequence[Move],
    *,
    scissors: Scissors | None = None,
    budget: float = 60,
    acknowledge: bool = True,
) -> None:
    factory = scissors.connect if scissors else connect
    await move_with(factory, cluster, moves, budget=budget, acknowledge=acknowledge)


async def move_with(
    factory: Connect, cluster: Cluster, moves: Sequence[Move], *, budget: float = 60, acknowledge: bool = True
) -> None:
    """Move slots through connections of this factory, as soon as the source may give some."""
    nodes = {node.id: node.endpoint for node in cluster.nodes if node.alive}
    options: dict[str, Any] = {"keys": FEW, "budget": budget, "acknowledge": acknowledge}
    async with asyncio.timeout(30):
        while True:
            try:
                return await coordinator.move(factory, cluster.access, nodes, moves, **options)
            except Loading as error:
                if "No slot moves from" not in str(error):
                    raise
            await asyncio.sleep(0.2)


async def require_whole(cluster: Cluster, wrote: dict[bytes, bytes]) -> None:
    """Assert that every key exists exactly once with its value, no slot is open, and all nodes have the same view."""
    reports = await cluster.settled()
    primaries = [each for each in reports.values() if each.me.is_primary]
    assert sum(each.keys for each in primaries) == len(wrote), {each.id: each.keys for each in primaries}
    assert not any(each.me.migrating or each.me.importing for each in primaries)
    client = Client(cluster)
    for key, value in wrote.items():
        assert await client.send(key, "GET", key) == value
    await client.aclose()
    cluster.check()


@dataclass
class Writer:
    """Client that writes continuously and records acknowledged writes."""

    client: Client
    keys: list[bytes]
    wrote: dict[bytes, bytes] = field(default_factory=dict)
    stopped: bool = False

    async def run(self) -> None:
        for number in itertools.count():
            if self.stopped:
                return
            key = self.keys[number % len(self.keys)]
            if number % 7 == 6:
                await self.client.send(key, "DEL", key)
                self.wrote.pop(key, None)
            else:
                await self.client.send(key, "SET", key, f"w{number}")
                self.wrote[key] = f"w{number}".encode()
            await asyncio.sleep(0)


@asynccontextmanager
async def writing(cluster: Cluster, slots: Slots) -> AsyncIterator[Writer]:
    """Run a client that writes until the end of the context."""
    writer = Writer(Client(cluster), [key_in(slot, 100 + number) for slot in slots for number in range(4)])
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        writer.stopped = True
        await task
        await writer.client.aclose()


async def close_arrived(cluster: Cluster, source: str, target: str) -> None:
    """Close slots that are still marked as migrating at the source although the target owns them, as the plan does."""
    reports = await cluster.until(lambda reports: not reports[source].me.slots & reports[target].me.slots)
    nodes = {node.id: node.endpoint for node in cluster.nodes}
    left = Slots.of(*reports[source].me.migrating)
    if left:
        assert not left - reports[target].me.slots
        await execute(connect, CloseSlots(cluster.access, source, target, left, nodes))


async def forget(cluster: Cluster, wrote: dict[bytes, bytes]) -> None:
    client = Client(cluster)
    for key in wrote:
        await client.send(key, "DEL", key)
    await client.aclose()
