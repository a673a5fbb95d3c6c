"""How a step on a running cluster is carried out: where it is asked, and who must answer there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from operators.redis.client.errors import RedisError, Unreachable
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Access, Connect, Endpoint, Server
from shared.runtime.plan import Call


@dataclass(frozen=True, slots=True)
class RedisCall(Call):
    """One step on a running cluster."""

    access: Access

    async def carry_out(self, connect: Connect, /) -> None:
        """Do it, unless it is done.

        Raises:
            RedisError: it was not done; after Unreachable, perhaps it was.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class NodeCall(RedisCall):
    """One step on one node.

    Attributes:
        at: where it is asked.
        id: who must answer there.
    """

    at: Endpoint
    id: str

    async def carry_out(self, connect: Connect, /) -> None:
        async with known(connect, self.access, self.at, self.id) as (server, report):
            await self.tell(server, report)

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        """Do it, unless it is done.

        Args:
            said: what the node has just said.
        """
        raise NotImplementedError


async def each(
    connect: Connect, access: Access, at: Sequence[Endpoint], do: Callable[[Server, NodeReport], Awaitable[None]]
) -> None:
    """Do something at several nodes; where one fails, at the others all the same.

    Raises:
        RedisError: the first failure.
    """

    async def one(endpoint: Endpoint) -> RedisError | None:
        try:
            async with known(connect, access, endpoint, endpoint.id) as (server, report):
                await do(server, report)
        except RedisError as error:
            return error
        return None

    for failure in [await one(endpoint) for endpoint in at]:
        if failure is not None:
            raise failure


@asynccontextmanager
async def known(
    connect: Connect, access: Access, endpoint: Endpoint, node_id: str
) -> AsyncIterator[tuple[Server, NodeReport]]:
    """A node that is the one that is meant, and what it says.

    Args:
        node_id: empty for whoever answers.
    """
    server = connect(endpoint, access)
    try:
        report = await inspect_node(server)
        if node_id and report.id != node_id:
            raise Unreachable(
                f"{endpoint.name} is not at {endpoint.address}: {report.id} answers there, not {node_id}."
            )
        yield server, report
    finally:
        await server.aclose()
