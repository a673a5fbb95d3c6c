"""Reload of the users file by a running server: the sidecar sends SIGHUP when the file changes.

On SIGHUP, memcached reads its users file (-Y) again within a second; items and open connections stay, and a file that
it cannot use changes nothing (memcached.c, `clock_handler`; authfile.c). Connections that are authenticated stay so.

The sidecar shares the process namespace of the pod and runs as the same user, so that it needs no further permission.
A signal that the process does not handle would end it, and its items with it: SIGHUP is sent only to a process that has
a handler for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Time between two checks of the file; the kubelet updates it within about a minute."""

PROGRAM = "memcached"


class Reloader:
    """Makes each server with a users file load it after each change.

    A server that is new to the sidecar gets a signal too: the file may have changed since it was read.

    Args:
        users: path of the users file, as the servers have it in their command line.
        processes: directory with a directory for each process, as procfs.
        send: sends a signal to a process.
    """

    def __init__(
        self, users: Path, *, processes: Path = Path("/proc"), send: Callable[[int, int], None] = os.kill
    ) -> None:
        self._users = users
        self._processes = processes
        self._send = send
        self._loaded: dict[int, bytes] = {}
        """Digest of the file for which each running server got its last signal, by process."""
        self._problem = ""

    def check(self) -> None:
        """Send the signal to each server that has not got one for the present content of the file."""
        try:
            content = hashlib.sha256(self._users.read_bytes()).digest()
        except OSError as error:
            self._report(f"The users file was not reloaded: {error}")
            return
        servers = self._servers()
        self._loaded = {number: known for number, known in self._loaded.items() if number in servers}
        problem = "" if servers else f"no process {PROGRAM} with {self._users} is in this process namespace"
        for number in servers:
            if self._loaded.get(number) == content:
                continue
            try:
                self._signal(number)
            except OSError as error:  # also ProcessLookupError: a restarted server reads the file when it starts
                problem = str(error)
                continue
            self._loaded[number] = content
            log.info("%s (process %d) reloads its users file.", PROGRAM, number)
        self._report(problem and f"The users file was not reloaded: {problem}")

    def _signal(self, number: int) -> None:
        """Send SIGHUP to a server.

        Raises:
            OSError: the server has ended, or would end.
        """
        if not _handles(self._processes / str(number) / "status", signal.SIGHUP):
            raise OSError(f"process {number} has no handler of SIGHUP")
        self._send(number, signal.SIGHUP)

    def _servers(self) -> list[int]:
        """Return the processes whose command line has the users file; a pod may run other memcached servers."""
        found = []
        for process in self._processes.glob("[0-9]*"):
            try:
                name = (process / "comm").read_text().strip()
                arguments = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if name == PROGRAM and any(each.endswith(bytes(self._users)) for each in arguments):
                found.append(int(process.name))
        return sorted(found)

    def _report(self, problem: str) -> None:
        """Log a problem once, until it is another one."""
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem


def _handles(status: Path, number: signal.Signals) -> bool:
    """Return whether a process has a handler of a signal: SigCgt in procfs is the bit mask of these signals."""
    fields = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
    return bool(int(fields.get("SigCgt", "0"), 16) >> (number - 1) & 1)


async def keep_reloaded(users: Path) -> None:
    """Check the users file repeatedly, until the task is cancelled."""
    reloader = Reloader(users)
    while True:
        reloader.check()
        await asyncio.sleep(POLL_SECONDS)
