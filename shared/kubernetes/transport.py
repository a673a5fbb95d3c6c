"""Transport to the API server: connection pools of aiohttp.

The official client's `ApiClient` is not used: it resolves proxies on each request, and a .netrc in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from shared.kubernetes.client import Request, Response, Transport, error_of
from shared.kubernetes.credentials import Configuration, authorization
from shared.kubernetes.encoding import MAX_PARSED_BYTES, MAX_PARSED_VALUES, encode, parsed_share
from shared.kubernetes.errors import TooLarge, Unavailable
from shared.kubernetes.streams import Streams
from shared.observability import metrics, tracing
from shared.observability.tls_buffers import limit_tls_buffers

AGENT = "platform-operators"

MAX_OTHER_CONNECTIONS = 32
"""Maximum number of connections for events, lists and reads of named objects, in addition to one for each reconcile."""

SMALL_BYTES, MAX_LARGE_RESPONSES = 64 * 1024, 2
"""Size of a response above which few are read and parsed at the same time: every user may create large objects."""

MAX_LEASE_CONNECTIONS, MAX_REVIEW_CONNECTIONS = 4, 4
"""Maximum number of connections for the Leases, and for reviews of requests to /metrics."""

UNLIMITED = 0
"""Number of connections for watches, whose number is that of the watched collections."""

REQUEST_TIMEOUT_SECONDS = 30.0
"""Seconds after which a request without a response fails."""

MAX_SILENCE_SECONDS = 150.0
"""Seconds without a byte after which a watch counts as broken: API servers send a bookmark about every minute."""

MAX_LINE_BYTES = 2 * MAX_PARSED_BYTES
"""Length of a line of a watch above which the rest is dropped. Custom resources, which are named at the end of their
metadata, have at most 1.5 MiB in etcd."""

_FILLED = "Remove what other clients have added to the object, such as annotations."

_TIMEOUT = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
_STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_SECONDS, sock_read=MAX_SILENCE_SECONDS)


class HttpTransport:
    """Sends requests over a pool of connections, each with the current credentials.

    Args:
        connections: maximum number of connections; `UNLIMITED` for watches, which occupy one each.
    """

    def __init__(self, configuration: Configuration, connections: int = MAX_OTHER_CONNECTIONS) -> None:
        self._configuration = configuration
        self._connections = connections
        self._host: str = configuration.host
        self._address = urlsplit(configuration.host).netloc  # as client-go's metrics name it
        self._tls_version = configuration.tls.version
        self._session = open_session(configuration, connections=connections)
        self._large = asyncio.Semaphore(MAX_LARGE_RESPONSES)

    async def request(self, request: Request) -> Response:
        answer = await self._send(request)
        # A rejected request was not processed, so it can be repeated with the credentials that are valid now.
        if answer.status == 401 and await self._renew():
            answer = await self._send(request)
        return answer

    async def _renew(self) -> bool:
        """Use the credentials that are valid now, after a rejection; return whether they may differ.

        The API server checks the client certificate of a connection on each request, so that connections with a former
        one cannot be used any longer. Other transports may have loaded the new one before.
        """
        is_new = await self._configuration.refresh(rejected=True)
        self._configuration.tls.reload()
        if self._tls_version == self._configuration.tls.version:
            return is_new
        self._tls_version = self._configuration.tls.version
        former, self._session = self._session, open_session(self._configuration, connections=self._connections)
        await former.close()
        return True

    async def _send(self, request: Request) -> Response:
        method, body = request.method, request.body
        url = self._url(request)
        headers = {"Content-Type": request.content_type, "Accept": request.accept, **tracing.sent(url)}
        headers |= await authorization(self._configuration)
        started = time.perf_counter()
        try:
            sent = None if body is None else encode(body)
            with _closed_pool_as_error():
                async with (
                    self._session.request(method, url, data=sent, headers=headers, timeout=_TIMEOUT) as answer,
                    contextlib.AsyncExitStack() as turn,
                ):
                    text, share = await self._read(answer, request, turn)
                    found = _decode(text)
                    if answer.status == 200 and text.startswith(b"{") and found.keys() == {"message"}:
                        # too many levels, or bytes that are no text
                        raise TooLarge(f"the response cannot be parsed ({request}). {_FILLED}")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            metrics.REST_REQUESTS.labels(code="<error>", method=method, host=self._address).inc()
            why = str(error) or type(error).__name__
            raise Unavailable(f"no answer from the API server: {why} ({request})") from None
        finally:
            metrics.REST_LATENCY.labels(verb=method, host=self._address).observe(time.perf_counter() - started)
        metrics.REST_REQUESTS.labels(code=str(answer.status), method=method, host=self._address).inc()
        return Response(answer.status, found, _seconds(answer.headers.get("Retry-After")), share)

    async def _read(
        self, answer: aiohttp.ClientResponse, request: Request, turn: contextlib.AsyncExitStack
    ) -> tuple[bytes, float]:
        """Return a body, and its share of what may be parsed at once. The rest of a longer one is not read.

        Args:
            turn: context in which a large body, of which few are read at the same time, is parsed.
        """
        parts, size = list[bytes](), 0
        async for part in answer.content.iter_any():
            if size <= SMALL_BYTES < size + len(part):
                await turn.enter_async_context(self._large)
            parts.append(part)
            size += len(part)
            if size > MAX_PARSED_BYTES:
                answer.close()
                break
        text = b"".join(parts)
        if (share := parsed_share(text)) > 1:
            most = f"{MAX_PARSED_VALUES} values or {MAX_PARSED_BYTES} bytes"
            raise TooLarge(f"the response has more than {most} ({request}). {_FILLED}")
        return text, share

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch, or a read, and yield its lines (`shared.kubernetes.streams.Streams`)."""
        headers = {"Accept": accept, **await authorization(self._configuration)}
        try:
            with _closed_pool_as_error():
                async with self._session.get(self._url(request), headers=headers, timeout=_STREAM_TIMEOUT) as answer:
                    metrics.REST_REQUESTS.labels(code=str(answer.status), method="GET", host=self._address).inc()
                    if answer.status == 200:
                        yield _lines(answer.content, is_watch="watch" in request.query)
                        return
                    body = _decode(await answer.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the watch broke: {str(error) or type(error).__name__} ({request})") from None
        if answer.status == 401:
            await self._renew()  # the next watch uses them: callers repeat a refused one
        raise error_of(Response(answer.status, body, _seconds(answer.headers.get("Retry-After"))), request)

    def _url(self, request: Request) -> str:
        return self._host + request.path + ("?" + urlencode(request.query) if request.query else "")

    async def close(self) -> None:
        await self._session.close()


@dataclass(frozen=True, slots=True)
class Transports:
    """Transports of a process by purpose. Each has connections of its own, so that none waits for those of another.

    Attributes:
        work: reconciles, lists, events and certificates.
        lease: the Leases of the leader. A connection that no longer works delays a renewal, and the next one uses
            another connection.
        reviews: authentication and authorization of requests to /metrics, which any pod can cause.
        watches: watches, each of which occupies a connection.
    """

    work: Transport
    lease: Transport
    reviews: Transport
    watches: Streams

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, configuration: Configuration, reconciles: int = 0) -> AsyncIterator[Self]:
        """Open the transports of a process.

        Args:
            reconciles: maximum number of concurrent reconciles: a slow one must not take the connection of another.
        """
        async with contextlib.AsyncExitStack() as stack:
            sizes = (reconciles + MAX_OTHER_CONNECTIONS, MAX_LEASE_CONNECTIONS, MAX_REVIEW_CONNECTIONS, UNLIMITED)
            transports = [HttpTransport(configuration, connections) for connections in sizes]
            for transport in transports:
                stack.push_async_callback(transport.close)
            yield cls(*transports)


