"""Real Redis servers as local processes, each on its own address, for the conformance scripts."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from operators.redis.client.connection import connect
from operators.redis.client.errors import RedisError
from operators.redis.client.server import Access, Endpoint, Server

TIMEOUT = 1000
PORT = 16379

PATIENCE = 1.5
"""Factor by which waits are longer than necessary, because the machine may be busy."""

_numbers = itertools.count(1)
_reserved: list[socket.socket] = []


def _reserve(address: str) -> bool:
    """Reserve an address until this process ends, against other processes of the tests; return whether it was free."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0platform-address-{address}")
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    return True


class RealLab:
    """`Lab` of real servers.

    Args:
        command: command that starts a server.
        network: first two bytes of unused loopback addresses, such as `127.7`.

    Attributes:
        settings: further settings of servers from their next start on.
    """

    def __init__(self, command: Sequence[str], directory: Path, network: str) -> None:
        self.transcript: list[str] = []
        self.settings: Mapping[str, str] = {}
        self._command = command
        self._directory = directory
        self._network = network
        self._addresses: dict[str, str] = {}
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._servers: dict[tuple[str, str], Server] = {}

    async def start(self, name: str, *, address: str = "") -> None:
        if address:
            self._addresses[name] = self._addresses[address]
        elif name not in self._addresses:
            await self.move(name)
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        settings = {
            "bind": self._addresses[name],
            "port": PORT,
            "dir": directory,
            "cluster-enabled": "yes",
            "cluster-node-timeout": TIMEOUT,
            "cluster-announce-ip": self._addresses[name],
            "cluster-allow-replica-migration": "no",
            "cluster-require-full-coverage": "yes",
            "appendonly": "yes",
            "appendfsync": "no",
            "save": "",
            "protected-mode": "no",
            "repl-diskless-sync-delay": 0,
        }
        settings |= self.settings
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        with (directory / "log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(*self._command, *words, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(RedisError):
                await self.server(name).execute("PING")
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name} does not start: {(directory / 'log').read_text()[-2000:]}")

    async def move(self, name: str) -> None:
        addresses = (f"{self._network}.{number // 250}.{number % 250 + 1}" for number in _numbers)
        self._addresses[name] = next(filter(_reserve, addresses))

    async def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def terminate(self, name: str) -> None:
        """Shut a server down, as the kubelet does."""
        process = self._running.pop(name)
        process.terminate()
        await process.wait()

    async def ended(self, name: str) -> None:
        """Wait until a server has ended by itself."""
        await asyncio.wait_for(self._running[name].wait(), 30)
        del self._running[name]

    async def wipe(self, name: str) -> None:
        shutil.rmtree(self._directory / name)

    async def hang(self, name: str, *, hangs: bool = True) -> None:
        self._running[name].send_signal(signal.SIGSTOP if hangs else signal.SIGCONT)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(PATIENCE * seconds)

    def log(self, name: str) -> str:
        """Return the log of a server."""
        return (self._directory / name / "log").read_text(errors="replace")

    def address(self, name: str) -> tuple[str, int]:
        return self._addresses[name], PORT

    def server(self, name: str) -> Server:
        key = (name, self._addresses[name])
        if key not in self._servers:
            self._servers[key] = connect(Endpoint(name, key[1], "localhost", PORT), Access())
        return self._servers[key]

    async def close(self) -> None:
        for server in self._servers.values():
            await server.aclose()
        for process in self._running.values():
            process.kill()
            await process.wait()
