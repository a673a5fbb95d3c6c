"""The nodes of a migration: connected once, and identified by their id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from operators.redis.api.engine_versions import Engine, Features, features
from operators.redis.client.errors import RedisError, Refused, Unreachable
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Access, Connect, Endpoint, Server


@dataclass(frozen=True)
class End:
    """A node with its current report.

    Attributes:
        pulse: second connection, which measures the latency.
    """

    report: NodeReport
    endpoint: Endpoint
    server: Server
    pulse: Server
    access: Access = field(repr=False)

    @property
    def id(self) -> str:
        return self.report.id

    @property
    def name(self) -> str:
        """Name of the pod."""
        return self.endpoint.name

    @property
    def features(self) -> Features:
        return features(Engine.parse(f"{self.report.engine} {self.report.version}"))

    def inherits(self, node_id: str) -> bool:
        """Return whether this node owns the slots of another, which replicates it, has failed or no longer exists."""
        other = self.report.node(node_id)
        return other is None or other.primary == self.id or (other.failing and not other.slots)

    def replaces(self, node_id: str) -> bool:
        """Return whether this node has the keys that another received, which replicates it or no longer exists."""
        other = self.report.node(node_id)
        return other is None or other.primary == self.id


@dataclass
class Ends:
    """The ends of moves; unreachable ones are omitted, with the reason.

    Attributes:
        of: ends by node id.
        missing: errors by node id.
    """

    of: Mapping[str, End]
    missing: Mapping[str, RedisError]

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, connect: Connect, access: Access, endpoints: Mapping[str, Endpoint], desired: Iterable[str]
    ) -> AsyncIterator[Ends]:
        """Connect to the ends until the context is left.

        Args:
            endpoints: endpoints by node id.
            desired: node ids of the ends.
        """
        servers: list[Server] = []

        async def end(node_id: str) -> End | RedisError:
            if (endpoint := endpoints.get(node_id)) is None:
                return Unreachable(f"The address of node {node_id} is unknown.")
            server, pulse = connect(endpoint, access), connect(endpoint, access)
            servers.extend((server, pulse))
            try:
                report = await inspect_node(server)
            except RedisError as error:
                return error
            if report.id != node_id:
                return Unreachable(f"{endpoint.name} is no longer node {node_id}: found {report.id} at its address.")
            if not report.me.is_primary:
                return Refused(
                    f"{endpoint.name} ({node_id}) is no longer a primary; the migration must be planned again."
                )
            return End(report, endpoint, server, pulse, access)

        try:
            ids = list(dict.fromkeys(desired))
            found = dict(zip(ids, await asyncio.gather(*map(end, ids)), strict=True))
            yield cls(
                {node_id: each for node_id, each in found.items() if isinstance(each, End)},
                {node_id: each for node_id, each in found.items() if isinstance(each, RedisError)},
            )
        finally:
            await asyncio.gather(*(server.aclose() for server in servers))
