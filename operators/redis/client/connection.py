"""Speaks with one node of Redis or Valkey, over redis-py's asyncio connection: without its pool, retries and cluster.

What one should know of it:

- Moving slots lists every key and names it again. hiredis reads and writes them, in C; redis-py's own way through it
  awaits twice for each answer.
- It asks in RESP2, which every server speaks, and introduces itself to none: CLIENT SETINFO is news of Redis 7.2.
- redis-py takes the first word off some errors and makes failures of the connection of others; here each stays as the
  server wrote it.
- Whether a password is asked for is the server's business: one that has none refuses AUTH, and that is no failure.
  Former passwords are tried where the present one is denied, so that a rotation may stop anywhere.
- MIGRATE takes as long as what it moves; it says itself how long it may wait.

Passwords appear in no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hiredis
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as CutOff
from redis.exceptions import RedisError as LibraryError

from operators.redis.client.errors import Denied, Loading, Refused, Unreachable
from operators.redis.client.server import Access, Command, Connect, Endpoint, Server
from shared.observability import tracing
from shared.pki import verify

REQUEST_TIMEOUT_SECONDS = 5.0
"""Seconds until a question counts as not answered, and until a connection counts as not made."""

_READ_BYTES = 1 << 16
"""Bytes at a time."""

_PARTIAL = object()
"""In place of an answer of which not all has come."""

_BYTES = frozenset({("DUMP",), ("FUNCTION",), ("GET",), ("CLUSTER", "GETKEYSINSLOT")})
"""What answers with keys and values, by the first word of a command, or by the first two (CONFIG GET answers texts)."""

_KINDS: Mapping[str, type[Refused]] = {
    **dict.fromkeys(("DENIED", "NOAUTH", "NOPERM", "WRONGPASS"), Denied),
    **dict.fromkeys(("BUSY", "LOADING", "MASTERDOWN"), Loading),
}


class _Wrong(Exception):
    """An error, as the server wrote it."""


class ServerConnection:
    """A connection to one node; see `Server`. Made with the first question, and anew after one without an answer."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        self._who = f"{endpoint.name} ({address}:{endpoint.port})"
        self._endpoint = endpoint
        self._access = access
        self._wire: _Wire | None = None
        self._turn = asyncio.Lock()

    async def execute(self, *command: str | int | bytes) -> Any:
        (answer,) = await self.pipe((command,))
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        async with self._turn:
            try:
                first = f"redis {_named(commands[0])}"
                with tracing.span(first, server=self._who, commands=len(commands)), self._told(commands[0]):
                    wire = self._wire or await self._open()
                    return await self._exchange(wire, commands)
            except BaseException:  # what comes next on it would be taken for the answer to another question
                await self._drop()
                raise

    async def aclose(self) -> None:
        await self._drop()

    def __repr__(self) -> str:
        return f"Line({self._who})"

    async def _open(self) -> _Wire:
        try:
            self._wire = wire = _Wire(self._endpoint, self._access)
        except ValueError as error:  # of tls.trust
            raise Unreachable(f"{self._who} cannot be asked for anything: {error}.") from None
        await wire.connect()  # type: ignore[no-untyped-call]
        denied: Refused | None = None
        for password in (self._access.password, *self._access.former):
            if not password:
                continue
            (answer,) = await self._exchange(wire, (("AUTH", password),))
            if not isinstance(answer, Denied):
                return wire  # whatever else it has against us, it says again
            denied = answer
        if denied is not None:
            raise denied
        return wire

    async def _exchange(self, wire: _Wire, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands, each within its time after the one before."""
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            packed = b"".join(hiredis.pack_command(tuple(command)) for command in commands)  # type: ignore[arg-type]
            await wire.send_packed_command(packed, check_health=False)
        return [self._understood(command, await wire.answer(_patience(command))) for command in commands]

    def _understood(self, command: Command, answer: Any) -> Any:
        if isinstance(answer, _Wrong):
            code = str(answer).partition(" ")[0]
            kind = _KINDS.get(code, Refused)
            return kind(f"{self._who} refuses {_named(command)}: {answer}", code)
        is_raw = command[:2] in _BYTES or command[:1] in _BYTES
        return answer if is_raw else _texts(answer)

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.disconnect(nowait=True)

    @contextmanager
    def _told(self, command: Command) -> Iterator[None]:
        """Whatever happens to a connection, as Unreachable."""
        what = _named(command)
        try:
            yield
        except TimeoutError:
            why = f" gave no answer to {what} in time: it is busy, or out of reach."
        except ValueError:  # of hiredis
            why = f" answers {what} with what is not of Redis or Valkey."
        except (LibraryError, OSError) as error:
            why = self._cause(what, error)
        else:
            return
        raise Unreachable(self._who + why) from None

    def _cause(self, what: str, error: BaseException) -> str:
        if (failed := verify.failure(error)) is not None:
            return f": {verify.cause(failed)}"
        origin: BaseException | None = error
        while origin is not None and not isinstance(origin, OSError):
            origin = origin.__cause__ or origin.__context__
        if isinstance(origin, ConnectionRefusedError):
            return " refuses connections: nothing listens there."
        if isinstance(origin, TimeoutError):
            perhaps = ", speaks no TLS" if self._access.authority else ""  # then it waits for the end of a line
            return f" cannot be reached within {REQUEST_TIMEOUT_SECONDS:g} s: it is busy{perhaps}, or out of reach."
        if origin is not None and not isinstance(origin, ConnectionError):
            return f" cannot be reached: {origin.strerror or origin}."
        with_tls = "it stopped, or wants a client certificate"
        perhaps = with_tls if self._access.authority else "it stopped, or expects TLS"
        return f" ended the connection without an answer to {what}: {perhaps}."


class _Wire(Connection):
    """redis-py's connection, which sends nothing by itself; its answers are read as they come."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        super().__init__(
            host=endpoint.address,
            port=endpoint.port,
            socket_timeout=None,
            socket_connect_timeout=REQUEST_TIMEOUT_SECONDS,
            protocol=2,
            driver_info=None,
        )
        self._replies = hiredis.Reader(protocolError=ValueError, replyError=_Wrong, notEnoughData=_PARTIAL)
        self._tls = {}
        if access.authority:
            self._tls = {"ssl": verify.trust(access.authority, access.pair), "server_hostname": endpoint.host}

    async def answer(self, within: float) -> Any:
        """The next one: bytes, a number, None, a `_Wrong`, or a list of such.

        Args:
            within: seconds without a byte.

        Raises:
            ValueError: what comes is no answer.
        """
        while (answer := self._replies.gets()) is _PARTIAL:
            async with asyncio.timeout(within):
                more = await self._reader.read(_READ_BYTES) if self._reader else b""
            if not more:
                raise CutOff
            self._replies.feed(more)
        return answer

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {"host": self.host, "port": self.port, **self._tls}


def connect(endpoint: Endpoint, access: Access) -> Server:
    """A connection to a node; nothing is sent before the first command."""
    return ServerConnection(endpoint, access)


_: Connect = connect


def _texts(value: Any) -> Any:
    """A value with texts where it has bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return [_texts(each) for each in value] if isinstance(value, list) else value


def _named(command: Command) -> str:
    """A command without what it is given, which may be a secret or long."""
    words = command[:2] if command[0] in ("ACL", "CLIENT", "CLUSTER", "CONFIG", "FUNCTION", "SCRIPT") else command[:1]
    return " ".join(str(word) for word in words)


def _patience(command: Command) -> float:
    """Seconds for an answer to a command."""
    return REQUEST_TIMEOUT_SECONDS + (int(command[5]) / 1000 if command[0] == "MIGRATE" else 0.0)
