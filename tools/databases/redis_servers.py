"""Redis and Valkey clusters: processes on loopback ports, which end with the tests.

They run as the current user, without containers (see tools/databases/redis_programs.py).
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from redis.crc import key_slot

from operators.redis.api.catalogue import CATALOGUES
from operators.redis.client.connection import connect
from operators.redis.client.errors import RedisError, Refused
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Access, Command, Endpoint, Server
from operators.redis.slots.hash_slots import SLOTS, Slots
from tools.databases import redis_programs
from tools.local.machine import processes
from tools.local.machine.network import free_ports

NEWEST = ("valkey", "9.1")
OLDEST = ("redis", "7.0.15")
"""The newest version migrates slots atomically, the oldest key by key."""

DEFAULTS = tuple((name, redis_programs.exact(name, catalogue.default)) for name, catalogue in CATALOGUES.items())
"""The available version of the line of each default version."""

REGULAR = tuple(dict.fromkeys((*DEFAULTS, OLDEST, NEWEST)))
"""Versions of each run; a weekly run has all."""

HIGHEST_PORT = 19_999
"""Highest client port; the cluster bus port is 10,000 higher and must be below the kernel's ephemeral ports."""

OPEN = Access()


@dataclass
class Node:
    """One server.

    Attributes:
        program: command that starts the server.
        directory: data, configuration and log of the server.
    """

    name: str
    port: int
    program: Sequence[str]
    directory: Path
    options: dict[str, str]
    process: processes.Process | None = None
    id: str = ""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, "127.0.0.1", f"{self.name}.demo.test", self.port, self.id)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @asynccontextmanager
    async def connected(self, access: Access = OPEN) -> AsyncIterator[Server]:
        server = connect(self.endpoint, access)
        try:
            yield server
        finally:
            await server.aclose()

    async def report(self, access: Access = OPEN) -> NodeReport:
        async with self.connected(access) as server:
            return await inspect_node(server)

    def start(self) -> None:
        """Start the server with its existing data, if any, and wait until it listens."""
        file = self.directory / "redis.conf"
        if not file.exists():
            file.write_text("".join(f"{name} {value}\n" for name, value in self.options.items()))
        log = self.directory / "log"
        self.process = processes.start(self.name, [*self.program, file], log=log, dies_with_us=True)
        processes.wait_until(self._listens, self.name, needs=[self.process], timeout=60)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Stop the server and keep its data."""
        if self.process is not None:
            self.process.signal(number)
            processes.stop([self.process], grace=10 if number is signal.SIGTERM else 0)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.signal(number)

    def _listens(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False


@dataclass
class Cluster:
    """Servers that were started together, and those that joined later."""

    engine: str
    version: str
    directory: Path
    options: dict[str, str]
    access: Access = OPEN
    nodes: list[Node] = field(default_factory=list)

    def add(self, **options: str) -> Node:
        """Start a server that knows no other node yet."""
        name = f"demo-{len(self.nodes)}"
        directory = self.directory / name
        directory.mkdir()
        port = free_port()
        encrypted = "tls-cert-file" in self.options
        given = {
            "bind": "127.0.0.1",
            "port": "0" if encrypted else str(port),
            "tls-port": str(port) if encrypted else "0",
            "dir": str(directory),
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": "2000",
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync-delay": "0",
            "appendonly": "yes",
            "appendfsync": "no",
            "save": '""',
            **self.options,
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        node = Node(name, port, redis_programs.server(self.engine, self.version), directory, given)
        self.nodes.append(node)
        node.start()
        return node

    async def identify(self) -> None:
        """Query the ID of every node whose ID is not known yet."""
        for node in self.nodes:
            if not node.id:
                async with node.connected(self.access) as server:
                    node.id = await server.execute("CLUSTER", "MYID")

    async def form(self, primaries: int, replicas: int = 0) -> None:
        """Create a cluster with equal shares of the slots and `replicas` replicas per primary."""
        for _ in range(primaries * (1 + replicas) - len(self.nodes)):
            self.add()
        await self.identify()
        bounds = [SLOTS * number // primaries for number in range(primaries + 1)]
        for number, node in enumerate(self.nodes):
            async with node.connected(self.access) as server:
                await server.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number < primaries:
                    await server.execute("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        await self.meet(self.nodes[1:])
        for number, node in enumerate(self.nodes[primaries:]):
            await self.replicate(node, self.nodes[number % primaries])
        await self.settled()

    async def meet(self, nodes: Sequence[Node]) -> None:
        """Send CLUSTER MEET for the given nodes to the first server."""
        await self.identify()
        async with self.nodes[0].connected(self.access) as server:
            for node in nodes:
                await server.execute("CLUSTER", "MEET", "127.0.0.1", node.port)

    async def join(self, **options: str) -> Node:
        """Add an empty primary and wait until all other nodes know it."""
        node = self.add(**options)
        await self.meet([node])
        await self.settled()
        return node

    async def replicate(self, node: Node, primary: Node) -> None:
        deadline = time.monotonic() + 60
        async with node.connected(self.access) as server:
            while True:
                with suppress(RedisError):  # the node may not know its primary yet
                    await server.execute("CLUSTER", "REPLICATE", primary.id)
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        await self.until(lambda reports: reports[node.id].link_up and reports[node.id].me.is_replica)

    async def reports(self) -> dict[str, NodeReport]:
        """Return the report of each running node, by node ID."""
        running = [node for node in self.nodes if node.alive]
        return {node.id: await node.report(self.access) for node in running}

    async def settled(self) -> dict[str, NodeReport]:
        """Wait until all running nodes have the same view of nodes, slot owners and primaries of replicas."""

        def agreed(reports: dict[str, NodeReport]) -> bool:
            views = {
                tuple(sorted((node.id, str(node.slots), node.primary) for node in each.nodes if not node.failing))
                for each in reports.values()
            }
            known = all({node.id for node in each.nodes} >= set(reports) for each in reports.values())
            linked = all(node.linked for each in reports.values() for node in each.nodes if node.id in reports)
            return len(views) == 1 and known and linked and all(each.state_ok for each in reports.values())

        return await self.until(agreed)

    async def until(self, holds: Callable[[dict[str, NodeReport]], bool], seconds: float = 90) -> dict[str, NodeReport]:
        """Wait until `holds` returns true for the reports of the running nodes, and return the reports."""
        deadline = time.monotonic() + seconds
        reports: dict[str, NodeReport] = {}
        while True:
            with suppress(RedisError):
                reports = await self.reports()
                if holds(reports):
                    return reports
            if time.monotonic() > deadline:
                lines = [
                    f"{each.me}, known nodes: {len(each.nodes)}, state ok: {each.state_ok}" for each in reports.values()
                ]
                raise AssertionError("\n".join((f"timed out after {seconds:g} s; last reports:", *lines)))
            await asyncio.sleep(0.1)

    async def owners(self) -> dict[str, Slots]:
        """Return the slots of each primary that owns any, from its own report."""
        return {node_id: report.me.slots for node_id, report in (await self.reports()).items() if report.me.slots}

    def cli(self, *arguments: str) -> str:
        """Run ``redis-cli`` or ``valkey-cli`` and return its output.

        Raises:
            AssertionError: the command fails.
        """
        command = [*redis_programs.cli(self.engine, self.version), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def check(self) -> None:
        """Assert that ``--cluster check`` of the engine's client passes: all slots owned, none open, views agree."""
        node = next(node for node in self.nodes if node.alive)
        login = ["--user", "default", "--pass", self.access.password] if self.access.password else []
        output = self.cli(*login, "--no-auth-warning", "--cluster", "check", f"127.0.0.1:{node.port}")
        assert "All 16384 slots covered" in output, output
        assert "[WARNING]" not in output, output
        assert "[ERR]" not in output, output

    def end(self) -> None:
        processes.stop([node.process for node in self.nodes if node.process is not None])


