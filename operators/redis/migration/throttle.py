"""Adapts the number of slots and keys of a batch, so that clients do not wait long. Pure.

A server executes one command at a time, and all commands of a batch in a row: the larger the batch, the faster slots
move, and the longer clients wait. `latency_probe` measures that latency.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_WAIT_SECONDS = 0.01
"""Maximum latency of clients during a migration."""

CALM_WAIT_SECONDS = 0.002
"""Latency below which a batch may grow."""

MAX_KEYS_PER_COMMAND = 100
"""Maximum number of keys of a slot in one command."""

MAX_PARALLEL_SLOTS = 2
"""Maximum number of slots whose keys move in one batch; more are hardly faster, and increase the latency."""


@dataclass
class Throttle:
    """Size of a batch: halved if clients wait, doubled if they do not.

    Attributes:
        most_keys: maximum number of keys of a slot in one command.
        most_slots: maximum number of slots in a batch.
        keys, slots: present size. It starts with one slot, because the load is unknown.
    """

    most_keys: int = MAX_KEYS_PER_COMMAND
    most_slots: int = MAX_PARALLEL_SLOTS
    keys: int = 0
    slots: int = 1

    def __post_init__(self) -> None:
        self.keys = self.keys or self.most_keys

    def judge(self, waited: float | None) -> None:
        """Adapt the size after a batch.

        Args:
            waited: longest latency during the batch, in seconds; None if it was not measured.
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

    def use_single_slot(self) -> None:
        """Move one slot at a time, because a batch waits for each failure in it."""
        self.slots = 1
