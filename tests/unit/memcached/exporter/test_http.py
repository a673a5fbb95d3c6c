"""HTTP server of the exporter."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from operators.memcached.exporter import http
from operators.memcached.exporter.http import Page, serving


async def send(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    with suppress(ConnectionError):
        return await reader.read()
    writer.close()
    return b""


async def hello() -> Page:
    return Page("hello\n")


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET / HTTP/1.1", 200, b"hello\n"),
        (b"GET /?a=b HTTP/1.0", 200, b"hello\n"),
        (b"HEAD / HTTP/1.1", 200, b""),
        (b"GET /other HTTP/1.1", 404, b"Not Found\n"),
        (b"POST / HTTP/1.1", 405, b"Method Not Allowed\n"),
        (b"stats", 400, b"Bad Request\n"),
        (b"GET / HTTP/2.0", 400, b"Bad Request\n"),
        (b"GET / HTTP/1.1\r\nCookie: " + b"x" * 20_000, 431, b"Request Header Fields Too Large\n"),
    ],
)
async def test_http_requests_get_the_expected_response(request_line: bytes, status: int, body: bytes) -> None:
    async with serving("127.0.0.1", 0, {"/": hello}) as (_, port):
        answer = await send(port, request_line + b"\r\nHost: a\r\n\r\n")
        head, _, rest = answer.partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert rest == body
        assert b"Connection: close" in head


async def test_client_without_a_request_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_SECONDS", 0.1)
    async with serving("127.0.0.1", 0, {"/": hello}) as (_, port):
        assert await send(port, b"GET / HT") == b""


async def test_clients_over_the_limit_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CLIENTS", 3)
    async with serving("127.0.0.1", 0, {"/": hello}) as (_, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await send(port, b"GET / HTTP/1.1\r\n\r\n") == b""
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.05)
        assert (await send(port, b"GET / HTTP/1.1\r\n\r\n")).endswith(b"hello\n")


async def test_shutdown_completes_a_request_in_progress() -> None:
    request_received = asyncio.Event()

    async def slow() -> Page:
        request_received.set()
        await asyncio.sleep(0.2)
        return Page("late\n")

    async with serving("127.0.0.1", 0, {"/": slow}) as (_, port):
        answer = asyncio.create_task(send(port, b"GET / HTTP/1.1\r\n\r\n"))
        await request_received.wait()
    assert (await answer).endswith(b"late\n")
    with pytest.raises(ConnectionRefusedError):
        await send(port, b"GET / HTTP/1.1\r\n\r\n")
