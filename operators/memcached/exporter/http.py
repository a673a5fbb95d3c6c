"""Minimal HTTP/1.1 server for GET and HEAD on plain asyncio, with one request per connection.

Only the exporter uses it: the exporter runs in every pod, and aiohttp would double its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

MAX_CLIENTS = 32
"""Maximum number of concurrent clients; further connections are closed."""

REQUEST_TIMEOUT_SECONDS = 5.0
"""Time limit for a client to send its request, and again to receive the response."""

SHUTDOWN_GRACE_SECONDS = 3.0
"""Time for requests in progress to complete at shutdown."""

MAX_REQUEST_BYTES = 16384


class Page(NamedTuple):
    """Body and content type of a response."""

    text: str
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""Handlers by path."""


@asynccontextmanager
async def serving(host: str | None, port: int, pages: Pages) -> AsyncIterator[tuple[str, int]]:
    """Serve until the context exits; requests in progress still complete.

    Args:
        host: address to listen on; None for all.
        port: port to listen on; 0 for any free port.
        pages: handlers by path.

    Yields:
        Address and port of the server.

    Raises:
        OSError: the address or port is not available.
    """
    active: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(active) >= MAX_CLIENTS:
            writer.transport.abort()
            return
        task = asyncio.create_task(_serve_client(reader, writer, pages))
        active.add(task)
        task.add_done_callback(active.discard)

    server = await asyncio.start_server(accept, host, port, limit=MAX_REQUEST_BYTES)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        if active:
            _, unfinished = await asyncio.wait(active, timeout=SHUTDOWN_GRACE_SECONDS)
            for task in unfinished:
                task.cancel()


async def _serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages) -> None:
    with suppress(
        OSError, asyncio.IncompleteReadError
    ):  # the client disconnected or is too slow; TimeoutError is an OSError
        try:
            writer.write(await _response_to(reader, pages))
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()  # no effect if the connection is closed already


async def _response_to(reader: asyncio.StreamReader, pages: Pages) -> bytes:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    method, target, version = [*head.partition(b"\r\n")[0].decode("latin-1").split(" "), "", ""][:3]
    if not version.startswith("HTTP/1."):
        return _response(HTTPStatus.BAD_REQUEST)
    if method not in {"GET", "HEAD"}:
        return _response(HTTPStatus.METHOD_NOT_ALLOWED)
    page = pages.get(target.partition("?")[0])
    if page is None:
        return _response(HTTPStatus.NOT_FOUND)
    return _response(HTTPStatus.OK, await page(), with_body=method == "GET")


def _response(status: HTTPStatus, page: Page | None = None, *, with_body: bool = True) -> bytes:
    text, content_type = page or Page(f"{status.phrase}\n")
    body = text.encode()
    allowed = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{allowed}Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
