"""Inspects a node: its own state, its view of the others, and its settings, in one round trip."""

from __future__ import annotations

from collections.abc import Collection

from operators.redis.client import responses
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Command, Server

COMMANDS: tuple[Command, ...] = (
    ("INFO",),
    ("CLUSTER", "INFO"),
    ("CLUSTER", "NODES"),
    ("CONFIG", "GET", "masterauth"),
    ("ACL", "GETUSER", "default"),
)


async def inspect_node(server: Server, settings: Collection[str] = ()) -> NodeReport:
    """Return the report of a node.

    Args:
        settings: directives whose values the report contains. Each is a command, because redis 6.2 accepts one name.

    Raises:
        Loading: the node still loads its data, and knows no node until then, not even itself.
        RedisError: the node is unreachable, answers with an error, or is not in cluster mode.
    """
    found = await server.pipe((*COMMANDS, *(("CONFIG", "GET", name) for name in settings)))
    for answer in found:
        if isinstance(answer, Refused):
            raise answer
    try:
        return responses.report_of(*found[: len(COMMANDS)], settings=found[len(COMMANDS) :])
    except responses.MALFORMED as error:
        raise Unreachable(f"The server at the address is not a Redis or Valkey cluster node: {error!r}.") from None
