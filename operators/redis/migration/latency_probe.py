"""How long a node makes clients wait, measured by sending it PING on a connection of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from operators.redis.client.errors import RedisError
from operators.redis.client.server import Server

_PROBE_INTERVAL_SECONDS = 0.01


class LatencyProbe:
    """How long a node lets others wait, by asking it all the time on a connection of its own."""

    def __init__(self) -> None:
        self._waits: list[float] = []
        self._asked: float | None = None

    def taken(self) -> float | None:
        """The longest wait since this was asked last, in seconds; None where nobody asked.

        A question that is not answered yet counts, too.
        """
        waits = [*self._waits, *([time.monotonic() - self._asked] if self._asked is not None else ())]
        self._waits.clear()
        return max(waits, default=None)

    @classmethod
    @asynccontextmanager
    async def of(cls, server: Server) -> AsyncIterator[LatencyProbe]:
        """A node's, until the context is left."""
        pulse = cls()
        beats = asyncio.create_task(pulse._beat(server))
        try:
            yield pulse
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)

    async def _beat(self, server: Server) -> None:
        while True:
            await asyncio.sleep(_PROBE_INTERVAL_SECONDS)
            self._asked = time.monotonic()
            with suppress(RedisError):  # who moves the slots is told as well
                await server.execute("PING")
            self._waits.append(time.monotonic() - self._asked)
            self._asked = None
