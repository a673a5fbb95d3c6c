"""The nodes between which slots move: each asked over one connection, and known by its id before anything else."""

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
    """A node as it has just said that it is.

    Attributes:
        pulse: a second connection, on which it is asked how quickly it answers others.
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
        """The pod's."""
        return self.endpoint.name

    @property
    def features(self) -> Features:
        return features(Engine.parse(f"{self.report.engine} {self.report.version}"))

    def inherits(self, node_id: str) -> bool:
        """Whether slots of another are this one's now: that one replicates it, has failed, or is gone."""
        other = self.report.node(node_id)
        return other is None or other.primary == self.id or (other.failing and not other.slots)

    def replaces(self, node_id: str) -> bool:
        """Whether keys that another was given are here: it replicates this one, or is gone."""
        other = self.report.node(node_id)
        return other is None or other.primary == self.id


@dataclass
class Ends:
    """The ends of moves; those that cannot be asked are left out, with the reason why.

    Attributes:
        of: by node id.
        missing: why an end is not there, by node id.
    """

    of: Mapping[str, End]
    missing: Mapping[str, RedisError]

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, connect: Connect, access: Access, endpoints: Mapping[str, Endpoint], desired: Iterable[str]
    ) -> AsyncIterator[Ends]:
        """Connections until the context is left.

        Args:
            endpoints: by node id.
            wanted: ids of those that are asked.
        """
        servers: list[Server] = []

        async def end(node_id: str) -> End | RedisError:
            if (endpoint := endpoints.get(node_id)) is None:
                return Unreachable(f"Nobody knows where node {node_id} is asked.")
            server, pulse = connect(endpoint, access), connect(endpoint, access)
            servers.extend((server, pulse))
            try:
                report = await inspect_node(server)
            except RedisError as error:
                return error
            if report.id != node_id:
                return Unreachable(f"{endpoint.name} is not {node_id} any more: {report.id} answers at its address.")
            if not report.me.is_primary:
                return Refused(f"{endpoint.name} ({node_id}) is no master any more: moves must be planned anew.")
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
