"""Large keys: moving one can exceed the node timeout and the limits of servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from operators.redis.client.errors import Refused, reads_replies, sure
from operators.redis.client.responses import mapping
from operators.redis.client.server import Command, Server
from operators.redis.migration.participants import End

BIG_KEY_BYTES = 64 * 2**20
"""Size of a key that is moved alone. A node with less data has no such key, and its keys need no inspection."""

BYTES_PER_SECOND = 8 * 2**20
"""Assumed minimum speed at which a key is serialized, sent and loaded, in bytes per second."""

NODE_TIMEOUT = "cluster-node-timeout"
SIZE_LIMITS = ("proto-max-bulk-len", "client-query-buffer-limit")


async def sizes(source: End, keys: Sequence[bytes]) -> dict[bytes, int]:
    """Return the large keys with their sizes in bytes, as estimated by the server."""
    found = await source.server.pipe([("MEMORY", "USAGE", key) for key in keys])
    return {key: size for key, size in zip(keys, found, strict=True) if isinstance(size, int) and size > BIG_KEY_BYTES}


@asynccontextmanager
async def extended_timeouts(ends: Iterable[End], target: End, size: int) -> AsyncIterator[float]:
    """Raise the limits of servers while a key of this size is moved.

    During the move both ends are blocked: so every primary gets a longer node timeout before it marks another as
    failed. The former values are restored when the servers have answered. After an interruption, the source may be
    blocked for as long as before: once both ends answer, `steps.live_config` finds that the settings differ.

    Yields:
        Time in seconds that the ends may be blocked.
    """
    seconds = 10 + size / BYTES_PER_SECOND
    before: list[tuple[End, Mapping[str, int]]] = []
    is_answered = False
    try:
        for end in ends:
            desired = {NODE_TIMEOUT: int(seconds * 2000)} | (
                dict.fromkeys(SIZE_LIMITS, size * 2) if end is target else {}
            )
            former = await _settings(end, desired)
            before.append((end, former))
            await _set(end.server, {name: value for name, value in desired.items() if former.get(name, value) < value})
        yield seconds
        is_answered = True
    except Refused:
        is_answered = True
        raise
    finally:
        if is_answered:
            await asyncio.gather(*(_restore(end, former) for end, former in before))


@reads_replies
async def _settings(end: End, names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        answer = await end.server.execute("CONFIG", "GET", name)
        found |= {name: int(value) for name, value in mapping(answer).items()}
    return found


async def _restore(end: End, former: Mapping[str, int]) -> None:
    async with end.reconnected() as server:  # the other connection may have failed
        await _set(server, former)


async def _set(server: Server, desired: Mapping[str, int]) -> None:
    commands: list[Command] = [("CONFIG", "SET", name, value) for name, value in desired.items()]
    for answer in await server.pipe(commands):
        sure(answer)
