"""Counts the keys of slots, in all databases: Valkey 9 has several in cluster mode (cluster-databases).

CLUSTER COUNTKEYSINSLOT counts those of the selected database; a slot changes its owner with all of them.

Source: clusterCommand in src/cluster.c of Valkey 9.0; tested with Valkey 9.1.2.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from operators.redis.client.errors import reads_replies, sure
from operators.redis.client.responses import NodeReport, mapping
from operators.redis.client.server import Command, Server
from operators.redis.slots.hash_slots import Slots

DATABASES = "cluster-databases"
"""Directive with the number of databases; servers without it have one. A running server does not change it."""

MAX_DATABASES, COUNTS_AT_ONCE = 16, 64
"""Maximum number of databases, which the server reports; and of counts that are requested at once, in 7 KiB."""


@reads_replies
async def count_databases(server: Server) -> int:
    """Return the number of databases of a node.

    Raises:
        RedisError: the node is unreachable, or does not report it.
    """
    return int(mapping(await server.execute("CONFIG", "GET", DATABASES)).get(DATABASES, 1))


@reads_replies
async def count_keys(server: Server, slots: Slots, note: Callable[[int], None] = lambda _: None) -> dict[int, int]:
    """Return the number of keys of each slot of which a node has any.

    Args:
        note: is called with the number of such slots, as they are found.

    Raises:
        RedisError: the node is unreachable, or does not report a number.
    """
    databases, left, found = await count_databases(server), iter(slots), dict[int, int]()
    if not 0 < databases <= MAX_DATABASES:
        raise ValueError(f"{DATABASES} {databases}, and at most {MAX_DATABASES} are counted")
    while part := [*islice(left, COUNTS_AT_ONCE // databases)]:
        counts: list[Command] = [("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in part]
        in_others = [command for number in range(1, databases) for command in (("SELECT", number), *counts)]
        answers = await server.pipe([*counts, *in_others, *([("SELECT", 0)] if in_others else [])])
        keys = (sum(int(sure(answer)) for answer in answers[at :: len(counts) + 1]) for at in range(len(counts)))
        some = {slot: count for slot, count in zip(part, keys, strict=True) if count}
        note(len(some))
        found |= some
    return found


@reads_replies
async def count_hidden(server: Server, report: NodeReport) -> int:
    """Return how many keys a node has that it counts for no slot.

    Redis 8.4 and later count 0 keys of a slot that the node neither owns nor imports, although it may have some. A
    transaction gives all counts of one moment.

    Source: clusterCanAccessKeysInSlot in src/cluster.c of redis 8.6.

    Raises:
        RedisError: the node is unreachable, or does not report how many.
    """
    if report.features.migration != "import":
        return 0
    counted = report.me.slots | Slots.of(*report.me.importing)
    commands = [("MULTI",), ("DBSIZE",), *(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in counted), ("EXEC",)]
    *_, answers = await server.pipe(commands)
    total, *counts = sure(answers)
    return max(int(report.trimming), int(total) - sum(map(int, counts)))
