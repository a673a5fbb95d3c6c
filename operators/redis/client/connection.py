"""Connection to one Redis or Valkey node, over redis-py's asyncio connection, without its pool, retries and cluster.

- Moving slots lists every key and sends it back. hiredis parses and packs them in C; redis-py's own methods await
  twice for each response.
- The connection uses RESP2, which every server supports, and sends no CLIENT SETINFO, which exists since Redis 7.2.
- redis-py removes the first word of some errors and turns others into connection errors; here each error stays as
  the server wrote it.
- Whether a password is required is the server's decision: a server without one rejects AUTH, which is no failure. If
  the current password is rejected, former ones are tried, so that a rotation may be interrupted anywhere.
- MIGRATE takes as long as the keys that it moves; its argument is the timeout.

Errors never contain passwords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import hiredis
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as CutOff
from redis.exceptions import RedisError as LibraryError

from operators.redis.client.errors import Denied, Loading, Refused, Unreachable, sure
from operators.redis.client.server import LONG_ANSWERS, Access, Command, Connect, Endpoint, Server
from shared.observability import tracing
from shared.pki import verify

REQUEST_TIMEOUT_SECONDS = 5.0
"""Timeout for a connection, and for the next bytes of a response."""

EXCHANGE_TIMEOUT_SECONDS = 30.0
"""Timeout for all responses to commands that are sent at once, beyond what MIGRATE may take."""

_READ_BYTES = 1 << 14
"""Maximum size of one read, in bytes."""

MAX_REPLY_BYTES, MAX_RAW_REPLY_BYTES = 512 * 1024, 8 * 1024 * 1024
"""Maximum size of a response, and of one with keys, values or functions: CLUSTER NODES of 500 nodes has 200 KiB."""

MAX_REPLY_ITEMS = 16_384
"""Maximum number of items in a response, nested ones included."""

MORE_BYTES, MORE_ITEMS = 1024, 16
"""How much more than one response those to several commands may have together, for each of the first 1,024 commands.

