"""Verifies the handshakes that CLUSTER MEET begins: only the expected node may become a member.

A handshake happens on the cluster bus after the command was accepted, and is retried until the node timeout. Until it
ends, the address may be given to a node of another cluster. That node would become a member, and introduce all members
of its own cluster.

The foreign node still knows the nodes that met it. It gets no CLUSTER FORGET: since Redis 7.2 that spreads by gossip,
also back to these nodes. Since Valkey 8.1 such a node sends MEET itself after the node timeout: a bus port of its own,
a NetworkPolicy or TLS keeps it out; otherwise `preconditions.refuse_unknown_nodes` reports it.

Source: clusterStartHandshake and clusterProcessPacket in src/cluster_legacy.c of redis 7.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.redis.client.command_base import each
from operators.redis.client.errors import ForeignNodeMet, RedisError, Refused, Unreachable
from operators.redis.client.responses import MALFORMED, Node, NodeReport, parse_nodes
from operators.redis.client.server import Access, Connect, Endpoint, Server

POLL_INTERVAL_SECONDS = 0.1
"""Time between inspections of a handshake, which usually takes one or two ticks of the cluster bus (0.1 s)."""

MAX_POLLS = 50
"""Polls after which a handshake is cancelled. They take 5 s, the default of cluster-node-timeout."""

QUIET_POLLS = 10
"""Polls without a foreign node after which none is expected to appear any more."""


@dataclass(frozen=True, slots=True)
class Handshakes:
    """Handshakes of several nodes with one other node.

    Attributes:
        at: endpoint of the other node.
        bus: port of its cluster bus.
        expected: id of the other node.
        own: ids that belong to the cluster, whether members or not.
        before: ids that each node knew before its handshake, by the endpoint of the node.
    """

    access: Access
    at: Endpoint
    bus: int
    expected: str
    own: frozenset[str]
    before: Mapping[Endpoint, frozenset[str]]

    async def verify(self, connect: Connect, via: Sequence[Endpoint]) -> None:
        """Wait until the handshakes ended.

        Args:
            via: all nodes that may know a foreign node by now.

        Raises:
            ForeignNodeMet: another node answered; all nodes that know it have forgotten it.
            RedisError: a node is unreachable, or a handshake has not ended in time, and is cancelled.
        """
        pending, foreign, failures = list(self.before), set[str](), list[RedisError]()
        for _ in range(MAX_POLLS):
            pending = [at for at in pending if await self._pends(connect, at, foreign, failures)]
            if foreign or not pending:
                break
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        if foreign:
            await self._expel(connect, via)
            raise ForeignNodeMet(
                f"{', '.join(sorted(foreign))} answered at {self.at.address} instead of {self.at.name}: the address "
                "belongs to another node now. All nodes that had met it have forgotten it. Check that a "
                f"NetworkPolicy protects port {self.bus} of both clusters (spec.network)."
            )
        await each(connect, self.access, pending, self._cancel)
        for failure in failures:
            raise failure
        if pending:
            raise Unreachable(
                f"{self.at.name} does not answer {', '.join(sorted(at.name for at in pending))} on the cluster bus: "
                f"the handshake (CLUSTER MEET) with {self.at.address}, port {self.bus}, did not end within "
                f"{MAX_POLLS * POLL_INTERVAL_SECONDS:.0f} s. Check that the network and its policies admit that port."
            )

    async def _pends(self, connect: Connect, endpoint: Endpoint, foreign: set[str], failures: list[RedisError]) -> bool:
        """Return whether the handshake of a node has not ended; collect the ids of other nodes at the address."""
        server = connect(endpoint, self.access)
        try:
            there = self._at_address(await server.execute("CLUSTER", "NODES"))
        except RedisError as error:
            failures.append(error)
            return False
        except MALFORMED as error:
            failures.append(Unreachable(f"{endpoint.name} is not a Redis or Valkey cluster node: {repr(error)[:200]}."))
            return False
        finally:
            await server.aclose()
        foreign |= {node.id for node in there if not node.handshake} - self._known
        return any(node.handshake for node in there)

    @property
    def _known(self) -> frozenset[str]:
        return self.own.union({self.expected}, *self.before.values())

    def _at_address(self, text: str) -> list[Node]:
        """Return the entries with the address; other lines are not parsed, because there may be hundreds."""
        lines = (line for line in text.splitlines() if f" {self.at.address}:{self.at.port}@" in line)
        return list(parse_nodes("\n".join(lines)))

    async def _expel(self, connect: Connect, via: Sequence[Endpoint]) -> None:
        """Let all nodes forget all nodes that they met since: a foreign node introduces the members of its cluster.

        Until the last handshake has ended, nodes that were forgotten may appear again, with another id.
        """
        found: list[str] = []

        async def expel(server: Server, report: NodeReport) -> None:
            for node in report.nodes:
                if node.id not in self._known:
                    found.append(node.id)
                    await _forget(server, node.id)

        quiet = 0
        for _ in range(MAX_POLLS):
            found.clear()
            await each(connect, self.access, via, expel)
            quiet = 0 if found else quiet + 1
            if quiet == QUIET_POLLS:
                return
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def _cancel(self, server: Server, report: NodeReport) -> None:
        """Remove a handshake that has not ended: a node that answers at the address later is not verified."""
        for node in report.nodes:
            if node.handshake and (node.address, node.port) == (self.at.address, self.at.port):
                await _forget(server, node.id)


async def _forget(server: Server, node_id: str) -> None:
    try:
        await server.execute("CLUSTER", "FORGET", node_id)
    except Refused as error:
        if "Unknown node" not in str(error):  # a handshake may have ended since
            raise
