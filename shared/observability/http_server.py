"""HTTP server of an operator: aiohttp, with limits that keep a client from exhausting it.

Anything that can reach the pod can connect: the API server, the kubelet and Prometheus, and every other pod as well. So
each server limits its connections, requests and bodies, and no client, which is an IP address, gets more than half of
any limit. All servers share the event loop with the workers and the Lease; the limits also bound what a turn of the
loop takes.

aiohttp's own server has one timeout for headers and idle connections, and no limit on connections. Therefore
connections are accepted here and passed to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from shared.observability import metrics
from shared.observability.endpoints import Handler

log = logging.getLogger(__name__)

server_log = logging.getLogger(f"{__name__}.aiohttp")
server_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Logger of aiohttp's server, without requests that are no HTTP: any client could fill the log with them."""

LARGE_BODY_BYTES = 64 * 1024
"""Size above which a request body is large: up to it, aiohttp buffers a body before its handler reads it."""

MAX_HEADERS = 40
"""Maximum number of headers of a request; each is at most 8190 bytes."""

SHUTDOWN_SECONDS = 1.0
"""Seconds allowed at exit for requests in progress, and for clients to confirm that a TLS connection ends."""

BACKLOG = 128
"""Number of connections that the kernel holds until they are accepted."""

_refused_connections = metrics.HTTP_REFUSED.labels(what="connection")
_refused_requests = metrics.HTTP_REFUSED.labels(what="request")

ACCEPT_RETRY_SECONDS = 0.1
"""Seconds until connections are accepted again after a failure, such as too many open files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server. One client gets at most half of connections, requests and large bodies.

    Attributes:
        connections: open connections; further ones are closed at once.
        requests: requests in progress; further ones get 429, or 503 if no single client is the cause.
        large_bodies: requests in progress with a body above `LARGE_BODY_BYTES`; refused like requests.
        body_bytes: size of a request body; a larger one gets 413.
        header_seconds: time for the TLS handshake, and for the headers of the first request.
        idle_seconds: time without a request. The default is above the 90 s after which Go's clients, such as the API
            server, close an idle connection: otherwise a webhook call could meet a connection that is just closed.
        request_seconds: time to read a body, handle the request and send the response.
    """

    connections: int = 64
    requests: int = 16
    large_bodies: int = 4
    body_bytes: int = LARGE_BODY_BYTES
    header_seconds: float = 10.0
    idle_seconds: float = 120.0
    request_seconds: float = 30.0


