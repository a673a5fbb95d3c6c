"""Keys that are written, moved and looked for: what tests of moving slots have in common."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from e2e.databases.redis_servers import Client, Cluster, key_in
from operators.redis.client.commands import execute
from operators.redis.client.connection import connect
from operators.redis.migration import coordinator
from operators.redis.migration.commands import CloseSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.containers.support.redis_cutting import Scissors

KEYS = 12
"""Of each slot, which are more than move in one command (`FEW`)."""

FEW = 5


async def fill(cluster: Cluster, slots: Slots, value: str = "v") -> dict[bytes, bytes]:
    """Write keys; what is written."""
    wrote = {key_in(slot, number): f"{value}{slot}-{number}".encode() for slot in slots for number in range(KEYS)}
    client = Client(cluster)
    for key, text in wrote.items():
        await client.ask(key, "SET", key, text)
    await client.aclose()
    return wrote


async def move(
    cluster: Cluster, moves: Sequence[Move], *, scissors: Scissors | None = None, budget: float = 60
) -> None:
    nodes = {node.id: node.endpoint for node in cluster.nodes if node.alive}
    made = scissors.connect if scissors else connect
    await coordinator.move(made, cluster.access, nodes, moves, keys=FEW, budget=budget)


async def require_whole(cluster: Cluster, wrote: dict[bytes, bytes]) -> None:
    """Every key is there once, with its value, where clients are sent for it; no slot is open, and all agree."""
    said = await cluster.settled()
    primaries = [each for each in said.values() if each.me.is_primary]
    assert sum(each.keys for each in primaries) == len(wrote), {each.id: each.keys for each in primaries}
    assert not any(each.me.migrating or each.me.importing for each in primaries)
    client = Client(cluster)
    for key, value in wrote.items():
        assert await client.ask(key, "GET", key) == value
    await client.aclose()
    cluster.check()


@dataclass
class Writer:
    """Writes without pause, and knows what was acknowledged."""

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
                await self.client.ask(key, "DEL", key)
                self.wrote.pop(key, None)
            else:
                await self.client.ask(key, "SET", key, f"w{number}")
                self.wrote[key] = f"w{number}".encode()
            await asyncio.sleep(0)


@asynccontextmanager
async def writing(cluster: Cluster, slots: Slots) -> AsyncIterator[Writer]:
    """A client that writes while the context lasts."""
    writer = Writer(Client(cluster), [key_in(slot, 100 + number) for slot in slots for number in range(4)])
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        writer.stopped = True
        await task
        await writer.client.aclose()


async def close_arrived(cluster: Cluster, source: str, target: str) -> None:
    """What the plan does about slots that have arrived, and whose source was not told: it heard it from the target."""
    said = await cluster.until(lambda said: not said[source].me.slots & said[target].me.slots)
    nodes = {node.id: node.endpoint for node in cluster.nodes}
    left = Slots.of(*said[source].me.migrating)
    if left:
        assert not left - said[target].me.slots
        await execute(connect, CloseSlots(cluster.access, source, target, left, nodes))


async def forget(cluster: Cluster, wrote: dict[bytes, bytes]) -> None:
    client = Client(cluster)
    for key in wrote:
        await client.ask(key, "DEL", key)
    await client.aclose()
