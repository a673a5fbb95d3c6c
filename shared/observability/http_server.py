"""HTTP/1.1 server of the operators and of the exporter of memcached: h11 on plain asyncio.

Anything that can reach the pod can connect: the API server, the kubelet and Prometheus, and every other pod as well.
All servers share the event loop with the workers and the Lease. Therefore the cost of each client is bounded:

- A connection that waits for its client holds at most a head, a small body, and as much again in the kernel.
- When all connections are used, a new one replaces the one that has waited longest for its client, of the client, which
  is an IP address, with most connections. A client that holds connections open does not keep out another one.
- TLS handshakes in progress are limited, for each client and in total: each needs memory before its client has sent
  anything. The memory of one that ends is free at once, without the garbage collector.
- Requests in progress are limited; one client gets at most half of them. Large bodies count from their first byte.
- After each request and each new connection, the event loop continues with its other work, also if the next one has
  already arrived.

The messages are in `http_messages`. The exporter runs in every pod: this module imports nothing that uses much memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import h11

from shared.observability.http_messages import (
    MAX_HEAD_BYTES,
    Refused,
    Request,
    Response,
    head_of,
    read_head,
    send,
    write,
)
from shared.observability.tls_buffers import TLS_BUFFER_BYTES, limit_tls_buffers

log = logging.getLogger(__name__)

LARGE_BODY_BYTES = 64 * 1024
"""Size above which a request body is large."""

RECEIVE_BUFFER_BYTES = 32 * 1024
"""Size of a connection's receive buffer in the kernel, which doubles it; it bounds what one read returns."""

MAX_CLIENT_HANDSHAKES, MAX_HANDSHAKES = 64, 128
"""Maximum numbers of TLS handshakes in progress, of one client and of all: a further one replaces one of them. An API
server opens a connection for each concurrent request, and the webhooks serve 64 of one client. Handshakes of one client
so need at most 9 MiB, of OpenSSL and of the buffers of each."""

SHUTDOWN_SECONDS = 1.0
"""Seconds allowed at exit for requests in progress, and for clients to confirm that a TLS connection ends."""

LINGER_SECONDS = 1.0
"""Seconds for which the rest of a refused request is read: a client that still sends could miss the response."""

BACKLOG = 128
"""Number of connections that the kernel holds until they are accepted."""

ACCEPT_RETRY_SECONDS = 0.1
"""Seconds until connections are accepted again after a failure, such as too many open files."""

Handler = Callable[[Request], Awaitable[Response]]


class Route(NamedTuple):
    """Handler of a path. A route of GET is one of HEAD as well."""

    method: str
    path: str
    handler: Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server.

    Attributes:
        connections: open connections; a further one replaces one that waits for its client, or is closed at once.
        requests: requests in progress. One client gets at most half, and then 429; all clients together get 503.
        large_bodies: requests with a body above `LARGE_BODY_BYTES`, refused like requests.
        body_bytes: size of a request body; a larger one gets 413.
        header_seconds: time for the TLS handshake, and for the head of a request.
        idle_seconds: time without a request; 0 closes a connection after each response. The default is above the 90 s
            after which Go's clients, such as the API server, close an idle connection: otherwise a webhook call could
            meet a connection that is just closed.
        request_seconds: time to read a body, and again to handle the request and send the response.
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

    def __init__(self, total: int, refused: Callable[[str], None]) -> None:
        self._total = total
        self._refused = refused
        self._used: Counter[str] = Counter()

    @contextlib.contextmanager
    def use(self, client: str) -> Iterator[None]:
        """Use one unit while the context is open.

        Raises:
            Refused: the client uses half of the limit, or all clients together use the limit.
        """
        if self._used[client] >= self._total / 2:
            self._refused("request")
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests from this address; retry", Retry_After="1")
        if self._used.total() >= self._total:
            self._refused("request")
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests; retry", Retry_After="1")
        self._used[client] += 1
        try:
            yield
        finally:
            self._used -= Counter([client])


@dataclass(eq=False, slots=True)
class _Connection:
    """An open connection.

    Attributes:
        client: address of the client.
        accepted: socket of the connection.
        waits_since: time since which it waits for the client; None while a request is in progress.
        is_in_handshake: whether its TLS handshake has not ended yet.
        task: task that serves it.
        is_served: whether that task has begun.
    """

    client: str
    accepted: socket.socket
    waits_since: float | None
    is_in_handshake: bool
    task: asyncio.Task[None] | None = None
    is_served: bool = False


class _Protocol(asyncio.StreamReaderProtocol):
    """Streams of a connection.

    Attributes:
        transport: transport of the content; None until there is one, which is after the TLS handshake.
    """

    transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast("asyncio.WriteTransport", transport)


