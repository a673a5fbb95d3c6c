"""memcached servers in containers, with files that tests change while the servers run."""

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

from operators.memcached.manifests import images as memcached_images
from tests.support.containers.providing import provide
from tools.local.machine.network import free_ports

VERSIONS = tuple(sorted(memcached_images.VERSIONS.values()))
FILES = "/etc/memcached"
"""Mount point of the directory that a test passes to a server."""

_PORT = 11211


@dataclass(frozen=True)
class Memcached:
    """A running server.

    Attributes:
        host: address for clients.
        port: port for clients.
        container: container of the server.
        published: whether `port` is a published port, which Docker forwards to the server.
    """

    host: str
    port: int
    container: DockerContainer
    published: bool

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's process."""
        self.container.get_wrapped_container().kill(signal=number.name)

    def stop(self) -> None:
        """Stop the container; `restart` starts it again."""
        self.container.get_wrapped_container().stop(timeout=5)

    def restart(self) -> None:
        """Restart the container with the same arguments."""
        self.container.get_wrapped_container().restart(timeout=5)
        self.wait()

    def wait(self, seconds: float = 15) -> None:
        """Wait until the server listens; fail with its log if it exits."""
        wrapped = self.container.get_wrapped_container()
        deadline = time.monotonic() + seconds
        while not self._listens():
            wrapped.reload()
            if wrapped.status == "exited" or time.monotonic() > deadline:
                raise AssertionError(f"memcached is {wrapped.status} and does not listen: {wrapped.logs().decode()}")
            time.sleep(0.05)

    def _listens(self) -> bool:
        if self.published:  # Docker listens on the port before the server does
            listening = f":{_PORT:04X} 0\\+:0000 0A"
            try:
                found = self.container.exec(["grep", "-q", listening, "/proc/net/tcp", "/proc/net/tcp6"])
            except APIError:  # the container is not running
                return False
            return found.exit_code == 0
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True


class Servers:
    """Factory of servers on a Docker daemon.

    Args:
        own_daemon: whether daemon.py runs the daemon, whose containers use the host network.
    """

    def __init__(self, *, own_daemon: bool) -> None:
        self._own_daemon = own_daemon

    def provide(self) -> None:
        """Load the images of memcached."""
        provide(memcached_images.images(), own_daemon=self._own_daemon)

    @contextmanager
    def memcached(self, version: str, *arguments: str, files: Path | None = None) -> Iterator[Memcached]:
        """Run a server until the end of the context.

        Args:
            version: tag of the image.
            arguments: options in addition to those for the listen address.
            files: directory mounted as `FILES`; tests may change it while the server runs.
        """
        container = DockerContainer(f"memcached:{version}")
        if files is not None:
            files.chmod(0o755)  # pytest creates directories that only their owner can read
            container.with_volume_mapping(files, FILES)
        port = free_ports(1)[0]
        if self._own_daemon:
            container.with_kwargs(network_mode="host")
            container.with_command(["--listen=127.0.0.1", f"--port={port}", *arguments])
        else:
            container.with_bind_ports(_PORT, port)  # a port that Docker chooses would change at a restart
            container.with_command(list(arguments))
        with container:
            host = "127.0.0.1" if self._own_daemon else container.get_container_host_ip()
            server = Memcached(host, port, container, published=not self._own_daemon)
            server.wait()
            yield server
