"""Speaks memcached's text protocol, as far as operators need it: https://docs.memcached.org/protocols/basic/

Credentials appear in no error and in no log, and are sent to none but a server that asks for them: to another, the
`set` by which a client authenticates would be an item like any other, for everyone to get.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Literal, Protocol

from operators.memcached.client.errors import (
    AuthenticationFailed,
    Busy,
    CertificatesRefused,
    TimedOut,
    TLSFailed,
    UnexpectedAnswer,
    Unreachable,
)
from shared.observability import tracing
from shared.pki.verify import cause

TIMEOUT_SECONDS = 5.0
"""Seconds for a connection to be ready, and for an answer to be complete."""

MAX_LINE_BYTES = 65536
MAX_LINES = 100_000
"""Bounds of an answer; the longest that memcached gives, `stats items`, has some 2,000 lines."""

Section = Literal["", "settings", "slabs", "items"]
"""What `stats` tells of; the empty one is the server as a whole."""


class Server(Protocol):
    """A server that is connected and, where it asks for that, authenticated. It is asked one thing at a time.

    Every method raises MemcachedError; after one of Unreachable, TLSFailed or UnexpectedAnswer, the connection is gone.

    Attributes:
        address: host:port.
        certificate: what it shows, in DER form; empty without TLS.
    """

    @property
    def address(self) -> str: ...

    @property
    def certificate(self) -> bytes: ...

    async def version(self) -> str:
        """Its version, such as 1.6.38."""

    async def stats(self, section: Section = "") -> dict[str, str]:
        """What it counts and how it is set, by memcached's names."""

    async def refresh_certs(self) -> None:
        """Make it read its certificate, key and client CAs anew; open connections and items stay.

        A CA that is no longer in the file is trusted until the server restarts.

        Raises:
            CertificatesRefused: it cannot use them. Where certificate and key do not belong together, it then refuses
                every new client, until it is told again over a connection that is open already.
        """

    async def aclose(self) -> None:
        """End the connection."""


