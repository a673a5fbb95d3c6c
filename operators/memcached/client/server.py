"""Client of memcached's text protocol, as far as operators need it: https://docs.memcached.org/protocols/basic/

Credentials appear in no error and no log. They are sent only to a server that requires authentication: any other server
would store the `set` command that authenticates a client as an item, which every client can read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import Literal, Protocol

from operators.memcached.client.errors import (
    AuthenticationFailed,
    Busy,
    CertificatesRefused,
    NotTrusted,
    TimedOut,
    TLSFailed,
    UnexpectedAnswer,
    Unreachable,
)
from shared.kubernetes.addresses import host_port
from shared.observability import tracing
from shared.pki.verify import cause

TIMEOUT_SECONDS = 5.0
"""Time limit for a connection to be ready, and for a response to be complete."""

MAX_LINE_BYTES = 64 * 1024
MAX_LINES, MAX_RESPONSE_BYTES = 10_000, 512 * 1024
"""Limits of a line, and of a response; the longest one of memcached, to `stats items`, has about 2,000 lines."""

MAX_GENERAL_LINES, MAX_GENERAL_BYTES = 300, 32 * 1024
"""Limits of the general statistics, about 100 lines, which the operator requests of many servers at once."""

Section = Literal["", "settings", "slabs", "items"]
"""Argument of `stats`; empty for the general statistics."""


class Server(Protocol):
    """A connection to a server, authenticated if the server requires it. It handles one request at a time.

    Every method raises MemcachedError; Unreachable, TLSFailed and UnexpectedAnswer close the connection.

    Attributes:
        address: host:port.
        certificate: certificate of the server, in DER form; empty without TLS.
    """

    @property
    def address(self) -> str: ...

    @property
    def certificate(self) -> bytes: ...

    async def version(self) -> str:
        """Return the version of the server, such as 1.6.38."""

    async def stats(self, section: Section = "") -> dict[str, str]:
        """Return statistics or settings by memcached's names."""

    async def refresh_certs(self) -> None:
        """Reload the certificate, key and client CAs of the server; open connections and items are kept.

        A CA that was removed from the file stays trusted until the server restarts.

        Raises:
            CertificatesRefused: the server cannot load them. If certificate and key do not match, the server then
                rejects every new client, until a reload over an open connection succeeds.
        """

    async def aclose(self) -> None:
        """Close the connection."""