def open_session(configuration: Configuration, *, connections: int = 0) -> aiohttp.ClientSession:
    """Open a pool of connections to the API server.

    Args:
        connections: maximum number of connections; 0 for no limit.
    """
    limit_tls_buffers()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=configuration.tls),
        headers={"Accept": "application/json", "User-Agent": AGENT},
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=configuration.proxy or _proxy(configuration.host),
    )


def _proxy(url: str) -> str | None:
    """Return the proxy for a URL from the environment (HTTPS_PROXY, NO_PROXY)."""
    address = urlsplit(url)
    return None if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)


@contextlib.contextmanager
def _closed_pool_as_error() -> Iterator[None]:
    """Raise an error where aiohttp cancels what waits for a connection of a pool that is closed (`_renew`)."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # the task itself is cancelled
            raise
        raise aiohttp.ClientConnectionError("the connections were closed, because the credentials changed") from None


async def _lines(content: aiohttp.StreamReader, *, is_watch: bool = True) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length; of one that is too long to be parsed, the part that names the object.

    Raises:
        aiohttp.ClientPayloadError: a watch ends within a line.
    """
    parts, size = list[bytes](), 0
    async for chunk in content.iter_any():
        for number, part in enumerate(chunk.split(b"\n")):
            if number:
                yield b"".join(parts)
                parts, size = [], 0
            if part and size <= MAX_LINE_BYTES:
                parts.append(part)
                size += len(part)
    if parts and is_watch:
        raise aiohttp.ClientPayloadError("the stream ends within an event")
    if parts:
        yield b"".join(parts)


def _decode(text: bytes) -> Any:
    try:
        return orjson.loads(text) if text else None
    except ValueError:
        return {"message": text[:200].decode(errors="replace")}


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdigit() else None
