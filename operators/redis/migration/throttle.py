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

from operators.redis.database import RedisError, Server

WAIT = 0.01
"""Seconds that a client may wait for an answer because slots move."""

KEYS = 100
"""Of a slot, in one command."""

SLOTS = 4
"""Whose keys move in one go; more are hardly any faster."""

_BEAT = 0.01


@dataclass
class Throttle:
    """Slots and keys that are moved in one go: half as many where clients wait, twice as many where they do not.

    Attributes:
        most_keys: of a slot, in one command.
        most_slots: in one go.
        keys, slots: how many now.
    """

    most_keys: int = KEYS
    most_slots: int = SLOTS
    keys: int = 0
    slots: int = 0

    def __post_init__(self) -> None:
        self.keys = self.keys or self.most_keys
        self.slots = self.slots or self.most_slots

    def judge(self, waited: float) -> None:
        """What a go came to.

        Args:
            waited: the longest that somebody waited meanwhile, in seconds.
        """
        if waited <= WAIT:
            if self.keys < self.most_keys:
                self.keys = min(self.most_keys, self.keys * 2)
            else:
                self.slots = min(self.most_slots, self.slots * 2)
        elif self.slots > 1:
            self.slots = max(1, self.slots // 2)
        else:
            self.keys = max(1, self.keys // 2)

    def alone(self) -> None:
        """One slot at a time, for what is in one go waits for all that goes wrong in it."""
        self.slots = 1


class Pulse:
    """How long a node lets others wait, by asking it all the time on a connection of its own."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._asked: float | None = None

    def taken(self) -> float:
        """The longest wait since this was asked last, in seconds; also of a question that is not answered yet."""
        waiting = time.monotonic() - self._asked if self._asked is not None else 0.0
        longest, self._longest = max(self._longest, waiting), 0.0
        return longest

    @classmethod
    @asynccontextmanager
    async def of(cls, server: Server) -> AsyncIterator[Pulse]:
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
            self._longest = max(self._longest, time.monotonic() - self._asked)
            self._asked = None
