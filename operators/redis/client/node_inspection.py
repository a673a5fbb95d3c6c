"""Reads what a node reports about itself and about the others, in one round trip."""

from __future__ import annotations

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


async def inspect_node(server: Server) -> NodeReport:
    """Return the report of a node.

    Raises:
        Loading: it still loads its data, and knows no node meanwhile, not even itself.
        RedisError: it does not answer, answers with an error, or is not in cluster mode.
    """
    found = await server.pipe(COMMANDS)
    for answer in found:
        if isinstance(answer, Refused):
            raise answer
    try:
        return responses.report_of(*found)
    except responses.MALFORMED as error:
        raise Unreachable(f"What answers is no node of a cluster of Redis or Valkey: {error!r}.") from None
