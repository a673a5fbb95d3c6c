"""Libraries of functions, which belong to no slot: every master must have them, and one that joins has none."""

from __future__ import annotations

from operators.redis.client.errors import Refused
from operators.redis.migration.participants import End


async def give(source: End, target: End) -> None:
    """Give a node that owns no slot yet the functions of one that does.

    Raises:
        RedisError: one of them does not answer, or the target refuses them.
    """
    if target.report.me.slots:
        return
    try:
        desired = await source.server.execute("FUNCTION", "LIST", "WITHCODE")
    except Refused:  # before Redis 7.0 there are none
        return
    if desired and await target.server.execute("FUNCTION", "LIST", "WITHCODE") != desired:
        await target.server.execute("FUNCTION", "RESTORE", await source.server.execute("FUNCTION", "DUMP"), "REPLACE")