An inspection of 500 nodes with 640 directives and 128 users needs 600 KiB. Longer pipes count keys, in 16 bytes each.
"""

SHORT_BYTES = 2048
"""Size from which responses together are long (`few_long_answers`)."""

MAX_REPLY_LINE_BYTES = 64 * 1024
"""Maximum size of a line outside bulk strings: a number, a status or an error."""

_PARTIAL = object()
"""Placeholder for an incomplete response."""

_BYTES = frozenset({("DUMP",), ("FUNCTION",), ("GET",), ("CLUSTER", "GETKEYSINSLOT")})
"""Commands that return keys and values, by their first word or first two words (CONFIG GET returns text)."""

_KINDS: Mapping[str, type[Refused]] = {
    **dict.fromkeys(("DENIED", "NOAUTH", "NOPERM", "WRONGPASS"), Denied),
    **dict.fromkeys(("BUSY", "LOADING", "MASTERDOWN"), Loading),
}


class _Wrong(Exception):
    """An error, as the server wrote it."""


class _TooLarge(ValueError):
    """A response exceeds a limit; the message is the end of a sentence."""


class ReplyLimits:
    """Limits of the responses on a connection, checked before they are parsed.

    hiredis allocates what the header of an array announces: 15 bytes that announce 400 million items occupy the event
    loop for 10 seconds. So the length of each element is read here first, and its content is skipped.
    """

    def __init__(self) -> None:
        self._head = b""  # beginning of a line that is not complete
        self._skipped = 0  # bytes of a bulk string that have not arrived
        self._size = self._items = 0
        self.received = self._all_items = 0  # of the responses to all commands that were sent at once
        self._most, self._most_items = MAX_REPLY_BYTES, MAX_REPLY_ITEMS

    def begin(self, commands: Sequence[Command]) -> None:
        """Note that commands are sent."""
        raw, several = sum(map(_is_raw, commands)), min(len(commands), 1024)
        self.received = self._all_items = 0
        self._most = MAX_REPLY_BYTES + raw * MAX_RAW_REPLY_BYTES + several * MORE_BYTES + len(commands) * 16
        self._most_items = (1 + raw) * MAX_REPLY_ITEMS + several * MORE_ITEMS + len(commands)

    def next(self) -> None:
        """Note that a response is complete."""
        self._size = self._items = 0

    def check(self, received: bytes, most: int) -> None:
        """Check the next bytes.

        Args:
            most: maximum size of a response, in bytes.

        Raises:
            ValueError: a limit is exceeded, or the data is not a response.
        """
        self._size += len(received)
        self.received += len(received)
        if self._size > most or self.received > self._most:
            raise _TooLarge(f"more than {min(most, self._most):,} bytes")
        if self._skipped >= len(received):
            self._skipped -= len(received)
            return
        data, at = self._head + received[self._skipped :], 0
        self._head, self._skipped = b"", 0
        while at < len(data):
            end = data.find(b"\r\n", at)
            if (len(data) if end < 0 else end) - at > MAX_REPLY_LINE_BYTES:
                raise _TooLarge(f"a line of more than {MAX_REPLY_LINE_BYTES:,} bytes")
            if end < 0:
                self._head = data[at:]
                return
            self._items += 1
            self._all_items += 1
            at = end + 2 + self._length(data[at : at + 1], data[at + 1 : end], most)
            if self._items > MAX_REPLY_ITEMS or self._all_items > self._most_items:
                raise _TooLarge(f"more than {MAX_REPLY_ITEMS:,} items")
        self._skipped = at - len(data)

    @staticmethod
    def _length(kind: bytes, announced: bytes, most: int) -> int:
        """Return the number of bytes that follow a line, and belong to its element."""
        if kind not in b"$*":
            return 0
        length = int(announced[:20])
        if kind == b"*" and length > MAX_REPLY_ITEMS:
            raise _TooLarge(f"{length:,} items")
        if length > most:
            raise _TooLarge(f"{length:,} bytes")
        return length + 2 if kind == b"$" and length >= 0 else 0


class ServerConnection:
    """A connection to one node; see `Server`. Opened with the first command, and again after a failure."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        self._name = f"{endpoint.name} ({address}:{endpoint.port})"
        self._endpoint = endpoint
        self._access = access
        self._wire: _Wire | None = None
        self._turn = asyncio.Lock()

    async def execute(self, *command: str | int | bytes) -> Any:
        (answer,) = await self.pipe((command,))
        return sure(answer)

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        async with self._turn:
            try:
                with self._traced(commands), self._unreachable_errors(commands[0]):
                    wire = self._wire or await self._open()
                    return await self._exchange(wire, commands)
            except BaseException:  # a late response would be mistaken for that of the next command
                await self._drop()
                raise

    def _traced(self, commands: Sequence[Command]) -> AbstractContextManager[object]:
        to, first = self._endpoint, _named(commands[0])
        return tracing.database_span("redis", first, to.address, to.port, pod=to.name, commands=len(commands))

    async def aclose(self) -> None:
        await self._drop()

    def __repr__(self) -> str:
        return f"ServerConnection({self._name})"

    async def _open(self) -> _Wire:
        if self._access.authority == "":  # any server may answer at the address of a node
            raise Unreachable(f"{self._name} is not contacted: no Secret has a usable certificate for spec.tls.")
        try:
            self._wire = wire = _Wire(self._endpoint, self._access)
        except ValueError as error:  # of tls.trust
            raise Unreachable(f"{self._name} cannot be contacted: {error}.") from None
        await wire.connect()  # type: ignore[no-untyped-call]
        denied: Refused | None = None
        for password in (self._access.password, *self._access.former):
            if not password:
                continue
            (answer,) = await self._exchange(wire, (("AUTH", password),))
            if not isinstance(answer, Denied):
                return wire  # other errors repeat with the next command
            denied = answer
        if denied is not None:
            raise denied
        return wire

    async def _exchange(self, wire: _Wire, commands: Sequence[Command]) -> list[Any]:
        """Return the responses to commands, each within its timeout after the previous one, all within another one."""
        wire.limits.begin(commands)
        wire.until = asyncio.get_running_loop().time() + EXCHANGE_TIMEOUT_SECONDS + sum(map(_migration, commands))
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            packed = b"".join(hiredis.pack_command(tuple(command)) for command in commands)  # type: ignore[arg-type]
            await wire.send_packed_command(packed, check_health=False)
        return [self._understood(command, await wire.answer(_timeout(command), _most(command))) for command in commands]

    def _understood(self, command: Command, answer: Any) -> Any:
        if isinstance(answer, _Wrong):
            code = str(answer).partition(" ")[0]
            kind = _KINDS.get(code, Refused)
            return kind(f"{self._name} refuses {_named(command)}: {answer}", code)
        return answer if _is_raw(command) else _texts(answer)

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.end_long_answers()
            await wire.disconnect(nowait=True)

    @contextmanager
    def _unreachable_errors(self, command: Command) -> Iterator[None]:
        """Raise every connection problem as Unreachable."""
        name, distrusts = _named(command), False
        try:
            yield
        except TimeoutError:
            why = f" did not respond to {name} in time: it is busy or unreachable."
        except _TooLarge as error:
            why = f" responds to {name} with {error}, more than the operator reads."
        except ValueError:  # of hiredis
            why = f" responds to {name} with data that is not of Redis or Valkey."
        except (LibraryError, OSError) as error:
            failed, why = verify.failure(error), self._cause(name, error)
            distrusts = failed is not None and verify.is_distrust(failed)
            if failed is not None:
                failed.__traceback__ = None  # frames of asyncio would keep the buffers until the next collection
        else:
            return
        raise Unreachable(self._name + why, distrusts=distrusts) from None

    def _cause(self, command: str, error: BaseException) -> str:
        if (failed := verify.failure(error)) is not None:
            return f": {verify.cause(failed)}"
        origin: BaseException | None = error
        while origin is not None and not isinstance(origin, OSError):
            origin = origin.__cause__ or origin.__context__
        if isinstance(origin, ConnectionRefusedError):
            return " refuses connections: no process listens on the port."
        if isinstance(origin, TimeoutError):
            no_tls = ", does not use TLS" if self._access.authority else ""  # then it waits for the end of a line
            return f" cannot be reached within {REQUEST_TIMEOUT_SECONDS:g} s: it is busy{no_tls}, or unreachable."
        if origin is not None and not isinstance(origin, ConnectionError):
            return f" cannot be reached: {origin.strerror or origin}."
        with_tls = "it stopped, or requires a client certificate"
        perhaps = with_tls if self._access.authority else "it stopped, or expects TLS"
        return f" closed the connection without a response to {command}: {perhaps}."


