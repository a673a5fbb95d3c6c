"""HTTP requests to one etcd member; every failure is raised as EtcdError."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from operators.etcd.client import responses
from operators.etcd.client.errors import EtcdError, Unreachable
from operators.etcd.client.server import Access, Endpoint
from shared.kubernetes.encoding import decode
from shared.observability import tracing
from shared.pki import verify

REQUEST_TIMEOUT_SECONDS = 5.0
"""Timeout of a read request."""

STREAM_PAUSE_SECONDS = 60.0
"""Longest pause between two lines of a stream, in seconds."""

MAX_LINE_BYTES = 2**20
"""Maximum length of a line of a stream; etcd's have 44 KiB."""

BUFFER_BYTES = 2**14
"""Bytes of a response that are received before they are read. In chunks of one byte, each takes about 100 bytes."""

RECEIVED_BYTES = 2**15
"""Receive buffer of a connection, which Linux doubles: at most this is parsed at once, also in chunks of one byte."""

MAX_BODY_BYTES, MAX_METRICS_BYTES = 256 * 1024, 2**19
"""Maximum size of a response, and of the metrics; a member list has 3 KiB, and the metrics of a member 200 KiB."""

_PLAIN = {"Accept-Encoding": "identity"}
"""Header of requests: a few compressed bytes could fill the memory."""

_HEALTH = (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)

Answer = TypeVar("Answer")