def all_know(reports: Mapping[str, NodeReport], node: str, primary: str = "") -> bool:
    """Return whether all nodes know the primary of a node; `primary` is empty if the node itself is one.

    Until then a primary accepts no failover, and no slot can be opened to or from a new primary.
    """
    return all(
        any(known.id == node and known.primary == primary for known in each.nodes if known.linked)
        for each in reports.values()
    )


class Redis:
    """Factory of clusters."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = itertools.count()

    @contextmanager
    def cluster(self, of: tuple[str, str], access: Access = OPEN, **options: str) -> Iterator[Cluster]:
        """Create a cluster without servers; all its servers are stopped at the end of the context.

        Args:
            of: engine and version.
            access: credentials for connections.
            options: configuration directives of the servers, with underscores instead of hyphens.
        """
        directory = self._directory / f"cluster-{next(self._count)}"
        directory.mkdir()
        given = {name.replace("_", "-"): value for name, value in options.items()}
        cluster = Cluster(*of, directory, given, access)
        try:
            yield cluster
        finally:
            cluster.end()


def key_in(slot: int, number: int = 0) -> bytes:
    """Return a key in a slot; each number gives a different key."""
    return b"{%d}:%d" % (_tags()[slot], number)


@lru_cache
def _tags() -> dict[int, int]:
    """Return a hash tag for each slot: a number that hashes to the slot."""
    found: dict[int, int] = {}
    for tag in itertools.count():
        found.setdefault(key_slot(b"%d" % tag), tag)
        if len(found) == SLOTS:
            return found
    raise AssertionError


def free_port() -> int:
    """Return a free port whose cluster bus port is free too."""
    while True:
        (port,) = free_ports(1)
        if port > HIGHEST_PORT:
            continue
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port + 10_000))
            return port


class Client:
    """Cluster client that follows redirections (`MOVED`, `ASK`)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._servers: dict[int, Server] = {}
        self._owners: dict[int, int] = {}

    async def send(self, key: bytes, *command: str | int | bytes, seconds: float = 30) -> object:
        """Send a command for a key and return the reply; retry until the timeout.

        Raises:
            RedisError: no attempt succeeded in time.
        """
        deadline = time.monotonic() + seconds
        slot = key_slot(key)
        while True:
            port = self._owners.get(slot) or next(node.port for node in self._cluster.nodes if node.alive)
            try:
                return await self._send(slot, port, command)
            except RedisError:
                self._owners.pop(slot, None)
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)

    async def aclose(self) -> None:
        for server in self._servers.values():
            await server.aclose()

    async def _send(self, slot: int, port: int, command: Command) -> object:
        try:
            reply = await self._server(port).execute(*command)
        except Refused as error:
            *_, address = str(error).split()
            if error.code == "MOVED":
                self._owners[slot] = int(address.rpartition(":")[2])
                return await self._server(self._owners[slot]).execute(*command)
            if error.code != "ASK":
                raise
            _, reply = await self._server(int(address.rpartition(":")[2])).pipe((("ASKING",), command))
            if isinstance(reply, Refused):
                raise reply from None
        return reply

    def _server(self, port: int) -> Server:
        if port not in self._servers:
            node = next(node for node in self._cluster.nodes if node.port == port)
            self._servers[port] = connect(node.endpoint, self._cluster.access)
        return self._servers[port]
