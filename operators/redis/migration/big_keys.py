"""Keys that take so long that other nodes would take theirs for dead, and that are longer than servers take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from operators.redis.client.errors import Refused
from operators.redis.client.responses import mapping
from operators.redis.client.server import Command
from operators.redis.migration.participants import End

BIG_KEY_BYTES = 64 * 2**20
"""Bytes of a key that moves alone. A node that has less in all has none, and its keys need no looking at."""

BYTES_PER_SECOND = 8 * 2**20
"""Bytes a second, at least, at which a key is written down, sent and read."""

PATIENT = "cluster-node-timeout"
TAKING = ("proto-max-bulk-len", "client-query-buffer-limit")


async def sizes(source: End, keys: Sequence[bytes]) -> dict[bytes, int]:
    """The big ones among keys, with their bytes, as estimated by the server."""
    found = await source.server.pipe([("MEMORY", "USAGE", key) for key in keys])
    return {key: size for key, size in zip(keys, found, strict=True) if isinstance(size, int) and size > BIG_KEY_BYTES}


@asynccontextmanager
async def patience(ends: Iterable[End], target: End, size: int) -> AsyncIterator[float]:
    """Lets a key of so many bytes be moved within the context.

    While it moves, both ends do nothing else: every master waits for longer before it takes another for dead. What held
    before is put back afterwards; where we are stopped amid that, the operator finds that settings differ.

    Yields:
        Seconds that the ends may be busy.
    """
    seconds = 10 + size / BYTES_PER_SECOND
    before: list[tuple[End, Mapping[str, int]]] = []
    try:
        for end in ends:
            desired = {PATIENT: int(seconds * 2000)} | (dict.fromkeys(TAKING, size * 2) if end is target else {})
            held = await _settings(end, desired)
            before.append((end, held))
            await _set(end, {name: value for name, value in desired.items() if held.get(name, value) < value})
        yield seconds
    finally:
        await asyncio.gather(*(_set(end, held) for end, held in before))


async def _settings(end: End, names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        answer = await end.server.execute("CONFIG", "GET", name)
        found |= {name: int(value) for name, value in mapping(answer).items()}
    return found


async def _set(end: End, desired: Mapping[str, int]) -> None:
    commands: list[Command] = [("CONFIG", "SET", name, value) for name, value in desired.items()]
    for answer in await end.server.pipe(commands):
        if isinstance(answer, Refused):
            raise answer
