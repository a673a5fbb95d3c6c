"""Observation of a server by its sidecar, for the readiness probe and for the operator.

The sidecar keeps one authenticated connection, and sends a request on it every two seconds. From the responses follow

- whether the server serves, and which version it is;
- the certificate that it serves to a new connection;
- the users file that it has loaded. memcached reports nothing about it. It reads the file on SIGHUP, at the next tick
  of the clock of its main thread (memcached.c, `clock_handler`), and that clock is the statistic `uptime`. The file is
  loaded when the clock has ticked several times since the signal while the file stayed the same, every user of the
  file can log in, and no line that was removed from it can.

A server that hangs does not end by itself, and its kernel still accepts connections. The sidecar ends it, so that the
kubelet starts it again, only if that is certain: a connection on which it had responded got no response any more, and
neither did new ones for two minutes. A restart loses all items. A server that is busy, or has reached
its connection limit, responds to the connection that is open; and a failure of the sidecar itself ends no server, as a
failed probe of the kubelet would.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from operators.memcached.client.attestation import digest
from operators.memcached.client.errors import AuthenticationFailed, Busy, MemcachedError, TimedOut, Unreachable
from operators.memcached.client.server import Server
from operators.memcached.exporter.reload import POLL_SECONDS, Reloader, servers_with

log = logging.getLogger(__name__)

TICKS = 4
"""Distinct values of the server's clock after a signal, from which on it has read the file: one that may be older than
the signal, one of the tick that reads it, one of a tick after that, and one after the file was compared again."""

CERTIFICATE_SECONDS = 10.0
"""Time between two new connections that show which certificate the server serves."""

SERVING_SECONDS = 15.0
"""Time since the last response for which a server counts as serving."""

HUNG_SECONDS, HUNG_REQUESTS = 120.0, 15
"""Time without any response, and number of requests in it, after which a server hangs."""

RETRY_SECONDS = 30.0
"""Time until a server that has not loaded its users file gets the signal again."""

MAX_DIGITS = 20

LATE_SECONDS = 2.0
"""Delay of the sidecar's own work from which on it may be the sidecar that was too slow, and not the server."""

Connect = Callable[[tuple[str, str] | None], Awaitable[Server]]
"""Opens a connection as a user; None for the first user of the file, if the server requires one."""


@dataclass(slots=True)
class _Load:
    """The users file that a server loads, or has loaded.

    Attributes:
        content: content of the file for which the server got its last signal.
        signals: number of signals until then.
        ticks: values of the server's clock since.
        is_proven: whether the server has loaded it.
        checked_from: time from which on the users are checked.
    """

    content: bytes
    signals: int
    ticks: list[int] = field(default_factory=list)
    is_proven: bool = False
    checked_from: float = 0.0


