"""The nodes of a migration, connected once and identified by their id; and its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from operators.redis.client.errors import RedisError, Refused, Unreachable, sure
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Access, Command, Connect, Endpoint, Server
from operators.redis.slots.hash_slots import Slots


@dataclass(frozen=True)
class Limits:
    """Limits of a migration.

    Attributes:
        until: time of the loop's clock after which no further batch is started.
        keys: maximum number of keys of a slot in one command.
        promoted: slots whose recorded source is no longer their owner, because a replica of it took over: there, a
            key that exists at both ends is never replaced at the target.
        acknowledge: whether each batch waits until a replica of the target has it, if the target has replicas.
    """

    until: float
    keys: int
    promoted: Slots
    acknowledge: bool


@dataclass
class SingleConnection:
    """A connection that is not opened again after it failed.

    The server may have restarted in between, so what was known about it is outdated. The next call inspects it.
    """

    server: Server
    failure: str = ""

    async def execute(self, *command: str | int | bytes) -> Any:
        (answer,) = await self.pipe((command,))
        return sure(answer)

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        if self.failure:
            raise Unreachable(self.failure)
        try:
            return await self.server.pipe(commands)
        except Unreachable as error:
            self.failure = str(error)
            raise

    async def aclose(self) -> None:
        await self.server.aclose()


@dataclass(frozen=True)
class End:
    """A node with its current report.

    Attributes:
        server: connection on which the report was read; it ends with the first failure.
        connect: opens another connection.
    """

    report: NodeReport
    endpoint: Endpoint
    server: Server
    connect: Connect
    access: Access = field(repr=False)

    @property
    def id(self) -> str:
        return self.report.id

    @property
    def name(self) -> str:
        """Name of the pod."""
        return self.endpoint.name

    def inherits(self, node_id: str) -> bool:
        """Return whether this node owns the slots of another, which replicates it, has failed or no longer exists."""
        other = self.report.node(node_id)
        return other is None or other.primary == self.id or (other.failing and not other.slots)

    def replaces(self, node_id: str) -> bool:
        """Return whether this node has the keys that another received, which replicates it or no longer exists."""
        other = self.report.node(node_id)
        return other is None or other.primary == self.id

    @asynccontextmanager
    async def reconnected(self) -> AsyncIterator[Server]:
        """Open another connection to the node until the context is left.

        Raises:
            Unreachable: the node is unreachable, or another one has its address.
        """
        server = self.connect(self.endpoint, self.access)
        try:
            if (found := await server.execute("CLUSTER", "MYID")) != self.id:
                raise Unreachable(f"{self.name} is no longer node {self.id}: found {found!s:.60} at its address.")
            yield server
        finally:
            await server.aclose()


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
            server = SingleConnection(connect(endpoint, access))
            servers.append(server)
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
            return End(report, endpoint, server, connect, access)

        try:
            ids = list(dict.fromkeys(desired))
            found = dict(zip(ids, await asyncio.gather(*map(end, ids)), strict=True))
            yield cls(
                {node_id: each for node_id, each in found.items() if isinstance(each, End)},
                {node_id: each for node_id, each in found.items() if isinstance(each, RedisError)},
            )
        finally:
            await asyncio.gather(*(server.aclose() for server in servers))
