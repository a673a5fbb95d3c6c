"""The operator's slot migration in a separate process: `python -m e2e.bench.redis_mover`.

It reads the endpoints of the nodes from standard input as JSON, and starts at an empty line. It plans and migrates
slots as the operator does until they are balanced, and prints the duration in seconds.
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


async def run(nodes: dict[str, Endpoint], primaries: list[str]) -> float:
    """Balance the slots among the primaries, with retries; return the duration in seconds."""
    began = time.monotonic()
    moves = balanced(await _owned(nodes), primaries)
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
    task = json.loads(sys.stdin.readline())
    nodes = {node_id: Endpoint(name, "127.0.0.1", name, port, node_id) for node_id, name, port in task["nodes"]}
    print("ready", flush=True)
    sys.stdin.readline()
    print(asyncio.run(run(nodes, task["primaries"])), flush=True)


if __name__ == "__main__":
    main()