class Watch:
    """Observes one server.

    Args:
        connect: opens a connection to the server; raises MemcachedError.
        reloader: makes the server load its users file; None without one.
        end: ends the processes of the server, if it hangs.
        clock: seconds of a monotonic clock.

    Attributes:
        version: version of the server; empty if it is unknown.
        certificate: SHA-256 of the certificate that it serves to new connections; empty without TLS, or if unknown.
        error: why the last request failed; empty if it did not.
    """

    def __init__(
        self,
        connect: Connect,
        reloader: Reloader | None = None,
        end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._reloader = reloader
        self._end = end
        self._clock = clock
        self._server: Server | None = None
        self._responded = self._inspected = float("-inf")
        self._silent_since: float | None = None
        self._unanswered = 0
        self._load: _Load | None = None
        self._former: set[bytes] = set()
        """Lines of earlier contents of the users file, which the server must reject once they are removed."""
        self.version = self.certificate = self.error = ""

    @property
    def serves(self) -> bool:
        """Whether the server has responded lately."""
        return self._clock() - self._responded <= SERVING_SECONDS

    @property
    def loaded_users(self) -> bytes | None:
        """The users file that the server has loaded; None if that is not proven."""
        load = self._load
        return load.content if load is not None and load.is_proven and self.serves else None

    @property
    def reloads_users(self) -> bool:
        """Whether it makes the server load its users file, so that it can prove which one that has loaded."""
        return self._reloader is not None

    def users(self, key: bytes, nonce: str) -> str:
        """Return the digest of the users file that the server has loaded; empty if that is not proven."""
        return "" if (content := self.loaded_users) is None else digest(key, nonce, content)

    async def check(self) -> None:
        """Observe the server once, and end it if it hangs."""
        if self._reloader is not None:
            self._reloader.check()
        try:
            await self._observe(self._clock())
        except TimedOut as error:
            self._fail(error)
            self._end_if_hung()
        except Unreachable as error:  # it starts, has ended, or is busy
            self._fail(error)
            self._silent_since = None
            if isinstance(error, Busy):
                self._responded = self._clock()
        except MemcachedError as error:  # it responds, for example because it does not know the password yet
            self._fail(error)
            self._responded, self._silent_since = self._clock(), None
        else:
            self.error = ""

    async def _observe(self, now: float) -> None:
        stats = await self._stats(now)
        self._responded, self._silent_since = self._clock(), None
        self.version = stats.get("version", "")
        if now - self._inspected >= CERTIFICATE_SECONDS:
            self._inspected = now
            await self._inspect()
        if (uptime := stats.get("uptime", "")).isdecimal() and len(uptime) < MAX_DIGITS:
            await self._prove(int(uptime))

    async def _stats(self, now: float) -> dict[str, str]:
        """Query the server, over a new connection if the current one has been closed."""
        server, self._server = self._server, None
        if server is not None:
            try:
                found = await server.stats()
            except TimedOut:
                self._silent_since, self._unanswered = now, 0
                raise
            except MemcachedError:
                pass
            else:
                self._server = server
                return found
        server = await self._connect(None)
        found = await server.stats()
        self._server = server
        return found

    async def _inspect(self) -> None:
        """Learn which certificate new connections get. At the connection limit, a server that serves may refuse one."""
        self.certificate = ""
        if self._server is None or not self._server.certificate:
            return
        try:
            fresh = await self._connect(None)
        except MemcachedError as error:
            log.debug("The certificate was not inspected: %s", error)
            return
        self.certificate = hashlib.sha256(fresh.certificate).hexdigest()
        await fresh.aclose()

    async def _prove(self, uptime: int) -> None:
        """Find out whether the server has loaded the present users file."""
        if self._reloader is None:
            return
        content, signals, load = self._reloader.signalled, self._reloader.signals, self._load
        restarted = load is not None and uptime < max(load.ticks, default=0)
        if load is None or restarted or (load.content, load.signals) != (content, signals):
            self._former |= set(load.content.splitlines()) if load is not None else set()
            since = load.checked_from if load is not None and load.content == content else 0.0
            load = self._load = None if content is None else _Load(content, signals, checked_from=since)
        if content is None or load is None or load.is_proven or uptime in load.ticks:
            return
        load.ticks.append(uptime)
        if len(load.ticks) < TICKS or self._clock() < load.checked_from:
            return
        present = set(content.splitlines())
        removed = self._former - present
        if all([await self._accepts(line) for line in sorted(present)]) and not any(
            [await self._accepts(line) for line in sorted(removed)]
        ):
            load.is_proven, self._former = True, set()
        else:  # it could not use the file, or not open it, for example at its limit of open files
            load.checked_from = self._clock() + RETRY_SECONDS
            self._reloader.repeat()

    async def _accepts(self, line: bytes) -> bool:
        user, _, password = line.decode(errors="replace").partition(":")
        try:
            server = await self._connect((user, password))
        except AuthenticationFailed:
            return False
        await server.aclose()
        return True

    def _fail(self, error: MemcachedError) -> None:
        self.version, self.certificate, self.error = "", "", str(error)

    def _end_if_hung(self) -> None:
        """End a server that did not respond on the connection that was kept, and has not responded since."""
        if self._silent_since is None:
            return
        self._unanswered += 1
        waited = self._clock() - self._silent_since
        if waited >= HUNG_SECONDS and self._unanswered >= HUNG_REQUESTS:
            log.error("The server has not responded for %d s, and is ended: it hangs. Its items are lost.", waited)
            self._silent_since = None
            self._end()

    def distrust(self) -> None:
        """Forget that the server did not respond: the sidecar itself was too slow to know."""
        self._silent_since = None


async def keep_watching(watch: Watch, limit: float) -> None:
    """Observe the server repeatedly, until the task is cancelled.

    Args:
        limit: time limit of a response, in seconds.
    """
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await watch.check()
        except Exception:
            log.exception("the server was not observed: internal error (a bug)")
        await asyncio.sleep(POLL_SECONDS)
        if loop.time() - began > POLL_SECONDS + 2 * limit + LATE_SECONDS:
            watch.distrust()


def end_servers(port: int, *, processes: Path, send: Callable[[int, int], None]) -> None:
    """Kill the servers that listen on a port: a process that is stopped or hangs handles no other signal."""
    for number in servers_with(f"--port={port}".encode(), processes):
        try:
            send(number, signal.SIGKILL)
        except OSError as error:  # it has ended
            log.warning("Process %d was not ended: %s", number, error)
