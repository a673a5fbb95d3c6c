"""Clusters of etcd in containers, on loopback addresses of their own: every member has the same ports, as in pods."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from testcontainers.core.container import DockerContainer

from e2e.cluster import binaries
from e2e.cluster.machine.network import free_ports
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.gateway import connect
from operators.etcd.client.http import Wire
from operators.etcd.client.server import Access, Endpoint, EndpointStatus, Server
from operators.etcd.manifests import images as etcd_images
from tests.containers.support.providing import provide

NEWEST = "3.6.16"
"""Of the default's minor version; what holds for it alone is not tried with others."""

DATA, FILES = "/var/lib/etcd", "/etc/etcd"
OPEN = Access()

_addresses = (f"127.0.{third}.{fourth}" for third in range(1, 255) for fourth in range(2, 255))

Found = TypeVar("Found")


@dataclass
class Node:
    """One member's container.

    Attributes:
        ports: for clients, for other members, and of its metrics.
        files: directory that it finds as `DATA`.
    """

    name: str
    address: str
    ports: list[int]
    container: DockerContainer
    files: Path

    @property
    def peer_url(self) -> str:
        return f"http://{self.address}:{self.ports[1]}"

    def endpoint(self, host: str = "") -> Endpoint:
        """Where it is asked.

        Args:
            host: the name that its certificate must bear; by default its address, which its peer URL has, too.
        """
        return Endpoint(self.name, self.address, host or self.address, self.ports[0], self.ports[2])

    @asynccontextmanager
    async def asked(self, access: Access = OPEN, host: str = "") -> AsyncIterator[Server]:
        server = connect(self.endpoint(host), access)
        try:
            yield server
        finally:
            await server.aclose()

    async def status(self, access: Access = OPEN, host: str = "") -> EndpointStatus:
        async with self.asked(access, host) as server:
            return await server.status()

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        self.container.get_wrapped_container().kill(signal=number.name)

    def stop(self) -> None:
        """End it, for `start` to start it again."""
        self.container.get_wrapped_container().stop(timeout=10)

    def start(self) -> None:
        """Start it again, with the same arguments and data."""
        self.container.get_wrapped_container().start()
        self.wait()

    def wait(self, seconds: float = 30) -> None:
        """Wait until it tells its metrics, which needs no quorum; says what it said if it ends instead."""
        wrapped = self.container.get_wrapped_container()
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((self.address, self.ports[2]), 1).close()
                return
            except OSError:
                wrapped.reload()
                if wrapped.status == "exited" or time.monotonic() > deadline:
                    said = wrapped.logs(tail=20).decode()
                    raise AssertionError(f"{self.name} is {wrapped.status} and does not listen: {said}") from None
                time.sleep(0.05)


@dataclass
class Cluster:
    """Members that were started together, and those that joined them."""

    image: str
    directory: Path
    stack: ExitStack
    arguments: tuple[str, ...] = ()
    scheme: str = "http"
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    nodes: list[Node] = field(default_factory=list)

    def begin(self, size: int) -> None:
        """Start members that form a cluster."""
        new = [self._node() for _ in range(size)]
        initial = ",".join(f"{node.name}={node.peer_url}" for node in new)
        for node in new:
            self._run(node, "new", initial)
        for node in new:
            node.wait()

    def prepare(self) -> Node:
        """A member that is not started yet, but whose addresses are known."""
        return self._node()

    def join(self, node: Node) -> None:
        """Start a member that was added to the list."""
        initial = ",".join(f"{other.name}={other.peer_url}" for other in self.nodes)
        self._run(node, "existing", initial)
        node.wait()

    def _node(self) -> Node:
        number = len(self.nodes)
        name = f"demo-{number}"
        files = self.directory / name
        files.mkdir()
        node = Node(name, next(_addresses), self.ports, DockerContainer(self.image), files)
        self.nodes.append(node)
        return node

    def _run(self, node: Node, state: str, initial: str) -> None:
        client, _, metrics = self.ports
        container = node.container
        container.with_volume_mapping(node.files, DATA, "rw")
        container.with_volume_mapping(self.directory, FILES)
        container.with_kwargs(
            network_mode="host", user=f"{os.getuid()}:{os.getgid()}", entrypoint=["/usr/local/bin/etcd"]
        )
        container.with_command(
            [
                f"--name={node.name}",
                f"--data-dir={DATA}/data",
                f"--listen-client-urls={self.scheme}://{node.address}:{client}",
                f"--advertise-client-urls={self.scheme}://{node.address}:{client}",
                f"--listen-peer-urls={node.peer_url}",
                f"--initial-advertise-peer-urls={node.peer_url}",
                f"--listen-metrics-urls=http://{node.address}:{metrics}",
                f"--initial-cluster={initial}",
                f"--initial-cluster-state={state}",
                "--initial-cluster-token=test",
                "--heartbeat-interval=50",
                "--election-timeout=500",
                *self.arguments,
            ]
        )
        self.stack.enter_context(container)


class Etcd:
    """Starts clusters on a Docker daemon.

    Args:
        ours: whether the daemon is that of daemon.py.
    """

    def __init__(self, directory: Path, *, ours: bool) -> None:
        self._directory = directory
        self._ours = ours
        self._count = itertools.count()

    @contextmanager
    def cluster(
        self, version: str = NEWEST, *arguments: str, size: int = 1, scheme: str = "http", files: Path | None = None
    ) -> Iterator[Cluster]:
        """A cluster until the context is left.

        Args:
            arguments: beside those that say where members listen, and to whom they belong.
            scheme: of what clients speak.
            files: directory that members find as `FILES`.
        """
        image = next(image for image in etcd_images.images() if image.tag == etcd_images.TAGS[version])
        provide([image], ours=self._ours)
        directory = files or self._directory / f"cluster-{next(self._count)}"
        directory.mkdir(exist_ok=True)
        with ExitStack() as stack:
            cluster = Cluster(image.tag, directory, stack, arguments, scheme)
            cluster.begin(size)
            yield cluster


def program(version: str, name: str) -> Path:
    """A program of etcd's, such as etcdutl, to be run here."""
    return binaries.build(binaries.ETCD[version]) / name


async def eventually(do: Callable[[], Awaitable[Found]], *passing: type[Exception], seconds: float = 20) -> Found:
    """Do something until it goes well.

    Args:
        passing: what may happen before.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await do()
        except passing as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {error!r}") from error
        await asyncio.sleep(0.1)


async def leader(nodes: list[Node], access: Access = OPEN) -> Node:
    """The leader, once all these agree on it."""

    async def agreed() -> Node:
        said = [await node.status(access) for node in nodes]
        led = next((node for node, status in zip(nodes, said, strict=True) if status.leader == status.member_id), None)
        assert led is not None
        assert len({status.leader for status in said}) == 1
        return led

    return await eventually(agreed, EtcdError, AssertionError)


async def put(node: Node, key: str, value: bytes, access: Access = OPEN, token: str = "") -> None:
    """Write a key."""
    body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
    wire = Wire(node.endpoint(), access)
    try:
        await wire.post("kv/put", body, dict, token=token)
    finally:
        await wire.aclose()