async def connect(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    trusts: Callable[[bytes], bool] | None = None,
    auth: tuple[str, str] | None = None,
    handshake_only: bool = False,
    timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109 (of every later response, too)
) -> Server:
    """Connect and authenticate, until the server accepts commands.

    Args:
        host: host name or IP address.
        port: TCP port.
        tls: trusted CAs, and the client's certificate, if any; None for no TLS.
        server_name: name in the server's certificate; the host by default.
        trusts: whether to trust the certificate of the server, in DER form, if `tls` does not verify it; None for any.
            Nothing is sent to a server that is not trusted.
        auth: user and password, for a server that requires authentication.
        handshake_only: whether to send no command, for a server that responds to none of the ASCII protocol.
        timeout: seconds for the connection, and for every later response.

    Raises:
        MemcachedError: the connection failed; the message states the cause and the remedy.
    """
    address = host_port(host, port)
    with _client_errors(
        address, "TLS handshake" if tls else "connection", timeout, tls=tls is not None, has_replied=False
    ):
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=(server_name or host) if tls else None, limit=MAX_LINE_BYTES
            )
    connection = _Connection(address, reader, writer, timeout)
    try:
        if trusts is not None and not trusts(connection.certificate):
            raise NotTrusted(f"{address}: the certificate of the server is not trusted, and no password was sent.")
        if not handshake_only:
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
        self._has_replied = False  # whether the server has responded on this connection

    @property
    def address(self) -> str:
        return self._address

    @property
    def certificate(self) -> bytes:
        return (self._tls.getpeercert(binary_form=True) or b"") if self._tls else b""

    async def start(self, auth: tuple[str, str] | None) -> None:
        """Authenticate if required. With TLS 1.3, only a response shows that the client certificate is accepted."""
        line = await self._request("version")
        if line.startswith("CLIENT_ERROR unauthenticated"):
            if auth is None:
                raise AuthenticationFailed(f"{self.address} requires authentication: provide a user and a password.")
            await self._authenticate(*auth)
        else:
            self._version(line)

    async def version(self) -> str:
        return self._version(await self._request("version"))

    async def stats(self, section: Section = "") -> dict[str, str]:
        command = f"stats {section}".rstrip()
        lines, size = (MAX_LINES, MAX_RESPONSE_BYTES) if section else (MAX_GENERAL_LINES, MAX_GENERAL_BYTES)
        found: dict[str, str] = {}
        received = 0
        async with self._exchange(command):
            for _ in range(lines):
                line = await self._line(command)
                received += len(line)
                if received > size:
                    raise UnexpectedAnswer(f"{self.address} returned more than {size} bytes for {command!r}.")
                if line == "END":
                    return found
                word, _, stat = line.partition(" ")
                if word != "STAT":
                    raise self._unexpected(command, line)
                name, _, value = stat.partition(" ")
                found[name] = value
            raise UnexpectedAnswer(f"{self.address} returned more than {lines} lines for {command!r}.")

    async def refresh_certs(self) -> None:
        line = await self._request("refresh_certs")
        if line.startswith("Error "):
            raise CertificatesRefused(f"{self.address} cannot load its certificate and key: {_truncated(line)}")
        if line != "OK":
            raise self._unexpected("refresh_certs", line)

    async def aclose(self) -> None:
        self._writer.close()
        with suppress(OSError):  # TimeoutError is an OSError
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    def abort(self) -> None:
        """Close the connection at once, so that the rest of a response is not read as the next one."""
        self._writer.transport.abort()

    async def _authenticate(self, user: str, password: str) -> None:
        value = f"{user} {password}".encode()
        if not user or not password or len(value.split()) != 2:
            raise AuthenticationFailed(
                f"{self.address}: user or password is empty or contains whitespace, which memcached does not support."
            )
        # A server that requires authentication ignores the key, flags and expiry.
        line = await self._request(f"set auth 0 0 {len(value)}", value + b"\r\n", label="authentication")
        if line.startswith("CLIENT_ERROR"):
            raise AuthenticationFailed(f"{self.address} rejects the user and password: correct them.")
        if line != "STORED":
            # The response may contain the password.
            raise UnexpectedAnswer(f"{self.address} returned an unexpected response to authentication.")

    async def _request(self, command: str, data: bytes = b"", *, label: str | None = None) -> str:
        """Send a command and return its response of one line."""
        async with self._exchange(command, data, label=label):
            return await self._line(label or command)

    @asynccontextmanager
    async def _exchange(self, command: str, data: bytes = b"", *, label: str | None = None) -> AsyncIterator[None]:
        """Send a command; the body of the context reads the response. A failure closes the connection."""
        awaited = f"response to {label or command!r}"
        try:
            with (
                self._traced(label or command),
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

    def _traced(self, command: str) -> AbstractContextManager[object]:
        host, _, port = self.address.rpartition(":")
        return tracing.database_span("memcached", command, host.strip("[]"), int(port))

    async def _line(self, command: str) -> str:
        try:
            line = (await self._reader.readuntil(b"\n")).rstrip(b"\r\n").decode(errors="backslashreplace")
        except asyncio.LimitOverrunError:
            raise UnexpectedAnswer(
                f"{self.address} returned a line of over {MAX_LINE_BYTES} bytes for {command!r}: it is not memcached."
            ) from None
        if line.startswith("ERROR Too many open connections"):
            raise Busy(f"{self.address} has reached its connection limit (-c): raise the limit, or close connections.")
        return line

    def _version(self, line: str) -> str:
        word, _, version = line.partition(" ")
        if word != "VERSION":
            raise self._unexpected("version", line)
        return version

    def _unexpected(self, command: str, line: str) -> UnexpectedAnswer:
        return UnexpectedAnswer(
            f"{self.address} returned {_truncated(line)!r} for {command!r}: it may not be memcached."
        )


@contextmanager
def _client_errors(address: str, awaited: str, timeout: float, *, tls: bool, has_replied: bool) -> Iterator[None]:
    """Translate errors of a connection into MemcachedError.

    Args:
        address: host:port of the server.
        awaited: event that the caller waits for, without an article.
        timeout: time limit in seconds, for the message.
        tls: whether the connection uses TLS.
        has_replied: whether the server has responded on this connection. Before that, a closed connection may mean
            TLS: with version 1.3, a server rejects a client certificate after the handshake, often without an alert.
    """
    try:
        yield
    except TimeoutError:
        hint = "" if has_replied else ", or does not use TLS" if tls else ", or expects TLS"
        raise TimedOut(
            f"{address}: no {awaited} within {timeout:g} s: the server is busy or unreachable{hint}.",
            is_accepted=awaited.startswith("response"),
        ) from None
    except ssl.SSLError as error:
        error.__traceback__ = None  # frames of asyncio would keep the buffers until the next collection
        raise TLSFailed(f"{address}: {cause(error)}") from None
    except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
        if tls and not has_replied:
            raise TLSFailed(
                f"{address}: no {awaited}, and the server closed the connection: it requires a client certificate "
                "signed by its CA (ssl_ca_cert), or does not use TLS."
            ) from None
        hint = "it stopped" if has_replied else "it stopped or expects TLS"
        raise Unreachable(f"{address}: no {awaited}, and the server closed the connection: {hint}.") from None
    except ConnectionRefusedError:
        raise Unreachable(f"{address} refuses connections: no process listens on this port.") from None
    except socket.gaierror as error:
        raise Unreachable(f"{address}: unknown host ({error.strerror}).") from None
    except OSError as error:
        raise Unreachable(f"{address} is unreachable: {error.strerror or error}.") from None


def _truncated(line: str) -> str:
    return line if len(line) <= 200 else f"{line[:200]}…"
