"""Limits of the HTTP server: slow, half-open and many clients on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from e2e.cluster.machine.network import free_ports
from shared.observability import http_server
from shared.observability.http_server import LARGE_BODY_BYTES, Limits
from shared.pki import ca, certs

QUICK = Limits(connections=8, requests=8, header_seconds=0.3, idle_seconds=0.6, request_seconds=0.6)
"""Limits that a test reaches quickly. One address gets half of each: four connections, four requests."""

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

    async def get(self) -> int:
        with contextlib.suppress(ConnectionError):
            await self.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        return await self.status()

    async def seconds_until_closed(self, within: float = 3) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(within):
                while await self.reader.read(1 << 16):
                    pass
        return loop.time() - began


class Served:
    """A running server whose handler waits for `go`, and reads bodies."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.port = port
        self.go = asyncio.Event()
        self.go.set()
        self.bodies = list[int]()
        self.large = 0
        self._tls = tls
        self._open = list[asyncio.StreamWriter]()

    async def answer(self, request: web.Request) -> web.Response:
        await self.go.wait()
        if request.method == "POST":
            self.bodies.append(len(await request.read()))
        return web.Response(body=b"x" * self.large)

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
    (port,) = free_ports(1)
    server, client = _tls() if secure else (None, None)
    served = Served(port, client)
    async with AsyncExitStack() as stack:
        routes = [web.get("/", served.answer), web.post("/", served.answer)]
        await http_server.serve(stack, f"127.0.0.1:{port}", routes, tls=server, limits=limits)
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
async def test_client_gets_half_of_the_connections(secure: bool) -> None:
    async with serving(PATIENT, secure=secure) as served:
        opened = [await served.connect() for _ in range(4)]
        with contextlib.suppress(ConnectionError):
            assert await (await served.connect()).get() == 0, "the fifth connection is closed"
        assert await (await served.connect(OTHER_CLIENT)).get() == 200
        assert [await connection.get() for connection in opened] == [200] * 4, "open connections are not affected"


def _refused(what: str) -> float:
    return REGISTRY.get_sample_value("platform_http_refused_total", {"what": what}) or 0.0


async def test_total_of_connections_is_limited() -> None:
    before = _refused("connection")
    async with serving(PATIENT) as served:
        for client in ("127.0.0.1", OTHER_CLIENT):
            for _ in range(4):
                await served.connect(client)
        assert await (await served.connect("127.0.0.3")).get() == 0
    assert _refused("connection") == before + 1


async def test_handshakes_in_progress_count_as_connections() -> None:
    async with serving(replace(PATIENT, header_seconds=2.0), secure=True) as served:
        for _ in range(4):
            await served.connect(handshake=False)
        with contextlib.suppress(ConnectionError):
            await served.connect()
            pytest.fail("the fifth connection is closed")
        assert await (await served.connect(OTHER_CLIENT)).get() == 200
        await asyncio.sleep(2.5)
        assert await (await served.connect()).get() == 200, "handshakes that timed out are not counted"


async def test_client_with_too_many_requests_gets_429_and_all_clients_503() -> None:
    before = _refused("request")
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
    assert _refused("request") == before + 2


async def test_body_above_the_limit_gets_413() -> None:
    async with serving(replace(PATIENT, body_bytes=1000)) as served:
        connection = await served.connect()
        await connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + "x" * 1001)
        assert await connection.status() == 413
        chunked = await served.connect()
        await chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + "x" * 1001)
        assert await chunked.status() == 413


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


async def test_too_many_headers_are_refused() -> None:
    async with serving() as served:
        connection = await served.connect()
        await connection.send("GET / HTTP/1.1\r\nHost: a\r\n" + "".join(f"X-{n}: a\r\n" for n in range(100)) + "\r\n")
        assert await connection.status() == 400


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


async def test_internal_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: web.Request) -> web.Response:
        raise ValueError("simulated bug")

    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        await http_server.serve(stack, f"127.0.0.1:{port}", [web.get("/", fail)])
        served = Served(port, None)
        assert await (await served.connect()).get() == 500
        served.close()
    assert "simulated bug" in caplog.text
