"""A client of Redis Cluster as people have it: redis-py's own, mended where it would complain of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError

PORT = 6379
TIMEOUT = 5.0
"""Seconds until a client gives up on an answer."""

FAILURES = (RedisError, RedisClusterException, OSError, asyncio.TimeoutError)
"""What an attempt may end with."""

Address = tuple[str, int]
"""Where a node is reached."""

Resolve = Callable[[str], str]
"""The address of a node, by what servers call it: with TLS a name, which only the cluster's own DNS knows."""


@dataclass(frozen=True)
class Access:
    """What a client must bring.

    Attributes:
        password: of the user `default`; empty for none.
        authority, certificate, key: files; empty for no TLS, or for no certificate of its own.
    """

    password: str = field(default="", repr=False)
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def options(self) -> dict[str, Any]:
        """As arguments of redis-py's clients."""
        found: dict[str, Any] = {"password": self.password or None}
        if self.authority:
            # A node is reached by the address of its pod, and its certificate bears names.
            found |= {"ssl": True, "ssl_ca_certs": self.authority, "ssl_check_hostname": False}
            found |= {"ssl_certfile": self.certificate or None, "ssl_keyfile": self.key or None}
        return found


class Client(RedisCluster):
    """redis-py's client, which follows MOVED and ASK, and repeats nothing else: that would be felt."""

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """As redis-py's, which knows nodes by their slots: but an ASK may point at one that has none yet."""
        found = super().get_node(host=host, port=port, node_name=node_name)
        if found is None and node_name:
            name, _, number = node_name.rpartition(":")
            found = ClusterNode(*self.nodes_manager.remap_host_port(name, int(number)), **self.connection_kwargs)
            self.nodes_manager.nodes_cache[node_name] = found
        return found

    @classmethod
    async def connected(cls, addresses: Sequence[Address], access: Access, resolve: Resolve = str) -> Client:
        """A client that has found the cluster, by whichever of these nodes answers.

        Raises:
            one of FAILURES: none does.
        """
        if not addresses:
            raise RedisClusterException("no node has an address")
        session = cls(
            startup_nodes=[ClusterNode(host, port) for host, port in addresses],
            address_remap=lambda at: (resolve(at[0]), at[1]),
            require_full_coverage=False,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            protocol=2,
            decode_responses=True,
            **access.options(),
        )
        try:
            await session.initialize()
        except BaseException:
            await session.end()
            raise
        return session

    async def end(self) -> None:
        """Close it, whatever becomes of its connections."""
        with suppress(*FAILURES):
            await self.aclose()

    async def drop_closed(self) -> None:
        """Forget connections that a server closed while nobody used them, as other clients do by themselves."""
        for node in self.nodes_manager.nodes_cache.values():
            for connection in tuple(node._free):
                reader = connection._reader
                if reader is not None and reader.at_eof():
                    await connection.disconnect()


def unless_unclosed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For a loop's exception handler: redis-py drops what it knew of nodes when it looks anew, and complains of it."""
    if not str(context.get("message", "")).startswith("Unclosed"):
        loop.default_exception_handler(context)
