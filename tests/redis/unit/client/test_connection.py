"""Decoding of server responses, split at any byte, and how long a server may take for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from operators.redis.client.connection import EXCHANGE_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS, connect
from operators.redis.client.errors import Denied, Loading, Refused, Unreachable
from operators.redis.client.server import Access, Command, Endpoint, Server, few_long_answers
from tests.support.tls import Authority
from tests.support.virtual_time import in_virtual_time

OPEN = Access()


@asynccontextmanager
async def server_sending(
    *pieces: bytes, access: Access = OPEN, pause: float = 0.0
) -> AsyncIterator[tuple[Server, list[bytes]]]:
    """Run a server that answers the first request with these pieces; yield a connection and the received requests.

    Args:
        pause: seconds before each piece.
    """
    received: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1000))
        with suppress(ConnectionError):
            for piece in pieces:
                await asyncio.sleep(pause)
                writer.write(piece)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1") as listening:
        port = listening.sockets[0].getsockname()[1]
        server = connect(Endpoint("demo-0", "127.0.0.1", "demo-0.demo", port), access)
        try:
            yield server, received
        finally:
            await server.aclose()


async def exchange(text: bytes, *commands: Command) -> list[Any]:
    async with server_sending(*(bytes([byte]) for byte in text)) as (server, _):
        return await server.pipe(commands)


async def test_responses_are_decoded_byte_by_byte() -> None:
    text = b"+OK\r\n:-3\r\n$-1\r\n*3\r\n$2\r\na\n\r\n*0\r\n*-1\r\n"
    assert await exchange(text, *[("PING",)] * 4) == ["OK", -3, None, ["a\n", [], None]]


async def test_keys_and_values_are_bytes_and_other_responses_are_text() -> None:
    text = b"*1\r\n$1\r\n\xff\r\n"
    listed, other = await exchange(2 * text, ("CLUSTER", "GETKEYSINSLOT", 1, 10), ("CONFIG", "GET", "*"))
    assert (listed, other) == ([b"\xff"], ["\ufffd"])


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [(b"MOVED 1 a:1", Refused, "MOVED"), (b"NOAUTH x", Denied, "NOAUTH"), (b"LOADING x", Loading, "LOADING")],
)
async def test_error_keeps_the_text_of_the_server(line: bytes, kind: type[Refused], code: str) -> None:
    error, after = await exchange(b"-" + line + b"\r\n+OK\r\n", ("GET", "key"), ("PING",))
    assert (type(error), error.code, after) == (kind, code, "OK")
    assert line.decode() in str(error)


@pytest.mark.parametrize("text", [b"HTTP/1.1 200 OK\r\n", b"$x\r\n", b":\r\n", b"*1.5\r\n", b"\r\n"])
async def test_invalid_response_is_reported(text: bytes) -> None:
    with pytest.raises(Unreachable, match="responds to PING with data that is not of Redis or Valkey"):
        await exchange(text, ("PING",))


async def test_no_server_is_contacted_while_the_authority_is_unknown() -> None:
    async with server_sending(b"+OK\r\n", access=Access("", password="hunter2")) as (server, received):
        with pytest.raises(Unreachable, match=r"demo-0 \(127.* is not contacted: no Secret has a usable certificate"):
            await server.execute("PING")
    assert received == []


async def test_truncated_response_is_reported() -> None:
    with pytest.raises(Unreachable, match="closed the connection without a response to PING"):
        await exchange(b"$5\r\nab", ("PING",))


@pytest.mark.parametrize(
    ("trusted", "days", "host", "distrusts"),
    [
        ("foreign", 1, "demo-0.demo", True),
        ("authority", -1, "demo-0.demo", False),
        ("authority", 1, "other.demo", False),
    ],
    ids=("unknown authority", "ended", "another name"),
)
async def test_unknown_authority_differs_from_a_wrong_name_or_date(
    tmp_path: Path, trusted: str, days: int, host: str, *, distrusts: bool
) -> None:
    authorities = {name: Authority(tmp_path, name) for name in ("authority", "foreign")}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authorities["authority"].issue("server", "demo-0.demo", days=days))

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", ssl=context) as listening:
        endpoint = Endpoint("demo-0", "127.0.0.1", host, listening.sockets[0].getsockname()[1])
        server = connect(endpoint, Access(authorities[trusted].certificate.read_text()))
        with pytest.raises(Unreachable) as caught:
            await server.execute("PING")
    assert caught.value.distrusts == distrusts, caught.value


async def test_commands_are_encoded_as_arrays_of_bulk_strings() -> None:
    async with server_sending(b"+OK\r\n+OK\r\n") as (server, received):
        await server.pipe([("SET", b"\xff", 1), ("ECHO", "ä")])
    assert received == [b"*3\r\n$3\r\nSET\r\n$1\r\n\xff\r\n$1\r\n1\r\n*2\r\n$4\r\nECHO\r\n$2\r\n\xc3\xa4\r\n"]


@pytest.mark.parametrize(
    ("pieces", "commands"),
    [((b"*1000\r\n", *[b":1\r\n"] * 1000), 1), ((b"$1000\r\n", *[b"x"] * 1000), 1), ((b"+OK\r\n",) * 700, 700)],
    ids=["an array item by item", "a bulk string byte by byte", "many responses one by one"],
)
def test_server_cannot_prolong_an_exchange(pieces: tuple[bytes, ...], commands: int) -> None:
    @in_virtual_time
    async def exchange_slowly() -> float:
        clock = asyncio.get_running_loop().time
        async with server_sending(*pieces, pause=REQUEST_TIMEOUT_SECONDS - 0.1) as (server, _):
            with pytest.raises(Unreachable, match="did not respond to PING in time"):
                await server.pipe([("PING",)] * commands)
            return clock()

    assert exchange_slowly() <= EXCHANGE_TIMEOUT_SECONDS + REQUEST_TIMEOUT_SECONDS


@in_virtual_time
async def test_keys_that_move_slowly_have_the_time_that_migrate_allows_them() -> None:
    migrate: Command = ("MIGRATE", "10.0.0.2", 6379, b"", 0, 40_000)
    async with server_sending(b"+OK\r\n+OK\r\n", b"+OK\r\n", pause=44.0) as (server, _):
        assert await server.pipe([migrate] * 3) == ["OK"] * 3


@in_virtual_time
async def test_wait_for_other_servers_does_not_shorten_an_exchange() -> None:
    """Only some servers of a cluster send long answers at once (`few_long_answers`)."""
    answer = b"$10000\r\n", b"x" * 10_000 + b"\r\n"
    async with AsyncExitStack() as stack:
        servers = [(await stack.enter_async_context(server_sending(*answer, pause=4.0)))[0] for _ in range(40)]

        async def read(server: Server) -> str:
            found: str = await server.execute("INFO")
            await server.aclose()
            return found

        with few_long_answers():
            reading = [asyncio.create_task(read(server)) for server in servers]
        assert {len(found) for found in await asyncio.gather(*reading)} == {10_000}
