"""Fake memcached with configured responses: correct, wrong, in pieces, late or missing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

NO_REPLY, CLOSE = "silence", "close"
CHUNK_DELAY_SECONDS = 0.002

Answer = bytes | list[bytes] | str
"""Response to a command: complete, in chunks, or one of NO_REPLY and CLOSE."""

PLAIN: Mapping[str, Answer] = {"version": b"VERSION 1.6.38\r\n"}
"""Responses of a server without authentication; a test overrides them."""


@dataclass
class Fake:
    """Fake server.

    Attributes:
        answers: responses by command; other commands get ERROR, as from memcached.
        port: TCP port.
        received: lines received.
        connections: number of connections accepted.
        writers: open connections.
    """

    answers: dict[str, Answer]
    port: int = 0
    received: list[str] = field(default_factory=list)
    connections: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def close_connections(self) -> None:
        """Close all connections, like a server that restarts."""
        for writer in self.writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                line = (await reader.readuntil(b"\r\n")).decode().strip()
                self.received.append(line)
                answer = self.answers.get(line, b"ERROR\r\n")
                if answer == CLOSE:
                    break
                for chunk in [] if isinstance(answer, str) else answer if isinstance(answer, list) else [answer]:
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(CHUNK_DELAY_SECONDS if isinstance(answer, list) else 0)
        writer.close()


@asynccontextmanager
async def fake(
    answers: Mapping[str, Answer] | None = None, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Fake]:
    """Run a fake server, by default on a free port."""
    server = Fake({**PLAIN, **(answers or {})})
    listener = await asyncio.start_server(server.serve, "127.0.0.1", port, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        server.close_connections()
        await asyncio.sleep(0)
