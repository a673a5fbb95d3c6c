"""Base classes of the calls on running servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from operators.redis.client.errors import RedisError, Unreachable
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Access, Connect, Endpoint, Server
from shared.runtime.plan import Call, Record


@dataclass(frozen=True, slots=True)
class RedisCall(Call):
    """A call on a running cluster."""

    access: Access

    async def carry_out(self, connect: Connect, /) -> None:
        """Carry out the call, unless its goal is reached.

        Raises:
            RedisError: the call was not carried out; after Unreachable, it may have been.
        """
        raise NotImplementedError

    async def carry_out_recorded(self, connect: Connect, record: Record, /) -> None:
        """Carry out the call, as part of an operator.

        Args:
            record: writes fields of the status; see `shared.runtime.plan.Record`.
        """
        del record
        await self.carry_out(connect)


@dataclass(frozen=True, slots=True)
class NodeCall(RedisCall):
    """A call on one node.

    Attributes:
        at: endpoint of the node.
        id: node id that must answer there.
    """

    at: Endpoint
    id: str

    async def carry_out(self, connect: Connect, /) -> None:
        async with known(connect, self.access, self.at, self.id) as (server, report):
            await self.apply(server, report)

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        """Carry out the call on the node, unless its goal is reached.

        Args:
            report: current report of the node.
        """
        raise NotImplementedError


async def each(
    connect: Connect, access: Access, at: Sequence[Endpoint], do: Callable[[Server, NodeReport], Awaitable[None]]
) -> None:
    """Run a function on several nodes; a failure of one does not stop the others.

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
    """Connect to a node, check its id, and return its report.

    Args:
        node_id: expected id; empty for any node.
    """
    server = connect(endpoint, access)
    try:
        report = await inspect_node(server)
        if node_id and report.id != node_id:
            raise Unreachable(
                f"{endpoint.name} is not at {endpoint.address}: found node {report.id} instead of {node_id}."
            )
        yield server, report
    finally:
        await server.aclose()
