"""Clusters of Redis and Valkey: their own programs, as processes on loopback ports that die with the tests.

They need no container: a suite's loader starts them as whoever runs the tests (e2e/databases/redis_programs.py).
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

from e2e.cluster.machine import processes
from e2e.cluster.machine.network import free_ports
from e2e.databases import redis_programs
from operators.redis.client.connection import connect
from operators.redis.client.errors import RedisError, Refused
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Access, Command, Endpoint, Server
from operators.redis.slots.hash_slots import SLOTS, Slots, key_slot

NEWEST = ("valkey", "9.1")
OLDEST = ("redis", "7.0.15")
"""Both are tried with most changes: the one moves slots by itself, the other key by key."""

HIGHEST_PORT = 19_999
"""The bus listens 10,000 above, and must stay below what the kernel gives to connections by itself."""

OPEN = Access()


@dataclass
class Node:
    """One server.

    Attributes:
        program: how it is started.
        directory: its data, configuration and log.
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
    async def asked(self, access: Access = OPEN) -> AsyncIterator[Server]:
        server = connect(self.endpoint, access)
        try:
            yield server
        finally:
            await server.aclose()

    async def says(self, access: Access = OPEN) -> NodeReport:
        async with self.asked(access) as server:
            return await inspect_node(server)

    def start(self) -> None:
        """Start it, with its former data if there are any, and wait until it listens."""
        file = self.directory / "redis.conf"
        if not file.exists():
            file.write_text("".join(f"{name} {value}\n" for name, value in self.options.items()))
        log = self.directory / "log"
        self.process = processes.start(self.name, [*self.program, file], log=log, dies_with_us=True)
        processes.wait_until(self._listens, self.name, needs=[self.process], timeout=60)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it; its data stay."""
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
    """Servers that were started together, and those that joined them."""

    engine: str
    version: str
    directory: Path
    options: dict[str, str]
    access: Access = OPEN
    nodes: list[Node] = field(default_factory=list)

    def add(self, **options: str) -> Node:
        """One more server, which knows nobody yet."""
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
        """Ask who has no id yet."""
        for node in self.nodes:
            if not node.id:
                async with node.asked(self.access) as server:
                    node.id = await server.execute("CLUSTER", "MYID")

    async def form(self, masters: int, replicas: int = 0) -> None:
        """A cluster of the first servers, the slots in equal parts; then `replicas` of each master."""
        for _ in range(masters * (1 + replicas) - len(self.nodes)):
            self.add()
        await self.identify()
        bounds = [SLOTS * number // masters for number in range(masters + 1)]
        for number, node in enumerate(self.nodes):
            async with node.asked(self.access) as server:
                await server.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number < masters:
                    await server.execute("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        await self.meet(self.nodes[1:])
        for number, node in enumerate(self.nodes[masters:]):
            await self.replicate(node, self.nodes[number % masters])
        await self.settled()

    async def meet(self, nodes: Sequence[Node]) -> None:
        """Let the first server know others."""
        await self.identify()
        async with self.nodes[0].asked(self.access) as server:
            for node in nodes:
                await server.execute("CLUSTER", "MEET", "127.0.0.1", node.port)

    async def join(self, **options: str) -> Node:
        """An empty master that all others know."""
        node = self.add(**options)
        await self.meet([node])
        await self.settled()
        return node

    async def replicate(self, node: Node, master: Node) -> None:
        deadline = time.monotonic() + 60
        async with node.asked(self.access) as server:
            while True:
                with suppress(RedisError):  # it may not know it yet
                    await server.execute("CLUSTER", "REPLICATE", master.id)
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        await self.until(lambda said: said[node.id].link_up and said[node.id].me.is_replica)

    async def says(self) -> dict[str, NodeReport]:
        """What each one says that lives."""
        living = [node for node in self.nodes if node.alive]
        return {
            node.id: said for node, said in zip(living, [await node.says(self.access) for node in living], strict=True)
        }

    async def settled(self) -> dict[str, NodeReport]:
        """Wait until all that live know each other, each slot's owner, and whom each replica follows."""

        def agreed(said: dict[str, NodeReport]) -> bool:
            views = {
                tuple(sorted((node.id, str(node.slots), node.primary) for node in each.nodes if not node.failing))
                for each in said.values()
            }
            known = all({node.id for node in each.nodes} >= set(said) for each in said.values())
            linked = all(node.linked for each in said.values() for node in each.nodes if node.id in said)
            return len(views) == 1 and known and linked and all(each.state_ok for each in said.values())

        return await self.until(agreed)

    async def until(self, holds: Callable[[dict[str, NodeReport]], bool], seconds: float = 90) -> dict[str, NodeReport]:
        """Wait until what they say has something."""
        deadline = time.monotonic() + seconds
        said: dict[str, NodeReport] = {}
        while True:
            with suppress(RedisError):
                said = await self.says()
                if holds(said):
                    return said
            if time.monotonic() > deadline:
                lines = [f"{each.me} of {len(each.nodes)}, ok: {each.state_ok}" for each in said.values()]
                raise AssertionError("\n".join(("not in time:", *lines)))
            await asyncio.sleep(0.1)

    async def owners(self) -> dict[str, Slots]:
        """The slots of each that has some, as it says itself."""
        return {node_id: said.me.slots for node_id, said in (await self.says()).items() if said.me.slots}

    def cli(self, *arguments: str) -> str:
        """What the engine's own client prints.

        Raises:
            AssertionError: it fails.
        """
        command = [*redis_programs.cli(self.engine, self.version), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def check(self) -> None:
        """That the engine's own client finds nothing amiss: all slots owned, none open, all agree."""
        node = next(node for node in self.nodes if node.alive)
        words = ["--user", "default", "--pass", self.access.password] if self.access.password else []
        said = self.cli(*words, "--no-auth-warning", "--cluster", "check", f"127.0.0.1:{node.port}")
        assert "All 16384 slots covered" in said, said
        assert "[WARNING]" not in said, said
        assert "[ERR]" not in said, said

    def end(self) -> None:
        processes.stop([node.process for node in self.nodes if node.process is not None])


def all_know(said: Mapping[str, NodeReport], node: str, master: str = "") -> bool:
    """Whether all know whom a node follows; nobody if it is a master.

    Until they do, a master lets no replica take over, and no slot is opened to or from a new master.
    """
    return all(
        any(known.id == node and known.primary == master for known in each.nodes if known.linked)
        for each in said.values()
    )


class Redis:
    """Starts clusters."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = itertools.count()

    @contextmanager
    def cluster(self, of: tuple[str, str], access: Access = OPEN, **options: str) -> Iterator[Cluster]:
        """A cluster without servers yet; those that it gets end when the context is left.

        Args:
            of: engine and version.
            options: directives of their configuration, with underscores.
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
    """A key of a slot, another one for each number."""
    return b"{%d}:%d" % (_tags()[slot], number)


@lru_cache
def _tags() -> dict[int, int]:
    """For each slot a number that is in it."""
    found: dict[int, int] = {}
    for tag in itertools.count():
        found.setdefault(key_slot(b"%d" % tag), tag)
        if len(found) == SLOTS:
            return found
    raise AssertionError


def free_port() -> int:
    """A port that is free, as is the one of the bus that belongs to it."""
    while True:
        (port,) = free_ports(1)
        if port > HIGHEST_PORT:
            continue
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port + 10_000))
            return port


