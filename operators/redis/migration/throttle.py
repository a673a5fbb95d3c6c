"""How many slots and keys move at once, so that clients do not wait long. Pure.

A server executes one command at a time, and everything that is sent to it at once, it executes at once: the larger the
batch, the faster slots move, and the longer clients wait. `latency_probe` measures that wait.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_WAIT_SECONDS = 0.01
"""Seconds that a client may wait for an answer because slots move."""

CALM_WAIT_SECONDS = 0.002
"""Seconds within which all are answered where there is room for more in one go."""

MAX_KEYS_PER_COMMAND = 100
"""Of a slot, in one command."""

MAX_PARALLEL_SLOTS = 2
"""Whose keys move in one go; more are hardly any faster, and clients wait longer."""


@dataclass
class Throttle:
    """Slots and keys that are moved in one go: half as many where clients wait, twice as many where they do not.

    Attributes:
        most_keys: of a slot, in one command.
        most_slots: in one go.
        keys, slots: how many now. At first it is one slot: how busy the processors are is not known yet.
    """

    most_keys: int = MAX_KEYS_PER_COMMAND
    most_slots: int = MAX_PARALLEL_SLOTS
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
        if waited > MAX_WAIT_SECONDS and self.slots == 1:
            self.keys = max(1, self.keys // 2)
        elif waited > CALM_WAIT_SECONDS and self.slots > 1:
            self.slots //= 2
        elif self.keys < self.most_keys:
            self.keys = min(self.most_keys, self.keys * 2)
        elif waited <= CALM_WAIT_SECONDS:
            self.slots = min(self.most_slots, self.slots * 2)

    def alone(self) -> None:
        """One slot at a time, for what is in one go waits for all that goes wrong in it."""
        self.slots = 1
