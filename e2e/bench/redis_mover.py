"""The operator's engine, alone in a process as it is in the operator: `python -m e2e.bench.redis_mover`.

It is told on its standard input where nodes are, as JSON, and that it may begin, by an empty line; then it plans and
moves until every master has its part, as the operator does, and says how long that took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from operators.redis.client.commands import execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import RedisError
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.server import Access, Endpoint
from operators.redis.migration.commands import MoveSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import balanced, remaining


async def run(nodes: dict[str, Endpoint], masters: list[str]) -> float:
    """Seconds until the masters have their part; what fails is tried again, as the operator does."""
    began = time.monotonic()
    moves = balanced(await _owned(nodes), masters)
    while moves := remaining(moves, await _owned(nodes)):
        try:
            await execute(connect, MoveSlots(Access(), moves, nodes))
        except RedisError as error:
            print(error, file=sys.stderr)
            await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _owned(nodes: dict[str, Endpoint]) -> dict[str, Slots]:
    async def owned(endpoint: Endpoint) -> Slots:
        server = connect(endpoint, Access())
        try:
            return (await inspect_node(server)).me.slots
        finally:
            await server.aclose()

    found = await asyncio.gather(*map(owned, nodes.values()))
    return {node_id: slots for node_id, slots in zip(nodes, found, strict=True) if slots}


def main() -> None:
    told = json.loads(sys.stdin.readline())
    nodes = {node_id: Endpoint(name, "127.0.0.1", name, port, node_id) for node_id, name, port in told["nodes"]}
    print("ready", flush=True)
    sys.stdin.readline()
    print(asyncio.run(run(nodes, told["masters"])), flush=True)


if __name__ == "__main__":
    main()
