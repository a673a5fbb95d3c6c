"""Adapts the number of keys of a batch to the time that it takes, so that clients do not wait long. Pure.

A server executes one command at a time, and the commands of a batch in a row: the larger the batch, the faster slots
move, and the longer clients of the source wait. How long a batch takes also depends on the network and on how busy the
machines are, which smaller batches would not change. So a batch is compared with what one key takes at that time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

BATCH_SECONDS = 0.003
"""Time that a batch may take longer than a single key."""

MAX_KEYS_PER_COMMAND = 100
"""Maximum number of keys of a slot in one command."""

MAX_KEYS = 200
"""Maximum number of keys of a batch."""

MAX_SLOTS = 16
"""Maximum number of slots of a batch: each costs a round trip from the source to the target."""

MEASURE_EVERY = 16
"""Number of larger batches after which a single key moves, to measure again what it takes."""

MEASUREMENTS = 8
"""Number of single keys whose median time is compared: the fastest alone may be an exception on a busy machine."""

SLOW_BATCHES = 3
"""Number of slow batches in a row after which batches shrink: a single one may be caused by something else."""


@dataclass
class Throttle:
    """Size of a batch. It starts with one key, because the size of the keys is unknown.

    Attributes:
        keys, slots: maximum number of keys and of slots of a batch.
        singles: times of the last batches of one key, in seconds.
        larger: number of batches since then.
        slow: number of slow batches in a row.
    """

    keys: int = 1
    slots: int = 1
    singles: deque[float] = field(default_factory=lambda: deque(maxlen=MEASUREMENTS))
    larger: int = 0
    slow: int = 0

    def next_size(self) -> tuple[int, int]:
        """Return the maximum number of keys and of slots of the next batch."""
        return (1, 1) if self.larger >= MEASURE_EVERY else (self.keys, self.slots)

    def judge(self, seconds: float, keys: int, slots: int) -> None:
        """Adapt the size after a batch: halve it if several were slow, double it if this one was fast and full.

        Args:
            seconds: time that the batch took.
            keys, slots: size of the batch.
        """
        if keys == 1:
            self.singles.append(seconds)
            self.larger = 0
        else:
            self.larger += 1
        extra = seconds - median_low(self.singles or [seconds])
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
