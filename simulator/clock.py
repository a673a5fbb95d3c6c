"""The time of a simulated world."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass
class Clock:
    """The time of a world. It changes only through what happens in the world, and through the operator's waits.

    Attributes:
        error: difference of the wall clock that the operator reads.
    """

    now: datetime
    error: timedelta = timedelta()

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        return self.now

    def wall(self) -> datetime:
        return self.now + self.error

    def monotonic(self) -> float:
        return self.now.timestamp()
