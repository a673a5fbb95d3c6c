"""Observation of a server by its sidecar: the users file that it has loaded, whether it serves, whether it hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from operators.memcached.client.attestation import digest
from operators.memcached.client.errors import AuthenticationFailed, Busy, MemcachedError, TimedOut, Unreachable
from operators.memcached.client.server import Section
from operators.memcached.exporter.program import Exporter
from operators.memcached.exporter.reload import POLL_SECONDS, Reloader
from operators.memcached.exporter.watch import (
    HUNG_SECONDS,
    RETRY_SECONDS,
    SERVING_SECONDS,
    Watch,
    end_servers,
)
from tests.support.memcached.exporter import samples

KEY, NONCE = b"key", "nonce"
HANDLES_SIGHUP = "0000000000004203"


@dataclass
class Memcached:
    """A server, its users file and its sidecar.

    Attributes:
        now: seconds of the monotonic clock, which the server's own follows.
        started: time at which the server started.
        lines: lines of the users file that the server has loaded.
        can_open: whether it can open the file.
        pending: whether it got a signal since its last tick.
        stuck: whether its clock does not tick.
        failure: error of every request, on the connection that is kept and on new ones.
        refuses_new: error of new connections alone.
        connections: number of connections.
        killed: number of times that the sidecar has ended it.
    """

    directory: Path
    now: float = 1000.0
    started: float = 990.0
    lines: set[str] = field(default_factory=set)
    can_open: bool = True
    pending: bool = False
    stuck: bool = False
    failure: MemcachedError | None = None
    refuses_new: MemcachedError | None = None
    connections: int = 0
    killed: int = 0
    certificate: bytes = b""
    process: int = 7
    frozen: int = 0

    def __post_init__(self) -> None:
        self.users = self.directory / "users"
        self.write("app:one\nold:two\n")
        self.start(self.process)
        self.reloader = Reloader(self.users, processes=self.directory / "proc", send=self.signal)
        self.sidecar()

    def sidecar(self) -> None:
        """Start the sidecar, which knows nothing of the past."""
        self.watch = Watch(self.connect, self.reloader, self.kill, lambda: self.now)

    def write(self, text: str) -> None:
        self.users.write_text(text)

    def start(self, process: int) -> None:
        """Start the process of the server, which reads the users file."""
        for former in (self.directory / "proc").glob("*/comm"):
            former.unlink()
        self.process, self.started, self.pending = process, self.now, False
        directory = self.directory / "proc" / str(process)
        directory.mkdir(parents=True)
        (directory / "comm").write_text("memcached\n")
        (directory / "cmdline").write_text(f"memcached\0--port=11211\0--auth-file={self.users}\0")
        (directory / "status").write_text(f"SigCgt:\t{HANDLES_SIGHUP}\n")
        self.lines = set(self.users.read_text().splitlines())

    def signal(self, process: int, number: int) -> None:
        assert (process, number) == (self.process, signal.SIGHUP)
        self.pending = True

    def kill(self) -> None:
        self.killed += 1

    @property
    def uptime(self) -> int:
        return self.frozen if self.stuck else int(self.now - self.started)

    async def polls(self, times: int, seconds: float = POLL_SECONDS) -> None:
        for _ in range(times):
            await self.watch.check()
            self.now += seconds
            if self.pending and not self.stuck:
                self.pending = False
                if self.can_open:
                    self.lines = set(self.users.read_text().splitlines())

    async def connect(self, user: tuple[str, str] | None) -> Connection:
        if error := self.failure or self.refuses_new:
            raise error
        self.connections += 1
        if user is not None and ":".join(user) not in self.lines:
            raise AuthenticationFailed("rejected")
        return Connection(self)

    def has_proven(self, text: str) -> bool:
        return self.watch.users(KEY, NONCE) == digest(KEY, NONCE, text.encode())


@dataclass
class Connection:
    server: Memcached
    address: str = "127.0.0.1:11211"

    @property
    def certificate(self) -> bytes:
        return self.server.certificate

    async def stats(self, section: Section = "") -> dict[str, str]:
        if self.server.failure:
            raise self.server.failure
        return {"version": "1.6.45", "uptime": str(self.server.uptime)}

    async def version(self) -> str:
        return "1.6.45"

    async def refresh_certs(self) -> None: ...

    async def aclose(self) -> None: ...


@pytest.fixture
def server(tmp_path: Path) -> Memcached:
    return Memcached(tmp_path)


async def test_file_that_the_server_has_loaded_is_proven_within_seconds(server: Memcached) -> None:
    await server.polls(5)
    assert server.has_proven("app:one\nold:two\n")
    server.write("app:one\n")
    await server.polls(1)
    assert server.watch.users(KEY, NONCE) == "", "the signal was sent, and the server has not read the file"
    await server.polls(5)
    assert server.has_proven("app:one\n")


async def test_digest_depends_on_the_nonce_and_the_key(server: Memcached) -> None:
    await server.polls(5)
    assert len({server.watch.users(key, nonce) for key in (b"a", b"b") for nonce in ("1", "2")}) == 4


async def test_removed_user_that_the_server_still_accepts_is_no_proof(server: Memcached) -> None:
    """The server got the signal, but could not open the file: at its limit of open files, for example."""
    await server.polls(5)
    server.can_open = False
    server.write("app:one\n")
    await server.polls(10)
    assert server.watch.users(KEY, NONCE) == ""
    server.can_open = True
    await server.polls(2 * int(RETRY_SECONDS / POLL_SECONDS))
    assert server.has_proven("app:one\n"), "the signal is repeated"


async def test_server_whose_main_thread_does_not_tick_has_loaded_nothing(server: Memcached) -> None:
    await server.polls(5)
    server.frozen, server.stuck = server.uptime, True
    server.write("app:one\n")
    await server.polls(20)
    assert server.watch.users(KEY, NONCE) == ""


async def test_file_that_changes_again_before_it_is_proven(server: Memcached) -> None:
    await server.polls(5)
    for text in ("app:two\n", "app:three\n", "app:four\n"):
        server.write(text)
        await server.polls(2)
        assert server.watch.users(KEY, NONCE) == ""
    await server.polls(4)
    assert server.has_proven("app:four\n")


async def test_restarted_server_must_prove_it_again(server: Memcached) -> None:
    await server.polls(5)
    server.start(8)
    await server.polls(1)
    assert server.watch.users(KEY, NONCE) == ""
    await server.polls(5)
    assert server.has_proven("app:one\nold:two\n")


async def test_restarted_sidecar_proves_it_again_and_sends_a_signal(server: Memcached) -> None:
    await server.polls(5)
    server.reloader = Reloader(server.users, processes=server.directory / "proc", send=server.signal)
    server.sidecar()
    assert server.watch.users(KEY, NONCE) == ""
    await server.polls(5)
    assert server.has_proven("app:one\nold:two\n")


async def test_file_that_memcached_cannot_use_is_never_proven(server: Memcached) -> None:
    server.write("app")
    await server.polls(40)
    assert server.watch.users(KEY, NONCE) == ""


@pytest.mark.parametrize(
    "error", [Busy("connection limit"), AuthenticationFailed("rejected")], ids=["busy", "password"]
)
async def test_server_that_refuses_a_connection_serves(server: Memcached, error: MemcachedError) -> None:
    server.failure = error
    await server.polls(100, seconds=5)
    assert server.watch.serves
    assert not server.killed


async def test_server_at_its_connection_limit_that_keeps_new_connections_waiting_is_not_ended(
    server: Memcached,
) -> None:
    """With no_maxconns_fast it does not accept them, and responds on the connection that the sidecar keeps."""
    server.certificate = b"der"
    await server.polls(5)
    server.refuses_new = TimedOut("no connection")
    await server.polls(200, seconds=5)
    assert (server.watch.serves, server.killed) == (True, 0)
    server.sidecar()  # it keeps none
    await server.polls(200, seconds=5)
    assert (server.watch.serves, server.killed) == (False, 0), "that it hangs is not certain"


async def test_server_that_hangs_is_ended_after_two_minutes(server: Memcached) -> None:
    await server.polls(5)
    server.failure = TimedOut("no response")
    polls = int(HUNG_SECONDS / 7)
    await server.polls(polls, seconds=7)
    assert (server.watch.serves, server.killed) == (False, 0)
    await server.polls(2, seconds=7)
    assert server.killed == 1
    await server.polls(3, seconds=7)
    assert server.killed == 1, "once"


async def test_metrics_of_a_server_that_hangs_are_what_its_sidecar_attests(server: Memcached) -> None:
    exporter = Exporter(partial(server.connect, None), server.watch)

    async def shown() -> list[float]:
        found = samples(await exporter.scrape())
        return [found[f"memcached_{name}"] for name in ("up", "serving", "users_loaded")]

    assert await shown() == [1, 0, 0], "nothing is observed yet"
    await server.polls(10)
    assert await shown() == [1, 1, 1]
    server.failure = TimedOut("no response")
    assert await shown() == [0, 1, 1], "it may be busy"
    await server.polls(3, seconds=7)
    assert await shown() == [0, 0, 0]
    without_users = samples(await Exporter(partial(server.connect, None), Watch(server.connect)).scrape())
    assert "memcached_serving" in without_users
    assert "memcached_users_loaded" not in without_users


@pytest.mark.parametrize("other", [None, Unreachable("refused"), Busy("limit")], ids=["response", "restart", "busy"])
async def test_any_other_result_than_silence_begins_the_two_minutes_again(
    server: Memcached, other: MemcachedError | None
) -> None:
    await server.polls(5)
    for _ in range(5):
        server.failure = TimedOut("no response")
        await server.polls(15, seconds=7)
        server.failure = other
        await server.polls(1)
        server.failure = None
        await server.polls(2)
    assert not server.killed


async def test_sidecar_that_was_too_slow_itself_ends_no_server(server: Memcached) -> None:
    await server.polls(5)
    server.failure = TimedOut("no response")
    for _ in range(10):
        await server.polls(10, seconds=7)
        server.watch.distrust()
    assert not server.killed


async def test_server_serves_for_a_while_after_its_last_response(server: Memcached) -> None:
    assert not server.watch.serves, "nothing is known yet"
    await server.polls(1)
    assert server.watch.serves
    server.failure = Unreachable("refused")
    await server.polls(1)
    assert server.watch.serves
    await server.polls(1, seconds=SERVING_SECONDS)
    assert not server.watch.serves
    assert (server.watch.version, server.watch.error) == ("", "refused")


async def test_only_the_process_of_the_server_is_ended(server: Memcached) -> None:
    other = server.directory / "proc" / "9"
    other.mkdir()
    (other / "comm").write_text("memcached\n")
    (other / "cmdline").write_text("memcached\0--port=11212\0")
    sent: list[tuple[int, int]] = []
    end: Callable[[int, int], None] = lambda process, number: sent.append((process, number))  # noqa: E731
    end_servers(11211, processes=server.directory / "proc", send=end)
    assert sent == [(7, signal.SIGKILL)]
