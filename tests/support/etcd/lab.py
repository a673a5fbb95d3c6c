"""Real members of etcd as local processes, for recorded sessions."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from operators.etcd.client.errors import EtcdError
from operators.etcd.client.gateway import connect
from operators.etcd.client.server import Access, Endpoint, Server

KNOWN_EXITS = (
    "couldn't find local name",
    "member count is unequal",
    "unmatched member",
    "cannot fetch cluster info",
    "missing from --initial-advertise-peer-urls",
    "--initial-cluster has",
)
"""Parts of etcd's last messages that transcripts compare."""


def known_exit(text: str) -> str:
    """Return the known part of etcd's last message."""
    return next((words for words in KNOWN_EXITS if words in text), "it ends")


class RealLab:
    """`Lab` of a real etcd.

    Args:
        binary: path of the etcd binary.
        ports: three free ports (peers, clients, metrics) for each of four members.
    """

    def __init__(self, binary: Path, directory: Path, ports: list[int]) -> None:
        self.transcript: list[str] = []
        self._binary = binary
        self._directory = directory
        self._ports = {name: ports[3 * number : 3 * number + 3] for number, name in enumerate("abcd")}
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._servers: dict[str, Server] = {}

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name][0]}"

    async def start(self, name: str, state: str, initial: dict[str, str]) -> str:
        _, client, metrics = self._ports[name]
        flags = {
            "name": name,
            "data-dir": str(self._directory / name),
            "listen-peer-urls": self.url(name),
            "initial-advertise-peer-urls": self.url(name),
            "listen-client-urls": f"http://127.0.0.1:{client}",
            "advertise-client-urls": f"http://127.0.0.1:{client}",
            "listen-metrics-urls": f"http://127.0.0.1:{metrics}",
            "initial-cluster-state": state,
            "initial-cluster": ",".join(f"{key}={url}" for key, url in initial.items()),
            "initial-cluster-token": "session",
            "log-level": "error",
            "logger": "zap",
            "unsafe-no-fsync": "true",
        }
        with (self._directory / f"{name}.log").open("wb") as log:
            command = (str(self._binary), *(f"--{flag}={value}" for flag, value in flags.items()))
            self._running[name] = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            if self._running[name].returncode is not None:
                return self._exit_message(name)
            try:
                status = await self.server(name).status()
            except EtcdError:
                pass
            else:
                if status.leader and status.raft_applied == status.raft_index and await self._published(name):
                    return ""
            await asyncio.sleep(0.1)
        return ""

    async def _published(self, name: str) -> bool:
        """Whether a leader knows the name of the member; False if no leader answers."""
        for other in self._running:
            try:
                found = (await self.server(other).members()).members
            except EtcdError:
                continue
            return any(member.name == name for member in found)
        return False

    async def stop(self, name: str) -> None:
        process = self._running.pop(name)
        if process.returncode is None:
            process.kill()
            await process.wait()
        await asyncio.sleep(2)  # the other members detect it

    async def wipe(self, name: str) -> None:
        await self.stop(name)
        shutil.rmtree(self._directory / name)

    async def exited(self, name: str) -> str:
        try:
            await asyncio.wait_for(self._running[name].wait(), 8)
        except TimeoutError:
            return ""
        return self._exit_message(name)

    async def calm(self) -> None:
        await asyncio.sleep(5.5)  # etcd's HealthInterval

    def server(self, name: str) -> Server:
        _, client, metrics = self._ports[name]
        if name not in self._servers:
            self._servers[name] = connect(Endpoint(name, "127.0.0.1", "localhost", client, metrics), Access())
        return self._servers[name]

    def _exit_message(self, name: str) -> str:
        return known_exit((self._directory / f"{name}.log").read_text()[-4000:])

    async def close(self) -> None:
        for server in self._servers.values():
            await server.aclose()
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
