"""How much is moved at once, so that clients are answered meanwhile. Pure, but for the pulse.

A node does one thing at a time. What is sent to it in one go it does in one go, and others wait: so the more slots that
are, the faster they move, and the longer everybody waits. How long is measured as others would feel it: by asking.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from operators.redis.client.server import RedisError, Server

WAIT = 0.01
"""Seconds that a client may wait for an answer because slots move."""

CALM = 0.002
"""Seconds within which all are answered where there is room for more in one go."""

KEYS = 100
"""Of a slot, in one command."""

SLOTS = 2
"""Whose keys move in one go; more are hardly any faster, and clients wait longer."""

_BEAT = 0.01


@dataclass
class Throttle:
    """Slots and keys that are moved in one go: half as many where clients wait, twice as many where they do not.

    Attributes:
        most_keys: of a slot, in one command.
        most_slots: in one go.
        keys, slots: how many now. At first it is one slot: how busy the processors are is not known yet.
    """

    most_keys: int = KEYS
    most_slots: int = SLOTS
    keys: int = 0
    slots: int = 1

    def __post_init__(self) -> None:
        self.keys = self.keys or self.most_keys

    def judge(self, waited: float | None) -> None:
        """What a go came to.

        Args:
            waited: the longest that somebody waited meanwhile, in seconds; None where nobody asked.
        """
        if waited is None:
            return
        if waited > WAIT and self.slots == 1:
            self.keys = max(1, self.keys // 2)
        elif waited > CALM and self.slots > 1:
            self.slots //= 2
        elif self.keys < self.most_keys:
            self.keys = min(self.most_keys, self.keys * 2)
        elif waited <= CALM:
            self.slots = min(self.most_slots, self.slots * 2)

    def alone(self) -> None:
        """One slot at a time, for what is in one go waits for all that goes wrong in it."""
        self.slots = 1


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
            await asyncio.sleep(_BEAT)
            self._asked = time.monotonic()
            with suppress(RedisError):  # who moves the slots is told as well
                await server.ask("PING")
            self._waits.append(time.monotonic() - self._asked)
            self._asked = None
