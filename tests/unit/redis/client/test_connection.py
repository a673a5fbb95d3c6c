"""What a server writes, in whatever pieces, as it is understood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operators.redis.client.connection import connect
from operators.redis.client.errors import Denied, Loading, Refused, Unreachable
from operators.redis.client.server import Access, Command, Endpoint, Server


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[tuple[Server, list[bytes]]]:
    """A server that answers the first question with these pieces, one after the other, and what it was asked."""
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1000))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1") as listening:
        port = listening.sockets[0].getsockname()[1]
        server = connect(Endpoint("demo-0", "127.0.0.1", "demo-0.demo", port), Access())
        try:
            yield server, asked
        finally:
            await server.aclose()


async def ask(text: bytes, *commands: Command) -> list[Any]:
    async with answering(*(bytes([byte]) for byte in text)) as (server, _):
        return await server.pipe(commands)


async def test_answers_are_read_however_they_are_cut() -> None:
    text = b"+OK\r\n:-3\r\n$-1\r\n*3\r\n$2\r\na\n\r\n*0\r\n*-1\r\n"
    assert await ask(text, *[("PING",)] * 4) == ["OK", -3, None, ["a\n", [], None]]


async def test_keys_and_values_stay_bytes_and_all_else_is_text() -> None:
    text = b"*1\r\n$1\r\n\xff\r\n"
    listed, other = await ask(2 * text, ("CLUSTER", "GETKEYSINSLOT", 1, 10), ("CONFIG", "GET", "*"))
    assert (listed, other) == ([b"\xff"], ["\\xff"])


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [(b"MOVED 1 a:1", Refused, "MOVED"), (b"NOAUTH x", Denied, "NOAUTH"), (b"LOADING x", Loading, "LOADING")],
)
async def test_an_error_stays_as_the_server_wrote_it(line: bytes, kind: type[Refused], code: str) -> None:
    said, after = await ask(b"-" + line + b"\r\n+OK\r\n", ("GET", "key"), ("PING",))
    assert (type(said), said.code, after) == (kind, code, "OK")
    assert line.decode() in str(said)


@pytest.mark.parametrize("text", [b"HTTP/1.1 200 OK\r\n", b"$x\r\n", b":\r\n", b"*1.5\r\n", b"\r\n"])
async def test_what_is_no_answer_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(Unreachable, match="responds to PING with data that is not of Redis or Valkey"):
        await ask(text, ("PING",))


async def test_an_answer_that_ends_amid_is_none() -> None:
    with pytest.raises(Unreachable, match="closed the connection without a response to PING"):
        await ask(b"$5\r\nab", ("PING",))


async def test_commands_are_written_as_lists_of_bytes() -> None:
    async with answering(b"+OK\r\n+OK\r\n") as (server, asked):
        await server.pipe([("SET", b"\xff", 1), ("ECHO", "ä")])
    assert asked == [b"*3\r\n$3\r\nSET\r\n$1\r\n\xff\r\n$1\r\n1\r\n*2\r\n$4\r\nECHO\r\n$2\r\n\xc3\xa4\r\n"]
