"""etcd clusters in containers; every member has its own loopback address and the same ports, as in pods."""

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

from operators.etcd.client.errors import EtcdError
from operators.etcd.client.gateway import connect
from operators.etcd.client.http import Wire
from operators.etcd.client.server import Access, Endpoint, EndpointStatus, Server
from operators.etcd.manifests import images as etcd_images
from tests.support.containers.providing import provide
from tools.local import binaries
from tools.local.machine.network import free_ports

NEWEST = "3.6.16"
"""Latest patch of the default minor version; tests of behavior specific to it run with no other version."""

DATA, FILES = "/var/lib/etcd", "/etc/etcd"
OPEN = Access()

_addresses = (f"127.0.{third}.{fourth}" for third in range(1, 255) for fourth in range(2, 255))

Found = TypeVar("Found")


@dataclass
class Node:
    """Container of one member.

    Attributes:
        ports: ports for clients, peers and metrics.
        files: directory mounted as `DATA`.
        peer_scheme: URL scheme for peers.
    """

    name: str
    address: str
    ports: list[int]
    container: DockerContainer
    files: Path
    peer_scheme: str = "http"

    @property
    def peer_url(self) -> str:
        return f"{self.peer_scheme}://{self.address}:{self.ports[1]}"

    def endpoint(self, host: str = "") -> Endpoint:
        """Return the endpoint of the member.

        Args:
            host: name that the certificate must contain; by default the member's address, as in its peer URL.
        """
        return Endpoint(self.name, self.address, host or self.address, self.ports[0], self.ports[2])

    @asynccontextmanager
    async def connected(self, access: Access = OPEN, host: str = "") -> AsyncIterator[Server]:
        server = connect(self.endpoint(host), access)
        try:
            yield server
        finally:
            await server.aclose()

    async def status(self, access: Access = OPEN, host: str = "") -> EndpointStatus:
        async with self.connected(access, host) as server:
            return await server.status()

    def log(self) -> str:
        """Return what the member logged."""
        return str(self.container.get_wrapped_container().logs().decode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the member's process."""
        self.container.get_wrapped_container().kill(signal=number.name)

    def stop(self) -> None:
        """Stop the container; `start` starts it again."""
        self.container.get_wrapped_container().stop(timeout=10)

    def start(self) -> None:
        """Start the stopped container again, with the same arguments and data."""
        self.container.get_wrapped_container().start()
        self.wait()

    def wait(self, seconds: float = 30) -> None:
        """Wait until the member serves metrics, which needs no quorum; fail with its log if it exits."""
        wrapped = self.container.get_wrapped_container()
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((self.address, self.ports[2]), 1).close()
                return
            except OSError:
                wrapped.reload()
                if wrapped.status == "exited" or time.monotonic() > deadline:
                    log = wrapped.logs(tail=20).decode()
                    raise AssertionError(f"{self.name} is {wrapped.status} and does not listen: {log}") from None
                time.sleep(0.05)


@dataclass
class Cluster:
    """Members that were started together, and those that joined later."""

    image: str
    directory: Path
    stack: ExitStack
    arguments: tuple[str, ...] = ()
    scheme: str = "http"
    peer_scheme: str = "http"
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
        """Return a member that is not started yet, but has an address."""
        return self._node()

    def join(self, node: Node) -> None:
        """Start a member that has been added to the cluster."""
        initial = ",".join(f"{other.name}={other.peer_url}" for other in self.nodes)
        self._run(node, "existing", initial)
        node.wait()

    def change(self, node: Node, image: str, *arguments: str) -> None:
        """Restart a member on its data with another image, and further arguments; it may exit again.

        Args:
            image: tag of the image, which exists (`Etcd.image`).
        """
        node.stop()
        node.container = DockerContainer(image)
        self._run(node, "existing", f"{node.name}={node.peer_url}", *arguments)  # ignored on existing data

    def _node(self) -> Node:
        number = len(self.nodes)
        name = f"demo-{number}"
        files = self.directory / name
        files.mkdir()
        node = Node(name, next(_addresses), self.ports, DockerContainer(self.image), files, self.peer_scheme)
        self.nodes.append(node)
        return node

    def _run(self, node: Node, state: str, initial: str, *arguments: str) -> None:
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
                *arguments,
            ]
        )
        self.stack.enter_context(container)


class Etcd:
    """Factory of clusters on a Docker daemon.

    Args:
        directory: parent directory of the members' data.
        own_daemon: whether daemon.py runs the daemon.
    """

    def __init__(self, directory: Path, *, own_daemon: bool) -> None:
        self._directory = directory
        self._own_daemon = own_daemon
        self._count = itertools.count()

    @contextmanager
    def cluster(
        self,
        version: str = NEWEST,
        *arguments: str,
        size: int = 1,
        scheme: str = "http",
        peer_scheme: str = "http",
        files: Path | None = None,
    ) -> Iterator[Cluster]:
        """Run a cluster until the end of the context.

        Args:
            version: version of etcd.
            arguments: etcd flags in addition to those for listen addresses and cluster membership.
            size: number of members.
            scheme: URL scheme for clients.
            peer_scheme: URL scheme for peers.
            files: directory mounted as `FILES`.
        """
        image = self.image(version)
        directory = files or self._directory / f"cluster-{next(self._count)}"
        directory.mkdir(exist_ok=True)
        with ExitStack() as stack:
            cluster = Cluster(image, directory, stack, arguments, scheme, peer_scheme)
            cluster.begin(size)
            yield cluster

    def image(self, version: str) -> str:
        """Return the tag of the image of a version, which exists then."""
        image = next(image for image in etcd_images.images() if image.tag == etcd_images.TAGS[version])
        provide([image], own_daemon=self._own_daemon)
        return image.tag


def program(version: str, name: str) -> Path:
    """Return the path of a program of etcd, such as etcdutl, to run on this machine."""
    return binaries.build(binaries.ETCD[version]) / name


async def eventually(do: Callable[[], Awaitable[Found]], *passing: type[Exception], seconds: float = 20) -> Found:
    """Retry an operation until it succeeds, and return its result.

    Args:
        do: operation to retry.
        passing: exceptions after which the operation is retried.
        seconds: timeout.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await do()
        except passing as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"timed out after {seconds:g} s: {error!r}") from error
        await asyncio.sleep(0.1)


async def leader(nodes: list[Node], access: Access = OPEN) -> Node:
    """Wait until all nodes agree on the leader, and return it."""

    async def agreed() -> Node:
        statuses = [await node.status(access) for node in nodes]
        pairs = zip(nodes, statuses, strict=True)
        elected = next((node for node, status in pairs if status.leader == status.member_id), None)
        assert elected is not None
        assert len({status.leader for status in statuses}) == 1
        return elected

    return await eventually(agreed, EtcdError, AssertionError)


async def put(node: Node, key: str, value: bytes, access: Access = OPEN, token: str = "") -> None:
    """Write a key."""
    body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
    wire = Wire(node.endpoint(), access)
    try:
        await wire.post("kv/put", body, dict, token=token)
    finally:
        await wire.aclose()


async def count(node: Node, access: Access = OPEN) -> int:
    """Return the number of keys."""
    everything = base64.b64encode(b"\0").decode()
    wire = Wire(node.endpoint(), access)
    try:
        answer = await wire.post("kv/range", {"key": everything, "range_end": everything, "count_only": True}, dict)
    finally:
        await wire.aclose()
    return int(answer.get("count", 0))
