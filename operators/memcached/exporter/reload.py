"""Reload of the users file by a running server: the sidecar sends SIGHUP when the file changes.

On SIGHUP, memcached reads its users file (-Y) again within a second; items and open connections stay (memcached.c,
`clock_handler`). Connections that are authenticated stay so. It also loads a file that locks users out, such as an
empty one (`client.users_file`): for that no signal is sent.

The sidecar shares the process namespace of the pod and runs as the same user, so that it needs no further permission.
A signal that the process does not handle would end it, and its items with it: SIGHUP is sent only to a process that has
a handler for it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from operators.memcached.client import users_file

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

    Attributes:
        signalled: content of the file for which all servers got their last signal; None if one did not, or none runs.
        signals: number of signals that were sent.
    """

    def __init__(
        self, users: Path, *, processes: Path = Path("/proc"), send: Callable[[int, int], None] = os.kill
    ) -> None:
        self._users = users
        self._processes = processes
        self._send = send
        self._sent: dict[int, bytes] = {}
        """Content of the file for which each running server got its last signal, by process."""
        self._problem = ""
        self.signalled: bytes | None = None
        self.signals = 0

    def check(self) -> None:
        """Send the signal to each server that has not got one for the present content of the file."""
        self.signalled = None
        try:
            content = self._users.read_bytes()
        except OSError as error:
            self._report(f"The users file was not reloaded: {error}")
            return
        if wrong := users_file.problem(content.decode(errors="replace")):
            self._report(f"The users file was not reloaded: {wrong}")
            return
        servers = servers_with(bytes(self._users), self._processes)
        self._sent = {number: known for number, known in self._sent.items() if number in servers}
        problem = "" if servers else f"no process {PROGRAM} with {self._users} is in this process namespace"
        for number in servers:
            if self._sent.get(number) == content:
                continue
            try:
                self._signal(number)
            except OSError as error:  # also ProcessLookupError: a restarted server reads the file when it starts
                problem = str(error)
                continue
            self._sent[number] = content
            self.signals += 1
            log.info("%s (process %d) reloads its users file.", PROGRAM, number)
        self.signalled = None if problem else content
        self._report(problem and f"The users file was not reloaded: {problem}")

    def repeat(self) -> None:
        """Send the signal again at the next check: a server did not load the file."""
        self._sent.clear()

    def _signal(self, number: int) -> None:
        """Send SIGHUP to a server.

        Raises:
            OSError: the server has ended, or would end.
        """
        if not _handles(self._processes / str(number) / "status", signal.SIGHUP):
            raise OSError(f"process {number} has no handler of SIGHUP")
        self._send(number, signal.SIGHUP)

    def _report(self, problem: str) -> None:
        """Log a problem once, until it is another one."""
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem


def _handles(status: Path, number: signal.Signals) -> bool:
    """Return whether a process has a handler of a signal: SigCgt in procfs is the bit mask of these signals."""
    fields = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
    return bool(int(fields.get("SigCgt", "0"), 16) >> (number - 1) & 1)


def servers_with(argument: bytes, processes: Path) -> list[int]:
    """Return the servers with an argument that ends in this text; a pod may run other memcached servers.

    Args:
        processes: directory with a directory for each process, as procfs.
    """
    found = []
    for process in processes.glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if name == PROGRAM and any(each.endswith(argument) for each in arguments):
            found.append(int(process.name))
    return sorted(found)
