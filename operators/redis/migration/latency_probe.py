"""Measures how long a node makes clients wait, with PING on a separate connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from operators.redis.client.errors import RedisError
from operators.redis.client.server import Server

_PROBE_INTERVAL_SECONDS = 0.01


class LatencyProbe:
    """Latency of a node, measured continuously on a separate connection."""

    def __init__(self) -> None:
        self._waits: list[float] = []
        self._sent: float | None = None

    def taken(self) -> float | None:
        """Return the longest latency since the last call, in seconds; None if nothing was measured.

        A PING without a response yet counts, too.
        """
        waits = [*self._waits, *([time.monotonic() - self._sent] if self._sent is not None else ())]
        self._waits.clear()
        return max(waits, default=None)

    @classmethod
    @asynccontextmanager
    async def of(cls, server: Server) -> AsyncIterator[LatencyProbe]:
        """Measure a node until the context is left."""
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
            self._sent = time.monotonic()
            with suppress(RedisError):  # the migration reports the error itself
                await server.execute("PING")
            self._waits.append(time.monotonic() - self._sent)
            self._sent = None
