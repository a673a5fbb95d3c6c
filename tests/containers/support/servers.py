"""Memcached in containers, with files that tests change under it."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError
from testcontainers.core.container import DockerContainer

from e2e.cluster.machine.network import free_ports
from operators.memcached.manifests import images as memcached_images
from tests.containers.support.providing import provide

VERSIONS = tuple(sorted(memcached_images.VERSIONS.values()))
FILES = "/etc/memcached"
"""Where a server finds the directory that it is given."""

_PORT = 11211


@dataclass(frozen=True)
class Memcached:
    """A running server, and where it is reached.

    Attributes:
        published: whether that is a port of Docker's, which hands on what comes to the server.
    """

    host: str
    port: int
    container: DockerContainer
    published: bool

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        self.container.get_wrapped_container().kill(signal=number.name)

    def stop(self) -> None:
        """End it, for `restart` to start it again."""
        self.container.get_wrapped_container().stop(timeout=5)

    def restart(self) -> None:
        """End it if it runs, and start it again with the same arguments."""
        self.container.get_wrapped_container().restart(timeout=5)
        self.wait()

    def wait(self, seconds: float = 15) -> None:
        """Wait until it listens; says what memcached said if it ends instead."""
        wrapped = self.container.get_wrapped_container()
        deadline = time.monotonic() + seconds
        while not self._listens():
            wrapped.reload()
            if wrapped.status == "exited" or time.monotonic() > deadline:
                raise AssertionError(f"memcached does not listen, is {wrapped.status}: {wrapped.logs().decode()}")
            time.sleep(0.05)

    def _listens(self) -> bool:
        if self.published:  # Docker itself listens, long before the server does
            listening = f":{_PORT:04X} 0\\+:0000 0A"
            try:
                found = self.container.exec(["grep", "-q", listening, "/proc/net/tcp", "/proc/net/tcp6"])
            except APIError:  # it does not run yet, or no longer
                return False
            return found.exit_code == 0
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True


class Servers:
    """Starts servers on a Docker daemon.

    Args:
        ours: whether the daemon is that of daemon.py, whose containers share the machine's network.
    """

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours

    def provide(self) -> None:
        """See to the images."""
        provide(memcached_images.images(), ours=self._ours)

    @contextmanager
    def memcached(self, version: str, *arguments: str, files: Path | None = None) -> Iterator[Memcached]:
        """A server until the context is left.

        Args:
            arguments: beside those that say where it listens.
            files: what it finds in `FILES`; they may change while it runs.
        """
        container = DockerContainer(f"memcached:{version}")
        if files is not None:
            files.chmod(0o755)  # pytest's directories are for nobody else
            container.with_volume_mapping(files, FILES)
        port = free_ports(1)[0]
        if self._ours:
            container.with_kwargs(network_mode="host")
            container.with_command(["--listen=127.0.0.1", f"--port={port}", *arguments])
        else:
            container.with_bind_ports(_PORT, port)  # one of Docker's choice would be another after a restart
            container.with_command(list(arguments))
        with container:
            host = "127.0.0.1" if self._ours else container.get_container_host_ip()
            server = Memcached(host, port, container, published=not self._ours)
            server.wait()
            yield server