async def connect(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    auth: tuple[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109 (of every later answer, too)
) -> Server:
    """Connect, so far that the server answers commands.

    Args:
        tls: trust, and the client's certificate if it has one; None for no TLS.
        server_name: the name that the server's certificate bears; by default the host.
        auth: user and password, for a server that asks for them.
        timeout: seconds for all of this, and for every answer afterwards.

    Raises:
        MemcachedError: which says what failed, and what mends it.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with _client_errors(
        address, "TLS handshake" if tls else "connection", timeout, tls=tls is not None, has_replied=False
    ):
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=(server_name or host) if tls else None, limit=MAX_LINE_BYTES
            )
    connection = _Connection(address, reader, writer, timeout)
    try:
        await connection.start(auth)
    except BaseException:
        connection.abort()
        raise
    return connection


class _Connection:
    def __init__(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float
    ) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
        self._has_replied = False  # whether it has answered anything

    @property
    def address(self) -> str:
        return self._address

    @property
    def certificate(self) -> bytes:
        return (self._tls.getpeercert(binary_form=True) or b"") if self._tls else b""

    async def start(self, auth: tuple[str, str] | None) -> None:
        """Authenticate if need be. Only an answer shows that a TLS 1.3 server takes the client's certificate."""
        line = await self._request("version")
        if line.startswith("CLIENT_ERROR unauthenticated"):
            if auth is None:
                raise AuthenticationFailed(f"{self.address} asks for a user and a password: give them.")
            await self._authenticate(*auth)
        else:
            self._version(line)

    async def version(self) -> str:
        return self._version(await self._request("version"))

    async def stats(self, section: Section = "") -> dict[str, str]:
        command = f"stats {section}".rstrip()
        found: dict[str, str] = {}
        async with self._exchange(command):
            for _ in range(MAX_LINES):
                line = await self._line(command)
                if line == "END":
                    return found
                word, _, stat = line.partition(" ")
                if word != "STAT":
                    raise self._unexpected(command, line)
                name, _, value = stat.partition(" ")
                found[name] = value
            raise UnexpectedAnswer(f"{self.address} answers {command!r} without end.")

    async def refresh_certs(self) -> None:
        line = await self._request("refresh_certs")
        if line.startswith("Error "):
            raise CertificatesRefused(f"{self.address} cannot use its certificate and key: {_truncated(line)}")
        if line != "OK":
            raise self._unexpected("refresh_certs", line)

    async def aclose(self) -> None:
        self._writer.close()
        with suppress(OSError):  # a timeout is one, too
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    def abort(self) -> None:
        """End the connection at once: what it still brings would be taken for the next answer."""
        self._writer.transport.abort()

    async def _authenticate(self, user: str, password: str) -> None:
        value = f"{user} {password}".encode()
        if not user or not password or len(value.split()) != 2:
            raise AuthenticationFailed(
                f"{self.address}: the user or the password is empty or holds a blank, and memcached takes neither."
            )
        # Key, flags and expiry mean nothing to a server that asks for authentication.
        line = await self._request(f"set auth 0 0 {len(value)}", value + b"\r\n", label="authentication")
        if line.startswith("CLIENT_ERROR"):
            raise AuthenticationFailed(f"{self.address} does not take this user and password: mend one of them.")
        if line != "STORED":
            raise UnexpectedAnswer(f"{self.address} answers authentication with neither yes nor no.")  # may repeat it

    async def _request(self, command: str, data: bytes = b"", *, label: str | None = None) -> str:
        """The one line that a command is answered with."""
        async with self._exchange(command, data, label=label):
            return await self._line(label or command)

    @asynccontextmanager
    async def _exchange(self, command: str, data: bytes = b"", *, label: str | None = None) -> AsyncIterator[None]:
        """Send a command, for its answer to be read; where that fails, the connection is out of step, and ends."""
        awaited = f"answer to {label or command!r}"
        try:
            with (
                tracing.span(f"memcached {label or command}", server=str(self.address)),
                _client_errors(
                    self.address, awaited, self._timeout, tls=self._tls is not None, has_replied=self._has_replied
                ),
            ):
                async with asyncio.timeout(self._timeout):
                    self._writer.write(f"{command}\r\n".encode() + data)
                    await self._writer.drain()
                    yield
            self._has_replied = True
        except BaseException:
            self.abort()
            raise

    async def _line(self, command: str) -> str:
        try:
            line = (await self._reader.readuntil(b"\n")).rstrip(b"\r\n").decode(errors="backslashreplace")
        except asyncio.LimitOverrunError:
            raise UnexpectedAnswer(
                f"{self.address} answers {command!r} with a line of over {MAX_LINE_BYTES} bytes: it is not memcached."
            ) from None
        if line.startswith("ERROR Too many open connections"):
            raise Busy(f"{self.address} has as many clients as it takes (-c): raise that, or end some of them.")
        return line

    def _version(self, line: str) -> str:
        word, _, version = line.partition(" ")
        if word != "VERSION":
            raise self._unexpected("version", line)
        return version

    def _unexpected(self, command: str, line: str) -> UnexpectedAnswer:
        return UnexpectedAnswer(f"{self.address} answers {command!r} with {_truncated(line)!r}: is it memcached?")


@contextmanager
def _client_errors(address: str, awaited: str, timeout: float, *, tls: bool, has_replied: bool) -> Iterator[None]:
    """Tell what happens to a connection as MemcachedError.

    Args:
        what: is waited for, without an article.
        proven: whether the server has answered on this connection. Before that, its end may mean TLS: of version 1.3,
            a client hears that it is refused only after its handshake, and often but by the connection's end.
    """
    try:
        yield
    except TimeoutError:
        hint = "" if has_replied else ", or it speaks no TLS" if tls else ", or it expects TLS"
        raise TimedOut(f"{address} gave no {awaited} within {timeout:g} s: it is busy or out of reach{hint}.") from None
    except ssl.SSLError as error:
        raise TLSFailed(f"{address}: {cause(error)}") from None
    except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
        if tls and not has_replied:
            raise TLSFailed(
                f"{address} gave no {awaited}, but ended the connection: it wants a client certificate that its CA "
                "(ssl_ca_cert) signed, or speaks no TLS."
            ) from None
        hint = "it stopped" if has_replied else "it stopped, or expects TLS"
        raise Unreachable(f"{address} gave no {awaited}, but ended the connection: {hint}.") from None
    except ConnectionRefusedError:
        raise Unreachable(f"{address} refuses connections: nothing listens there.") from None
    except socket.gaierror as error:
        raise Unreachable(f"{address}: no such host ({error.strerror}).") from None
    except OSError as error:
        raise Unreachable(f"{address} cannot be reached: {error.strerror or error}.") from None


def _truncated(line: str) -> str:
    return line if len(line) <= 200 else f"{line[:200]}…"
