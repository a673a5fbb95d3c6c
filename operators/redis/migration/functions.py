"""Function libraries, which belong to no slot: every primary must have them, and a new one has none."""

from __future__ import annotations

from operators.redis.client.errors import Refused
from operators.redis.migration.participants import End


async def give(source: End, target: End) -> None:
    """Copy the functions of a node with slots to one without.

    Raises:
        RedisError: a node is unreachable, or the target rejects the functions.
    """
    if target.report.me.slots:
        return
    try:
        libraries = await source.server.execute("FUNCTION", "LIST", "WITHCODE")
    except Refused:  # they exist since Redis 7.0
        return
    if libraries and await target.server.execute("FUNCTION", "LIST", "WITHCODE") != libraries:
        await target.server.execute("FUNCTION", "RESTORE", await source.server.execute("FUNCTION", "DUMP"), "REPLACE")
