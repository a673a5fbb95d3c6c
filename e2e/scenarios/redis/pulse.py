"""One writer for each shard, a thousand writes a second: the longest time without an acknowledged write."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from redis.crc import key_slot

from e2e.scenarios.redis.session import FAILURES, Access, Address, Client, ignore_unclosed

PAUSE = 0.001
"""Seconds between two writes of a shard."""

RETRY = 0.002
"""Seconds until a failed write is sent again."""

Find = Callable[[], Sequence[Address]]


@dataclass
class Pulse:
    """Writers of some keys, one each.

    Attributes:
        find: returns the addresses of the nodes.
        keys: one key for each shard.
        gaps: longest time without an acknowledged write, in seconds, by key, since `reset`.
        written: number of acknowledged writes, by key: the value that the key must have.
    """

    find: Find
    keys: Sequence[str]
    gaps: dict[str, float] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def running(cls, find: Find, keys: Sequence[str]) -> Iterator[Pulse]:
        """Write within the block."""
        pulse = cls(find, keys)
        thread = threading.Thread(target=lambda: asyncio.run(pulse._run()), daemon=True)
        thread.start()
        try:
            yield pulse
        finally:
            pulse._ending.set()
            thread.join(30)

    def reset(self) -> None:
        self.gaps = dict.fromkeys(self.keys, 0.0)

    @property
    def longest(self) -> float:
        """Longest time without an acknowledged write of any key, in seconds."""
        return max(self.gaps.values())

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(ignore_unclosed)
        await asyncio.gather(*map(self._write, self.keys))

    async def _write(self, key: str) -> None:
        session: Client | None = None
        last, number = time.monotonic(), 0
        while not self._ending.is_set():
            try:
                if session is None:
                    session = await Client.connected(self.find(), Access())
                await session.set(key, number + 1)
            except FAILURES:  # the same value is sent again: whether it was stored is unknown
                if session is not None:
                    await session.end()
                    session = None
                await asyncio.sleep(RETRY)
                continue
            number, now = number + 1, time.monotonic()
            self.gaps[key] = max(self.gaps.get(key, 0.0), now - last)
            self.written[key], last = number, now
            await asyncio.sleep(PAUSE)
        if session is not None:
            await session.end()


def key_in(slots: Sequence[int], prefix: str = "pulse") -> str:
    """Return a key of one of these slots."""
    owned = frozenset(slots)
    return next(key for number in range(1_000_000) if key_slot((key := f"{prefix}-{number}").encode()) in owned)
