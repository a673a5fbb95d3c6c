"""Client of Redis Cluster: redis-py's own, with fixes for its known defects."""

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
"""Seconds until a client stops waiting for an answer."""

FAILURES = (RedisError, RedisClusterException, OSError, asyncio.TimeoutError)
"""Exceptions of a failed attempt."""

Address = tuple[str, int]
"""Host and port of a node."""

Resolve = Callable[[str], str]
"""Returns the address of a node by the name that servers announce, which with TLS only the cluster's DNS resolves."""


@dataclass(frozen=True)
class Access:
    """Credentials of a client.

    Attributes:
        password: password of the user `default`; empty for none.
        authority, certificate, key: paths of files; empty for no TLS, or no client certificate.
    """

    password: str = field(default="", repr=False)
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def options(self) -> dict[str, Any]:
        """Return the arguments of redis-py's clients."""
        found: dict[str, Any] = {"password": self.password or None}
        if self.authority:
            # Nodes are addressed by IP, and certificates have host names.
            found |= {"ssl": True, "ssl_ca_certs": self.authority, "ssl_check_hostname": False}
            found |= {"ssl_certfile": self.certificate or None, "ssl_keyfile": self.key or None}
        return found


class Client(RedisCluster):
    """redis-py's client, which follows `MOVED` and `ASK` but repeats nothing else, so that failures are visible."""

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """Return a node as redis-py does, and add the target of an `ASK`, which may own no slots yet."""
        found = super().get_node(host=host, port=port, node_name=node_name)
        if found is None and node_name:
            name, _, number = node_name.rpartition(":")
            found = ClusterNode(*self.nodes_manager.remap_host_port(name, int(number)), **self.connection_kwargs)
            self.nodes_manager.nodes_cache[node_name] = found
        return found

    @classmethod
    async def connected(cls, addresses: Sequence[Address], access: Access, resolve: Resolve = str) -> Client:
        """Connect to the cluster through any of these nodes.

        Raises:
            one of FAILURES: no node responds.
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
        """Close the client, and ignore errors of its connections."""
        with suppress(*FAILURES):
            await self.aclose()

    async def drop_closed(self) -> None:
        """Drop idle connections that a server closed, as other clients do."""
        for node in self.nodes_manager.nodes_cache.values():
            for connection in tuple(node._free):
                reader = connection._reader
                if reader is not None and reader.at_eof():
                    await connection.disconnect()


def ignore_unclosed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle exceptions of an event loop, except redis-py's complaint about nodes that it drops on rediscovery."""
    if not str(context.get("message", "")).startswith("Unclosed"):
        loop.default_exception_handler(context)
