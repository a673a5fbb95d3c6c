"""Adapts the number of keys of a batch to the time that it takes, so that clients do not wait long. Pure.

A server executes one command at a time, and the commands of a batch in a row: the larger the batch, the faster slots
move, and the longer clients of the source wait.
"""

from __future__ import annotations

from dataclasses import dataclass

BATCH_SECONDS = 0.003
"""Time that a batch may take longer than the fastest one, which measures round trips."""

MAX_KEYS_PER_COMMAND = 100
"""Maximum number of keys of a slot in one command."""

MAX_KEYS = 200
"""Maximum number of keys of a batch."""

MAX_SLOTS = 16
"""Maximum number of slots of a batch: each costs a round trip from the source to the target."""


SLOW_BATCHES = 3
"""Number of slow batches in a row after which batches shrink: a single one may be caused by something else."""


@dataclass
class Throttle:
    """Size of a batch. It starts with one key, because the size of the keys is unknown.

    Attributes:
        keys, slots: maximum number of keys and of slots of the next batch.
        fastest: time of the fastest batch so far, in seconds.
        slow: number of slow batches in a row.
    """

    keys: int = 1
    slots: int = 1
    fastest: float = float("inf")
    slow: int = 0

    def judge(self, seconds: float, keys: int, slots: int) -> None:
        """Adapt the size after a batch: halve it if several were slow, double it if this one was fast and full.

        Args:
            seconds: time that the batch took.
            keys, slots: size of the batch.
        """
        self.fastest = min(self.fastest, seconds)
        extra = seconds - self.fastest
        self.slow = self.slow + 1 if extra > BATCH_SECONDS else 0
        if self.slow >= SLOW_BATCHES:
            self.slow = 0
            self.keys, self.slots = max(1, self.keys // 2), max(1, self.slots // 2)
        elif extra < BATCH_SECONDS * 0.75:
            self.keys = min(MAX_KEYS, self.keys * 2) if keys >= self.keys else self.keys
            self.slots = min(MAX_SLOTS, self.slots * 2) if slots >= self.slots else self.slots

    def restart(self) -> None:
        """Begin again with a single key, because a batch waits for each failure in it."""
        self.keys = self.slots = 1
