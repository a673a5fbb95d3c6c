"""Limits of the HTTP server: slow, half-open and many clients on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.observability import http_server
from shared.observability.http_messages import Request, Response
from shared.observability.http_server import (
    LARGE_BODY_BYTES,
    MAX_CLIENT_HANDSHAKES,
    MAX_HANDSHAKES,
    Limits,
    Route,
    _Connection,
)
from shared.observability.tls_buffers import TLS_BUFFER_BYTES
from shared.pki import ca, certs
from tests.harness.cost import bounded

QUICK = Limits(connections=8, requests=8, header_seconds=0.3, idle_seconds=0.6, request_seconds=0.6)
"""Limits that a test reaches quickly. One address gets half of the requests."""

PATIENT = replace(QUICK, header_seconds=10.0, idle_seconds=10.0, request_seconds=10.0)

OTHER_CLIENT = "127.0.0.2"
"""A second address of the loopback interface."""


class Connection:
    """A raw connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, text: str) -> None:
        self.writer.write(text.encode())
        await self.writer.drain()

    async def status(self) -> int:
        """Return the status of the next response; 0 if the connection is closed instead."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 3)).decode()
            length = next(int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line)
            await self.reader.readexactly(length)
            return int(head.split()[1])
        return 0

    async def get(self, *headers: str) -> int:
        with contextlib.suppress(ConnectionError):
            await self.send("\r\n".join(("GET / HTTP/1.1", "Host: a", *headers, "\r\n")))
        return await self.status()

    async def seconds_until_closed(self, within: float = 3) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(within):
                while await self.reader.read(1 << 16):
                    pass
        return loop.time() - began


class Served:
    """A running server whose handler waits for `go`, and reads bodies."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.port = 0
        self.refused = list[str]()
        self.go = asyncio.Event()
        self.go.set()
        self.bodies = list[int]()
        self.large = 0
        self._tls = tls
        self._open = list[asyncio.StreamWriter]()

    async def answer(self, request: Request) -> Response:
        await self.go.wait()
        if request.method == "POST":
            self.bodies.append(len(request.body))
        return Response(body=b"x" * self.large)

    async def fail(self, _: Request) -> Response:
        raise ValueError("simulated bug")

    async def connect(self, client: str = "127.0.0.1", *, handshake: bool = True) -> Connection:
        tls = self._tls if handshake else None
        name = "localhost" if tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, server_hostname=name, local_addr=(client, 0)
        )
        self._open.append(writer)
        return Connection(reader, writer)

    def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()


@asynccontextmanager
async def serving(limits: Limits = QUICK, *, secure: bool = False) -> AsyncIterator[Served]:
    server, client = _tls() if secure else (None, None)
    served = Served(client)
    async with AsyncExitStack() as stack:
        routes = [Route("GET", "/", served.answer), Route("POST", "/", served.answer)]
        routes += [Route("POST", "/post", served.answer), Route("GET", "/fails", served.fail)]
        served.port = await http_server.serve(
            stack, "127.0.0.1:0", routes, tls=server, limits=limits, refused=served.refused.append
        )
        yield served
        served.close()


def _tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    begins = datetime.now(UTC)
    ends = begins + timedelta(days=1)
    authority = ca.authority("ca", begins=begins, ends=ends)
    pair = ca.issue(authority, "localhost", begins=begins, ends=ends, hosts=["localhost"])
    return certs.server_context(pair), certs.client_context(None, authority.certificate)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "])
async def test_client_that_never_completes_its_headers_is_disconnected(sent: str, secure: bool) -> None:
    async with serving(secure=secure) as served:
        connection = await served.connect()
        await connection.send(sent)
        assert await connection.seconds_until_closed() < 2.5