class _Wire(Connection):
    """redis-py's connection, which sends nothing by itself; responses are read as they arrive."""

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
        self.limits = ReplyLimits()
        self.until = 0.0  # end of the present exchange, by the clock of the event loop
        self._admitted: asyncio.Semaphore | None = None
        self._tls = {}
        if access.authority:
            self._tls = {"ssl": verify.trust(access.authority, access.pair), "server_hostname": endpoint.host}

    async def answer(self, within: float, most: int) -> Any:
        """Return the next response: bytes, a number, None, a `_Wrong`, or a list of such.

        Args:
            within: timeout in seconds without a byte.
            most: maximum size of the response, in bytes.

        Raises:
            ValueError: the data is not a response, or exceeds a limit.
        """
        clock = asyncio.get_running_loop().time
        while (answer := self._replies.gets()) is _PARTIAL:
            turn = LONG_ANSWERS.get() if self._admitted is None else None
            if turn is not None and self.limits.received >= SHORT_BYTES:
                began = clock()
                await turn.acquire()
                self._admitted, turn = turn, None
                self.until += clock() - began
            async with asyncio.timeout_at(min(clock() + within, self.until)):
                most_read = _READ_BYTES if turn is None else SHORT_BYTES
                more = await self._reader.read(most_read) if self._reader else b""
            if not more:
                raise CutOff
            self.limits.check(more, most)
            self._replies.feed(more)
        self.limits.next()
        return answer

    def end_long_answers(self) -> None:
        """Let another server send long answers: what this one sent is no longer used."""
        if self._admitted is not None:
            self._admitted.release()
            self._admitted = None

    async def _connect(self) -> None:
        await super()._connect()  # type: ignore[no-untyped-call]
        if self._writer is not None:  # asyncio would receive 256 KiB at once, and keep what is not read yet
            vars(self._writer.transport)["max_size"] = _READ_BYTES

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {"host": self.host, "port": self.port, "limit": SHORT_BYTES, **self._tls}


def connect(endpoint: Endpoint, access: Access) -> Server:
    """Return a connection to a node; nothing is sent before the first command."""
    return ServerConnection(endpoint, access)


_: Connect = connect


def _texts(value: Any) -> Any:
    """Return a value with text instead of bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")  # `backslashreplace` is 60 times slower
    return [_texts(each) for each in value] if isinstance(value, list) else value


def _is_raw(command: Command) -> bool:
    """Return whether the response to a command has keys or values."""
    return command[:2] in _BYTES or command[:1] in _BYTES


def _most(command: Command) -> int:
    """Return the maximum size of the response to a command, in bytes."""
    return MAX_RAW_REPLY_BYTES if _is_raw(command) else MAX_REPLY_BYTES


def _named(command: Command) -> str:
    """Return the name of a command without its arguments, which may be secret or long."""
    words = command[:2] if command[0] in ("ACL", "CLIENT", "CLUSTER", "CONFIG", "FUNCTION", "SCRIPT") else command[:1]
    return " ".join(str(word) for word in words)


def _timeout(command: Command) -> float:
    """Return the timeout of a command in seconds."""
    return REQUEST_TIMEOUT_SECONDS + _migration(command)


def _migration(command: Command) -> float:
    """Return the seconds for which a command may move keys."""
    return int(command[5]) / 1000 if command[0] == "MIGRATE" else 0.0