class _Server:
    """Accepts connections, and serves requests within limits."""

    def __init__(
        self, routes: Iterable[Route], tls: ssl.SSLContext | None, limits: Limits, refused: Callable[[str], None]
    ) -> None:
        self._handlers = {(route.method, route.path): route.handler for route in routes}
        self._tls = tls
        self._limits = limits
        self._refused = refused
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends = False
        self._requests, self._large_bodies = _Quota(limits.requests, refused), _Quota(limits.large_bodies, refused)

    def start(self, stack: AsyncExitStack, listeners: Iterable[socket.socket]) -> None:
        stack.push_async_callback(self._stop)
        accepting = [self._start(self._accept(stack.enter_context(listener))) for listener in listeners]
        stack.callback(lambda: [task.cancel() for task in accepting])

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name="http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stop(self) -> None:
        """Close what waits for a client, and the others when their requests have ended."""
        self._ends = True
        for connection in list(self._open):
            if connection.waits_since is not None:
                self._close(connection)
        for _ in range(2):
            if tasks := set(self._tasks):
                await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)
            for task in self._tasks:
                task.cancel()

    # Connections.

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            accepted: socket.socket | None = None
            try:
                accepted, address = await loop.sock_accept(listener)
                self._admit(accepted, address[0])
                await asyncio.sleep(0)  # sock_accept does not wait while the kernel holds connections
                continue
            except OSError as error:
                log.warning("cannot accept a connection, retrying: %s", error)
            except Exception:  # no supervisor would start this loop again
                log.exception("internal error (a bug) while accepting a connection; retrying")
            if accepted is not None:
                accepted.close()
            await asyncio.sleep(ACCEPT_RETRY_SECONDS)

    def _admit(self, accepted: socket.socket, client: str) -> None:
        """Serve a connection; close another one first if there are too many."""
        self._limit_handshakes(client)
        if len(self._open) >= self._limits.connections and not self._close_longest_idle(self._open):
            self._refused("connection")
            accepted.close()
            return
        now = asyncio.get_running_loop().time()
        connection = _Connection(client, accepted, now, is_in_handshake=self._tls is not None)
        self._open.add(connection)
        connection.task = self._start(self._serve(connection))

    def _limit_handshakes(self, client: str) -> None:
        """Close a handshake of a client that has too many, or else one of all, before a further one begins.

        The one closed has lasted longest: other clients at the same address, which complete a handshake in
        milliseconds, are not kept out.
        """
        handshakes = [connection for connection in self._open if connection.is_in_handshake]
        of_client = [connection for connection in handshakes if connection.client == client]
        if len(of_client) >= MAX_CLIENT_HANDSHAKES:
            self._close_longest_idle(of_client)
        elif len(handshakes) >= MAX_HANDSHAKES:
            self._close_longest_idle(handshakes)

    def _close_longest_idle(self, connections: Collection[_Connection]) -> bool:
        """Close the connection that has waited longest for its client, of the client with most of these connections."""
        counts = Counter(connection.client for connection in connections)
        waiting = [
            (counts[connection.client], -connection.waits_since, id(connection), connection)
            for connection in connections
            if connection.waits_since is not None
        ]
        if not waiting:
            return False
        self._refused("connection")
        self._close(max(waiting)[-1])
        return True

    def _close(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection.task is not None:
            connection.task.cancel()
            connection.task = None
        if not connection.is_served:  # and will not be
            connection.accepted.close()

    async def _serve(self, connection: _Connection) -> None:
        """Serve the requests of a connection, one after the other, until it is closed."""
        loop, limits, accepted = asyncio.get_running_loop(), self._limits, connection.accepted
        connection.is_served = True
        reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        protocol = _Protocol(reader)
        below: asyncio.BaseProtocol = protocol
        secured: asyncio.Future[None] | None = None
        transport: asyncio.WriteTransport | None = None
        try:
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # a client that reads nothing would keep a closed connection open
                with contextlib.suppress(OSError):  # the client left
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.request_seconds * 1000))
            began = loop.time()
            if self._tls is not None:
                # `connect_accepted_socket(ssl=…)` would keep the transport, so that a handshake could not be aborted.
                secured = loop.create_future()
                secured.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # or asyncio logs it
                below = SSLProtocol(
                    loop,
                    protocol,
                    self._tls,
                    secured,
                    server_side=True,
                    ssl_handshake_timeout=limits.header_seconds,  # type: ignore[arg-type]  # asyncio accepts fractions
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                )
            found, _ = await loop.connect_accepted_socket(lambda: below, accepted)
            transport = cast("asyncio.WriteTransport", found)
            if secured is not None:
                await secured
                connection.is_in_handshake = False
            if protocol.transport is None:
                raise ConnectionResetError("the connection was closed during the TLS handshake")
            if secured is not None:  # asyncio reads 256 KiB ahead
                cast("Any", protocol.transport).set_read_buffer_limits(TLS_BUFFER_BYTES)
            writer = asyncio.StreamWriter(protocol.transport, protocol, reader, loop)
            wait = limits.header_seconds - (loop.time() - began)
            while await self._serve_request(reader, writer, connection, wait) and not self._ends:
                wait = limits.idle_seconds
                await asyncio.sleep(0)
        except (OSError, EOFError) as error:  # the client left or is too slow, or its handshake failed
            log.debug("connection of %s: %s", connection.client, error)
            error.__traceback__ = None  # its frames and itself refer to each other, and to the memory of the connection
        except asyncio.CancelledError as error:
            error.__traceback__ = None
            raise
        finally:
            self._open.discard(connection)
            connection.task = None
            if transport is not None:
                transport.abort()

    # Requests.

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection, wait: float
    ) -> bool:
        """Serve the next request, if it begins within `wait` seconds.

        Returns:
            Whether the client may send another one.
        """
        limits, client = self._limits, connection.client
        wire = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        method = ""
        try:
            received = await read_head(reader, wire, wait, limits.header_seconds)
            method = received.method.decode("latin-1")
            head = head_of(received, wire)
            if head.length > limits.body_bytes:
                raise Refused(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the body has {head.length} bytes; this server reads at most {limits.body_bytes}",
                )
            is_large = head.length > LARGE_BODY_BYTES
            with self._large_bodies.use(client) if is_large else contextlib.nullcontext():
                if wire.they_are_waiting_for_100_continue:
                    send(
                        writer,
                        wire,
                        h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[], reason="Continue"),
                    )
                async with asyncio.timeout(limits.request_seconds):
                    body = await reader.readexactly(head.length)
                with self._requests.use(client):
                    connection.waits_since = None
                    async with asyncio.timeout(limits.request_seconds):
                        response = await self._handle(head.request, body)
                        keeps = head.keep_alive and limits.idle_seconds > 0 and not self._ends
                        await write(writer, wire, response, method, keeps=keeps)
                        if not keeps:
                            await _end(writer)
                    return keeps
        except Refused as refusal:
            connection.waits_since = asyncio.get_running_loop().time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await write(writer, wire, refusal.response, method, keeps=False)
                    while await reader.read(MAX_HEAD_BYTES):
                        pass
            return False
        finally:
            connection.waits_since = asyncio.get_running_loop().time()

    async def _handle(self, request: Request, body: bytes) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._handlers.get((method, request.path))
        if handler is None:
            allowed = [known for known, path in self._handlers if path == request.path]
            status = HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND
            return Response.text(f"{status.phrase}\n", status, {"Allow": ", ".join(allowed)} if allowed else {})
        try:
            return await handler(Request(request.method, request.path, request.query, request.headers, body))
        except TimeoutError:
            raise
        except Exception:
            log.exception("%s %s: internal error (a bug)", method, request.path)
            return Response.text("internal error; see the log\n", HTTPStatus.INTERNAL_SERVER_ERROR)


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection when everything has been sent."""
    writer.close()
    with contextlib.suppress(OSError):  # the client left
        await writer.wait_closed()


async def serve(
    stack: AsyncExitStack,
    address: str,
    routes: Iterable[Route],
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    refused: Callable[[str], None] = lambda _: None,
) -> int:
    """Start serving, until the stack is closed.

    Args:
        address: host:port, :port for all addresses, or "0" to disable.
        tls: serving certificate; a certificate loaded later applies to new connections. None disables TLS.
        limits: limits of the server; None for the default.
        refused: called with `connection` or `request` for each one that a limit refuses or ends.

    Returns:
        The port, which is another one if the address has port 0.

    Raises:
        ValueError: the address has another form.
        OSError: the address cannot be bound.
    """
    if address == "0":
        return 0
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{address!r} is not an address: use host:port, :port, or 0 to disable")
    limit_tls_buffers()
    try:
        listeners = await _listen(host.strip("[]"), int(port))
    except OSError as error:
        raise OSError(
            f"cannot listen on {address}: {error.strerror or error}. Use another address, or 0 to disable."
        ) from None
    _Server(routes, tls, limits or Limits(), refused).start(stack, listeners)
    return int(listeners[0].getsockname()[1])


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; on those of this machine if it is empty."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as opened:
        listeners = []
        for family, *_, address in dict.fromkeys(found):
            try:
                # Connections inherit the protocol: asyncio switches Nagle's delay off only where it is named.
                listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            except OSError:  # the kernel has no IPv6
                continue
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)  # connections inherit it
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
        opened.pop_all()
    return listeners