class Client:
    """Reads and writes as a client of a cluster does: it goes where it is sent (MOVED, ASK)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._servers: dict[int, Server] = {}
        self._owners: dict[int, int] = {}

    async def ask(self, key: bytes, *command: str | int | bytes, seconds: float = 30) -> object:
        """The answer to a command about a key.

        Raises:
            RedisError: none came in time.
        """
        deadline = time.monotonic() + seconds
        slot = key_slot(key)
        while True:
            port = self._owners.get(slot) or next(node.port for node in self._cluster.nodes if node.alive)
            try:
                return await self._ask(slot, port, command)
            except RedisError:
                self._owners.pop(slot, None)
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)

    async def aclose(self) -> None:
        for server in self._servers.values():
            await server.aclose()

    async def _ask(self, slot: int, port: int, command: Command) -> object:
        try:
            answer = await self._server(port).execute(*command)
        except Refused as error:
            *_, where = str(error).split()
            if error.code == "MOVED":
                self._owners[slot] = int(where.rpartition(":")[2])
                return await self._server(self._owners[slot]).execute(*command)
            if error.code != "ASK":
                raise
            _, answer = await self._server(int(where.rpartition(":")[2])).pipe((("ASKING",), command))
            if isinstance(answer, Refused):
                raise answer from None
        return answer

    def _server(self, port: int) -> Server:
        if port not in self._servers:
            node = next(node for node in self._cluster.nodes if node.port == port)
            self._servers[port] = connect(node.endpoint, self._cluster.access)
        return self._servers[port]
