"""One look at a node: all that it says of itself and of the others, in one round trip."""

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


async def look(server: Server) -> NodeReport:
    """What a node says.

    Raises:
        Loading: it reads its data still, and knows nobody meanwhile, not even itself.
        RedisError: it does not answer, says no, or is no node of a cluster.
    """
    found = await server.pipe(COMMANDS)
    for answer in found:
        if isinstance(answer, Refused):
            raise answer
    try:
        return responses.report_of(*found)
    except responses.ODD as error:
        raise Unreachable(f"What answers is no node of a cluster of Redis or Valkey: {error!r}.") from None