async def test_client_that_sends_its_headers_byte_by_byte_is_disconnected() -> None:
    async with serving() as served:
        connection = await served.connect()

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                await connection.send("GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
                while True:
                    await connection.send("x")
                    await asyncio.sleep(0.05)

        slow = asyncio.create_task(trickle())
        assert await connection.seconds_until_closed() < 2.5
        slow.cancel()


async def test_client_that_never_begins_its_handshake_is_disconnected() -> None:
    async with serving(secure=True) as served:
        connection = await served.connect(handshake=False)
        assert await connection.seconds_until_closed() < 2.5


def _client_hello() -> bytes:
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


HELLO = _client_hello()

HANDSHAKES = {
    "nothing": (b"", False),
    "half a ClientHello": (HELLO[: len(HELLO) // 2], False),
    "half a ClientHello, then closed": (HELLO[: len(HELLO) // 2], True),
    "no TLS": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
    "a ClientHello": (HELLO, False),
    "a ClientHello, then closed": (HELLO, True),
}
"""Bytes that clients send instead of a handshake, and whether they then close the connection."""

CHURN = 600
"""Number of handshakes of each kind."""


@contextlib.contextmanager
def _collections_as_in_an_operator() -> Iterator[None]:
    """Collect garbage as rarely as an operator does."""
    former = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*former)


@pytest.fixture
def _asyncio_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what other modules of this process have set."""
    monkeypatch.setattr(SSLProtocol, "max_size", 256 * 1024)


async def _begin_handshakes(served: Served, number: int, sent: bytes, is_closed: bool) -> list[socket.socket]:
    """Begin handshakes from one address; return the connections that stay open."""
    loop, opened = asyncio.get_running_loop(), []
    for _ in range(number):
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", served.port))
        with contextlib.suppress(OSError):
            client.send(sent)
        await asyncio.sleep(0.0005)  # the server reads it
        if is_closed:
            client.close()
        else:
            opened.append(client)
    return opened


@pytest.mark.usefixtures("_asyncio_as_it_is")
@pytest.mark.parametrize("sent", HANDSHAKES)
async def test_handshakes_that_never_end_need_little_memory(
    sent: str, record_property: Callable[[str, object], None]
) -> None:
    """256 of them needed 77 MiB, and more until the next garbage collection: of one address, at any time."""
    limits = replace(PATIENT, connections=256)
    async with serving(limits, secure=True) as served:
        assert await (await served.connect(OTHER_CLIENT)).get() == 200
        opened: list[socket.socket] = []
        longest = 0.0
        with _collections_as_in_an_operator():
            async with bounded() as cost:
                for _ in range(10):
                    opened += await _begin_handshakes(served, CHURN // 10, *HANDSHAKES[sent])
                    began = time.monotonic()
                    assert await (await served.connect(OTHER_CLIENT)).get("Connection: close") == 200
                    assert await (await served.connect()).get("Connection: close") == 200, "of the same address"
                    longest = max(longest, time.monotonic() - began)
        assert longest < 1.0, "the timeout of a probe"
        for client in opened:
            client.close()
    record_property("summary", f"{CHURN} handshakes, {sent}: {cost}; others waited {longest * 1000:.0f} ms")


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("sent", HANDSHAKES)
async def test_memory_of_an_ended_connection_is_released_without_a_garbage_collection(sent: str, secure: bool) -> None:
    """An exception that is kept together with its traceback refers to the connection, which refers to the exception."""

    def connections() -> int:
        return sum(isinstance(each, SSLProtocol | _Connection) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        async with serving(replace(PATIENT, header_seconds=0.5, connections=20), secure=secure) as served:
            before = connections()
            opened = await _begin_handshakes(served, 50, *HANDSHAKES[sent])  # some are replaced
            await asyncio.sleep(0.7 if secure else 1.6)  # a refused request lingers
            assert connections() == before
            for client in opened:
                client.close()
    finally:
        gc.enable()


async def test_handshakes_of_many_clients_do_not_keep_out_another_one() -> None:
    async with serving(replace(PATIENT, connections=256), secure=True) as served:
        opened = []
        for number in range(2 * MAX_HANDSHAKES):
            opened.append(await served.connect(f"127.0.0.{10 + number % 4}", handshake=False))
        assert await (await served.connect(OTHER_CLIENT)).get("Connection: close") == 200
        ended = [await connection.seconds_until_closed(0.01) < 0.01 for connection in opened]
        assert ended.count(False) <= MAX_HANDSHAKES


async def test_clients_that_complete_their_handshakes_may_begin_as_many_as_requests() -> None:
    """An API server opens a connection for each of its concurrent requests."""
    async with serving(replace(PATIENT, connections=256, requests=256), secure=True) as served:
        opened = await asyncio.gather(*(served.connect() for _ in range(MAX_CLIENT_HANDSHAKES)))
        assert [await connection.get() for connection in opened] == [200] * MAX_CLIENT_HANDSHAKES
        assert served.refused == []


async def test_new_connections_let_the_event_loop_run_in_between() -> None:
    async with serving(replace(PATIENT, connections=256)) as served:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        clients = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(50)]
        counting = asyncio.create_task(count())
        while len(served.bodies) < 1:
            writer = await served.connect()
            await writer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
            assert await writer.status() == 200
        counting.cancel()
        assert turns >= 50
        for client in clients:
            client.close()


async def test_idle_connection_is_closed_and_one_in_use_is_kept() -> None:
    async with serving() as served:
        connection = await served.connect()
        for _ in range(4):
            assert await connection.get() == 200
            await asyncio.sleep(0.25)
        assert await connection.seconds_until_closed() < 2.5


async def test_client_that_never_completes_its_body_is_disconnected() -> None:
    async with serving() as served:
        connection = await served.connect()
        await connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
        assert await connection.seconds_until_closed() < 2.5
        assert await (await served.connect()).get() == 200


async def test_client_that_never_reads_its_response_is_disconnected() -> None:
    async with serving() as served:
        served.large = 32 * 1024 * 1024
        connection = await served.connect()
        await connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(1.2)
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            received = 0
            while block := await connection.reader.read(1 << 20):
                received += len(block)
            assert received < served.large


@pytest.mark.parametrize("secure", [False, True])
async def test_new_client_replaces_the_longest_idle_connection_of_the_client_with_most(secure: bool) -> None:
    async with serving(PATIENT, secure=secure) as served:
        others = [await served.connect(OTHER_CLIENT) for _ in range(3)]
        opened = [await served.connect() for _ in range(5)]
        assert await opened[0].get() == 200, "it is now the one that waits for the shortest time"
        assert await (await served.connect("127.0.0.3")).get() == 200
        assert await opened[1].seconds_until_closed() < 1
        assert [await connection.get() for connection in (opened[0], *opened[2:], *others)] == [200] * 7
        assert served.refused == ["connection"]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\r\nX-Slow: ", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"])
async def test_new_client_is_served_while_others_hold_all_connections(sent: str, secure: bool) -> None:
    """The probes' server had 64 connections, of which one address got half: two addresses kept the kubelet out."""
    async with serving(PATIENT, secure=secure) as served:
        for number in range(20):
            connection = await served.connect(("127.0.0.1", OTHER_CLIENT)[number % 2], handshake=number % 3 > 0)
            await connection.send(sent)
        for _ in range(3):
            assert await (await served.connect("127.0.0.3")).get("Connection: close") == 200


async def test_connection_with_a_request_in_progress_is_never_replaced() -> None:
    async with serving(replace(PATIENT, connections=4, requests=8)) as served:
        served.go.clear()
        first = [asyncio.create_task((await served.connect()).get()) for _ in range(4)]
        await asyncio.sleep(0.1)
        assert await (await served.connect(OTHER_CLIENT)).get() == 0
        served.go.set()
        assert await asyncio.gather(*first) == [200] * 4
        assert served.refused == ["connection"]


async def test_connection_that_is_replaced_before_it_began_is_closed() -> None:
    async with serving(replace(PATIENT, connections=2), secure=True) as served:
        opened = [asyncio.create_task(served.connect(handshake=False)) for _ in range(50)]
        connections = [await connecting for connecting in opened]
        ended = [await connection.seconds_until_closed(0.5) < 0.5 for connection in connections]
        assert ended.count(True) == 48
        assert await (await served.connect(OTHER_CLIENT)).get() == 200


async def test_client_with_too_many_requests_gets_429_and_all_clients_503() -> None:
    async with serving(replace(PATIENT, connections=100, requests=4)) as served:
        served.go.clear()
        first = [asyncio.create_task((await served.connect()).get()) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert await (await served.connect()).get() == 429
        second = [asyncio.create_task((await served.connect(OTHER_CLIENT)).get()) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert await (await served.connect("127.0.0.3")).get() == 503
        served.go.set()
        assert await asyncio.gather(*first, *second) == [200] * 4
        assert await (await served.connect()).get() == 200
        assert served.refused == ["request"] * 2


async def test_body_above_the_limit_gets_413() -> None:
    async with serving(replace(PATIENT, body_bytes=1000)) as served:
        connection = await served.connect()
        await connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + "x" * 1001)
        assert await connection.status() == 413


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        ("POST / HTTP/1.1\r\nContent-Length: -1", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        ("POST / HTTP/1.1\r\nContent-Length: " + "9" * 10_000, 400),
        ("POST / HTTP/1.1\r\nContent-Length: " + "9" * 20, 413),
        ("GET / HTTP/1.1\r\nbad name: a", 400),
        ("GET /", 400),
        ("\x16\x03\x01", 400),
        ("DELETE / HTTP/1.1", 405),
        ("GET /other HTTP/1.1", 404),
        ("GET / HTTP/1.1\r\nX: " + "x" * 20_000, 431),
        ("GET / HTTP/1.1" + "\r\nX: x" * 100, 431),
        ("GET /?a=b HTTP/1.0", 200),
        ("HEAD / HTTP/1.1\r\nConnection: close", 200),
    ],
)
async def test_request_gets_the_expected_status(head: str, status: int) -> None:
    async with serving() as served:
        connection = await served.connect()
        line, *headers = head.split("\r\n")
        await connection.send("\r\n".join([line, "Host: a", *headers, "\r\n"]))
        assert await connection.status() == status


HEAD_REFUSALS = {
    "asterisk": ("HEAD * HTTP/1.1", 400),
    "absolute target": ("HEAD http://a/ HTTP/1.1", 400),
    "many headers": ("HEAD / HTTP/1.1" + "\r\nX: x" * 100, 431),
    "chunked body": ("HEAD / HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
    "large body": ("HEAD / HTTP/1.1\r\nContent-Length: " + "9" * 20, 413),
    "large body that waits": ("HEAD / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " + "9" * 20, 413),
    "many large bodies": (f"HEAD / HTTP/1.1\r\nContent-Length: {LARGE_BODY_BYTES + 1}", 429),
    "many requests": ("HEAD / HTTP/1.1", 429),
    "another path": ("HEAD /other HTTP/1.1", 404),
    "another method": ("HEAD /post HTTP/1.1", 405),
    "internal error": ("HEAD /fails HTTP/1.1", 500),
}
"""Refusals of a HEAD whose head is parsed, with their status."""


@pytest.mark.parametrize("why", HEAD_REFUSALS)
async def test_refusal_of_head_has_no_body(why: str, caplog: pytest.LogCaptureFixture) -> None:
    head, status = HEAD_REFUSALS[why]
    limits = replace(PATIENT, requests=1, large_bodies=1, body_bytes=2 * LARGE_BODY_BYTES, idle_seconds=0)
    async with serving(limits) as served:
        if why == "many requests":
            served.go.clear()
            await (await served.connect()).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        if why == "many large bodies":
            await (await served.connect()).send(head.replace("HEAD", "POST") + "\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.05)
        connection = await served.connect()
        line, *headers = head.split("\r\n")
        await connection.send("\r\n".join([line, "Host: a", *headers, "\r\n"]))
        async with asyncio.timeout(3):
            answer = (await connection.reader.read()).decode()
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert answer.partition("\r\n\r\n")[2] == ""
        served.go.set()
    gc.collect()  # asyncio logs the error of a task when the task is freed
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("sent", ["HEAD / HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\nX: " + "x" * 20_000])
async def test_head_that_is_not_parsed_is_refused_as_any_request(sent: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        connection = await served.connect()
        await connection.send(sent + "\r\n\r\n")
        assert await connection.status() in {400, 431}
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n folded\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\n\nGET / HTTP/1.0\r\n\r\n",
    ],
)
async def test_head_that_proxies_could_read_otherwise_is_refused(head: str) -> None:
    async with serving() as served:
        connection = await served.connect()
        await connection.send(head)
        assert await connection.status() == 400


async def test_body_is_awaited_by_a_client_that_expects_it() -> None:
    async with serving() as served:
        connection = await served.connect()
        await connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await connection.send("{}")
        assert await connection.status() == 200


@pytest.mark.parametrize("secure", [False, True])
async def test_response_is_not_delayed_until_the_client_acknowledges_the_last_one(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connect, delays = loop.connect_accepted_socket, list[int]()

    async def connected(factory: Any, accepted: socket.socket) -> Any:
        transport = await connect(factory, accepted)
        delays.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return transport

    monkeypatch.setattr(loop, "connect_accepted_socket", connected)
    async with serving(secure=secure) as served:
        assert await (await served.connect()).get() == 200
    assert delays == [1]


async def test_connection_serves_one_request_without_idle_time() -> None:
    async with serving(replace(PATIENT, idle_seconds=0)) as served:
        connection = await served.connect()
        assert await connection.get() == 200
        assert await connection.seconds_until_closed() < 1


async def test_requests_of_one_connection_let_the_event_loop_run_in_between() -> None:
    requests = 3000
    async with serving(PATIENT) as served, bounded():
        connection = await served.connect()
        sending = asyncio.create_task(connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n" * requests))
        for _ in range(requests):
            assert await connection.status() == 200
        await sending


async def test_large_bodies_are_few_at_once_and_do_not_stop_small_ones() -> None:
    limits = replace(PATIENT, connections=100, requests=100, large_bodies=2, body_bytes=1 << 20)
    head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE_BODY_BYTES + 1}\r\n\r\n"
    async with serving(limits) as served:
        slow = await served.connect()
        await slow.send(head)
        await asyncio.sleep(0.1)
        other = await served.connect()
        await other.send(head)
        assert await other.status() == 429
        small = await served.connect()
        await small.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
        assert await small.status() == 200
        await slow.send("x" * (LARGE_BODY_BYTES + 1))
        assert await slow.status() == 200
        assert served.bodies == [2, LARGE_BODY_BYTES + 1]


async def test_tls_connection_does_not_read_far_ahead() -> None:
    """The default of asyncio is 256 KiB for each connection with a request in progress."""
    large = 1 << 20
    async with serving(replace(PATIENT, body_bytes=large), secure=True) as served:
        connection = await served.connect()
        served.go.clear()
        await connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        post = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n"
        sending = asyncio.create_task(connection.send(post + "x" * large))
        await asyncio.sleep(0.3)
        (server,) = (each for each in gc.get_objects() if isinstance(each, SSLProtocol) and each._server_side)
        assert vars(server)["_incoming"].pending <= 3 * TLS_BUFFER_BYTES
        served.go.set()
        assert [await connection.status(), await connection.status()] == [200, 200]
        assert served.bodies == [large]
        await sending


async def test_server_stops_while_clients_are_connected() -> None:
    async with serving(secure=True) as served:
        await served.connect()
        await served.connect(handshake=False)
        assert await (await served.connect()).get() == 200
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2


async def test_invalid_address_is_rejected() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(ValueError, match="'localhost' is not an address: use host:port"):
            await http_server.serve(stack, "localhost", [])
        await http_server.serve(stack, "0", [])


async def test_address_in_use_is_reported() -> None:
    async with serving() as served, AsyncExitStack() as stack:
        with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use\. Use another"):
            await http_server.serve(stack, f"127.0.0.1:{served.port}", [])


async def test_faulty_clients_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Any client can be slow, leave early, or send nonsense, as often as it likes."""
    post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx"
    caplog.set_level(logging.INFO)
    async with serving() as served:
        for sent in (post, "GET / HTTP/1.1\r\nX-Slow: ", "\x16\x03\x01nonsense\r\n\r\n", "GET / HTTP/9\r\n\r\n"):
            connection = await served.connect()
            await connection.send(sent)
            await connection.seconds_until_closed()
        served.go.clear()
        connection = await served.connect()
        await connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.1)
        connection.writer.transport.abort()
        served.go.set()
        await asyncio.sleep(0.1)
    assert caplog.messages == []


@pytest.mark.parametrize("error", [ValueError, OSError])
async def test_error_while_a_connection_is_accepted_does_not_close_the_port(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No probe uses the ports of metrics and webhooks, so nothing would restart the process."""
    admit, failures = http_server._Server._admit, [error("simulated bug")]

    def failing(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        admit(*arguments)

    monkeypatch.setattr(http_server._Server, "_admit", failing)
    async with serving() as served:
        assert await (await served.connect()).get() == 0
        assert await (await served.connect()).get() == 200
    assert "simulated bug" in caplog.text


async def test_internal_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Request) -> Response:
        raise ValueError("simulated bug")

    async with AsyncExitStack() as stack:
        served = Served(None)
        served.port = await http_server.serve(stack, "127.0.0.1:0", [Route("GET", "/", fail)])
        assert await (await served.connect()).get() == 500
        served.close()
    assert "simulated bug" in caplog.text
