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
    """Makes a server load its users file after each change.

    The first check sends a signal too: the file may have changed before the sidecar started.

    Args:
        users: path of the users file.
        processes: directory with a directory for each process, as procfs.
        send: sends a signal to a process.
    """

    def __init__(
        self, users: Path, *, processes: Path = Path("/proc"), send: Callable[[int, int], None] = os.kill
    ) -> None:
        self._users = users
        self._processes = processes
        self._send = send
        self._loaded = b""
        self._problem = ""

    def check(self) -> None:
        """Send the signal if the file has changed since the last one."""
        try:
            content = hashlib.sha256(self._users.read_bytes()).digest()
            if content == self._loaded:
                return
            self._signal()
        except OSError as error:  # also ProcessLookupError: a restarted server reads the file when it starts
            self._report(f"The users file was not reloaded: {error}")
            return
        self._loaded = content
        self._problem = ""
        log.info("%s reloads its users file.", PROGRAM)

    def _signal(self) -> None:
        """Send SIGHUP to the server.

        Raises:
            OSError: there is no server, or it would end.
        """
        process = self._find()
        if not _handles(process / "status", signal.SIGHUP):
            raise OSError(f"process {process.name} has no handler of SIGHUP")
        self._send(int(process.name), signal.SIGHUP)

    def _find(self) -> Path:
        for process in sorted(self._processes.glob("[0-9]*")):
            try:
                if (process / "comm").read_text().strip() == PROGRAM:
                    return process
            except OSError:  # it has ended
                continue
        raise ProcessLookupError(f"no process {PROGRAM} is in this process namespace")

    def _report(self, problem: str) -> None:
        """Log a problem once, until it is another one."""
        if problem != self._problem:
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