class _Quota:
    """Counts what clients use of a limit."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._used: Counter[str] = Counter()

    @contextlib.contextmanager
    def use(self, client: str) -> Iterator[None]:
        """Use one unit while the context is open.

        Raises:
            HTTPTooManyRequests: the client uses half of the limit.
            HTTPServiceUnavailable: all clients together use the limit.
        """
        headers = {"Retry-After": "1"}
        if self._used[client] >= self._total / 2:
            _refused_requests.inc()
            raise web.HTTPTooManyRequests(text="too many requests from this address\n", headers=headers)
        if self._used.total() >= self._total:
            _refused_requests.inc()
            raise web.HTTPServiceUnavailable(text="too many requests\n", headers=headers)
        self._used[client] += 1
        try:
            yield
        finally:
            self._used[client] -= 1
            if not self._used[client]:
                del self._used[client]


class _Server:
    """Accepts connections, and serves requests within limits."""

    def __init__(self, routes: Iterable[web.RouteDef], tls: ssl.SSLContext | None, limits: Limits) -> None:
        self._tls = tls
        self._limits = limits
        self._handshakes: Counter[str] = Counter()
        self._silent: set[asyncio.Protocol] = set()  # connections that have not sent a request yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests, self._large_bodies = _Quota(limits.requests), _Quota(limits.large_bodies)
        application = web.Application(middlewares=[self._limited], client_max_size=limits.body_bytes)
        application.add_routes(routes)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_SECONDS,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=SHUTDOWN_SECONDS,
            max_headers=MAX_HEADERS,
            logger=server_log,
        )

    async def start(self, stack: AsyncExitStack, listeners: Iterable[socket.socket]) -> None:
        await self._runner.setup()
        stack.push_async_callback(self._runner.cleanup)
        stack.push_async_callback(self._stop)
        for listener in listeners:
            stack.enter_context(listener)
            self._start(self._accept(listener))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)

    # Connections.

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("cannot accept a connection, retrying: %s", error)
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            if self._is_full(address[0]):
                _refused_connections.inc()
                connection.close()
            else:
                self._start(self._begin(connection, address[0]))
                self._handshakes[address[0]] += 1

    def _is_full(self, client: str) -> bool:
        """Whether all clients, or this one, have as many connections as they may."""
        assert self._runner.server is not None
        peers = [handler.peername for handler in self._runner.server.connections]
        served = sum(peer is not None and peer[0] == client for peer in peers)
        return (
            len(peers) + self._handshakes.total() >= self._limits.connections
            or served + self._handshakes[client] >= self._limits.connections / 2
        )

    async def _begin(self, connection: socket.socket, client: str) -> None:
        """Pass a connection to aiohttp, and close it unless a request arrives in time."""
        assert self._runner.server is not None
        loop, timeout = asyncio.get_running_loop(), self._limits.header_seconds
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a client that reads nothing would keep a closed connection open
            milliseconds = int(self._limits.request_seconds * 1000)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        deadline = loop.time() + timeout
        handler = self._runner.server()
        self._silent.add(handler)
        times = {"ssl_handshake_timeout": timeout, "ssl_shutdown_timeout": SHUTDOWN_SECONDS} if self._tls else {}
        try:
            try:
                transport, _ = await loop.connect_accepted_socket(lambda: handler, connection, ssl=self._tls, **times)
            finally:
                self._handshakes -= Counter([client])
            await asyncio.sleep(deadline - loop.time())
            if handler in self._silent:
                transport.abort()
        except OSError as error:  # the client left, or its handshake failed or took too long
            log.debug("no connection from %s: %s", client, error)
        finally:
            self._silent.discard(handler)

    # Requests.

    @web.middleware
    async def _limited(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request within the limits, up to the last byte of its response."""
        self._silent.discard(request.protocol)
        client = request.remote or ""
        try:
            with self._requests.use(client), self._body(request, client):
                async with asyncio.timeout(self._limits.request_seconds):
                    response = await handler(request)
                    with contextlib.suppress(ConnectionError):  # the client left
                        await response.prepare(request)
                        await response.write_eof()
                    return response
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=HTTPStatus.REQUEST_TIMEOUT)

    def _body(self, request: web.Request, client: str) -> contextlib.AbstractContextManager[None]:
        """Return a context for reading the body of a request. One of unknown size may be large."""
        size = request.content_length if request.body_exists else 0
        if size is not None and size > self._limits.body_bytes:
            raise web.HTTPRequestEntityTooLarge(max_size=self._limits.body_bytes, actual_size=size)
        is_large = size is None or size > LARGE_BODY_BYTES
        return self._large_bodies.use(client) if is_large else contextlib.nullcontext()


async def serve(
    stack: AsyncExitStack,
    address: str,
    routes: Iterable[web.RouteDef],
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> None:
    """Start serving, until the stack is closed.

    Args:
        address: host:port, :port for all addresses, or "0" to disable.
        tls: serving certificate; a certificate loaded later applies to new connections. None disables TLS.
        limits: limits of the server; None for the default.

    Raises:
        ValueError: the address has another form.
        OSError: the address cannot be bound.
    """
    if address == "0":
        return
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{address!r} is not an address: use host:port, :port, or 0 to disable")
    try:
        listeners = await _listen(host.strip("[]"), int(port))
    except OSError as error:
        raise OSError(
            f"cannot listen on {address}: {error.strerror or error}. Use another address, or 0 to disable."
        ) from None
    await _Server(routes, tls, limits or Limits()).start(stack, listeners)


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; on those of this machine if it is empty."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as opened:
        listeners = []
        for family, *_, address in dict.fromkeys(found):
            try:
                listener = opened.enter_context(socket.socket(family))
            except OSError:  # the kernel has no IPv6
                continue
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
        opened.pop_all()
    return listeners
