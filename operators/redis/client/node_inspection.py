"""Inspects a node: its own state and its view of the others, in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from operators.redis.client import responses
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Server

COMMANDS = (
    ("INFO",),
    ("CLUSTER", "INFO"),
    ("CLUSTER", "NODES"),
    ("CONFIG", "GET", "masterauth"),
    ("ACL", "GETUSER", "default"),
)


async def inspect_node(server: Server, turn: asyncio.Lock | None = None) -> NodeReport:
    """Return the report of a node.

    Args:
        turn: lock of an inspection of many nodes. Their responses may arrive together: one is parsed in each turn
            of the event loop, so that the loop is not blocked for long.

    Raises:
        Loading: the node still loads its data, and knows no node until then, not even itself.
        RedisError: the node is unreachable, answers with an error, or is not in cluster mode.
    """
    found = await server.pipe(COMMANDS)
    for answer in found:
        if isinstance(answer, Refused):
            raise answer
    async with turn or nullcontext():
        if turn is not None:
            await asyncio.sleep(0)
        return _parsed(found)


def _parsed(found: Sequence[Any]) -> NodeReport:
    try:
        return responses.report_of(*found)
    except responses.MALFORMED as error:
        raise Unreachable(f"The server at the address is not a Redis or Valkey cluster node: {error!r}.") from None
