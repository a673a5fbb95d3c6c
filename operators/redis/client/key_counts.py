"""Counts the keys of slots, in all databases: Valkey 9 has several in cluster mode (cluster-databases).

CLUSTER COUNTKEYSINSLOT counts those of the selected database; a slot changes its owner with all of them.

Source: clusterCommand in src/cluster.c of Valkey 9.0; tested with Valkey 9.1.2.
"""

from __future__ import annotations

from operators.redis.client.errors import sure
from operators.redis.client.responses import mapping
from operators.redis.client.server import Command, Server
from operators.redis.slots.hash_slots import Slots

DATABASES = "cluster-databases"
"""Directive with the number of databases; servers without it have one. A running server does not change it."""


async def count_databases(server: Server) -> int:
    """Return the number of databases of a node.

    Raises:
        RedisError: the node is unreachable, or does not report it.
    """
    return int(mapping(await server.execute("CONFIG", "GET", DATABASES)).get(DATABASES, 1))


async def count_keys(server: Server, slots: Slots) -> list[int]:
    """Return the number of keys of each slot that a node has.

    Raises:
        RedisError: the node is unreachable, or does not report a number.
    """
    counts: list[Command] = [("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots]
    several = range(1, await count_databases(server))
    in_others = [command for number in several for command in (("SELECT", number), *counts)]
    answers = await server.pipe([*counts, *in_others, *([("SELECT", 0)] if several else [])])
    return [sum(int(sure(answer)) for answer in answers[at :: len(counts) + 1]) for at in range(len(counts))]