class Wire:
    """Connections to one member, for one reconcile.

    Keeping connections between reconciles would cost some hundred kilobytes per member with TLS; opening them again
    takes a few milliseconds.

    Attributes:
        label: name and address of the member, for errors.
    """

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        self.label = f"{endpoint.name} ({address}:{endpoint.port})"
        self._url = f"{'http' if access.authority is None else 'https'}://{address}:{endpoint.port}"
        self._plain = f"http://{address}:{endpoint.metrics}"
        self._endpoint = endpoint
        self._host = endpoint.host
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Any], Answer],
        *,
        token: str = "",
        within: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Answer:
        """Send a request and parse the response.

        Args:
            path: path below /v3/.
            within: timeout of the whole request, in seconds.
        """
        whole = aiohttp.ClientTimeout(total=within)
        with self._traced(path):
            async with self._response(f"{self._url}/v3/{path}", path, whole, body, token) as answer:
                return self._parsed(path, _json(read), await self._body(path, answer))

    async def get(self, path: str, read: Callable[[Any], Answer]) -> Answer:
        """Return the response to a request that needs no authentication."""
        whole = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        with self._traced(path):
            async with self._response(f"{self._url}/{path}", path, whole) as answer:
                return self._parsed(path, _json(read), await self._body(path, answer))

    async def metrics(self, read: Callable[[str], Answer]) -> Answer:
        """Return the metrics for Prometheus."""
        whole = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        with self._traced("metrics"):
            async with self._response(f"{self._plain}/metrics", "metrics", whole) as answer:
                text = await self._body("metrics", answer, MAX_METRICS_BYTES)
                return self._parsed("metrics", lambda text: read(text.decode()), text)

    async def health(self, read: Callable[[Any], Answer]) -> Answer:
        """Return the health of the member as it knows it, without a quorum."""
        whole, url = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS), f"{self._plain}/health?serializable=true"
        with self._traced("health"):
            async with self._response(url, "health", whole, expected=_HEALTH) as answer:
                return self._parsed("health", _json(read), await self._body("health", answer))

    async def lines(self, path: str, *, token: str = "") -> AsyncIterator[bytes]:
        """Yield the lines of a stream."""
        pauses = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_SECONDS, sock_read=STREAM_PAUSE_SECONDS)
        url, buffer = f"{self._url}/v3/{path}", MAX_LINE_BYTES // 2  # aiohttp allows twice this
        async with self._response(url, path, pauses, {}, token, buffer=buffer) as answer:
            async for line in answer.content:
                yield line

    def refused(self, path: str, body: bytes) -> EtcdError:
        """Return the error for an unsuccessful response."""
        kind, text = responses.refusal(body)
        if kind is Unreachable:
            return kind(f"{self.label} returned no response of etcd to {path}: {text}.")
        return kind(f"{self.label} rejected {path}: {text}.")

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _traced(self, path: str) -> AbstractContextManager[object]:
        to = self._endpoint
        return tracing.database_span("etcd", path, to.address, to.port, pod=to.name)

    @asynccontextmanager
    async def _response(
        self,
        url: str,
        path: str,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
        body: Mapping[str, Any] | None = None,
        token: str = "",
        *,
        expected: tuple[int, ...] = (HTTPStatus.OK,),
        buffer: int = BUFFER_BYTES,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a successful response.

        Args:
            buffer: bytes after which no more are received until some are read.
        """
        with self._translated_errors(path, timeout):
            if url.startswith("https:") and not self._access.authority:
                raise ValueError("the cluster requires TLS, and its certificate authority is unknown")
            async with self._open().request(
                "GET" if body is None else "POST",
                url,
                json=body,
                headers={"Host": self._host, **_PLAIN} | ({"Authorization": token} if token else {}),
                timeout=timeout,
                server_hostname=self._host if url.startswith("https:") else None,
                allow_redirects=False,
                read_bufsize=buffer,
            ) as answer:
                if answer.status not in expected:
                    raise self.refused(path, await self._body(path, answer))
                yield answer

    async def _body(self, path: str, answer: aiohttp.ClientResponse, most: int = MAX_BODY_BYTES) -> bytes:
        """Return the body of a response.

        Raises:
            Unreachable: the body has more than `most` bytes.
        """
        found = bytearray()
        while part := await answer.content.read(min(BUFFER_BYTES, most + 1 - len(found))):
            found += part
            await asyncio.sleep(0)  # reading what has been received does not let the event loop run
            if len(found) > most:
                raise Unreachable(
                    f"{self.label} answered {path} with a response that is not of etcd: over {most} bytes."
                )
        return bytes(found)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            trust = verify.trust(self._access.authority, self._access.pair) if self._access.authority else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust, socket_factory=_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    def _parsed(self, path: str, read: Callable[[bytes], Answer], text: bytes) -> Answer:
        try:
            return read(text)
        except responses.MALFORMED:
            shown = text[:200].decode(errors="replace")
            raise Unreachable(f"{self.label} answered {path} with a response that is not of etcd: {shown!r}.") from None

    @contextmanager
    def _translated_errors(self, path: str, timeout: aiohttp.ClientTimeout) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            within = timeout.total or STREAM_PAUSE_SECONDS
            why = f" did not answer {path} within {within:g} s: it is busy, unreachable, or has no quorum."
        except (aiohttp.ClientError, OSError) as error:
            why = _cause(path, error, uses_tls=bool(self._access.authority))
        except LineTooLong:
            why = f" answered {path} with a response that is not of etcd: a line of over {MAX_LINE_BYTES} bytes."
        except ValueError as error:  # the authorities are unknown, or cannot be used
            why = f" cannot be queried for {path}: {error}."
        else:
            return
        raise Unreachable(self.label + why) from None


def _socket(address: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
    """Return the socket for a connection, whose receive buffer bounds what occupies the event loop at once."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    return opened


def _json(read: Callable[[Any], Answer]) -> Callable[[bytes], Answer]:
    return lambda text: read(decode(text))


def _cause(path: str, error: BaseException, *, uses_tls: bool) -> str:
    """Describe a failed connection, as a suffix of the member's label."""
    if (failed := verify.failure(error)) is not None:
        return f": {verify.cause(failed)}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f" interrupted its response to {path}."
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return " refuses connections: no process listens there."
        if not isinstance(error.os_error, ConnectionError):
            return f" cannot be reached: {error.os_error.strerror or error.os_error}."
    perhaps = "it requires a client certificate, or does not use TLS" if uses_tls else "it stopped, or requires TLS"
    return f" closed the connection without a response to {path}: {perhaps}."
