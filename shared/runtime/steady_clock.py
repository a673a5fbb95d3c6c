"""The time by which plans compare recorded times: it advances as the monotonic clock does. Pure.

Plans wait until something is some seconds old, and record times in the status for that. A wall clock that is set back
by an hour would suspend all of this for an hour, and one that is set forward would end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj

SLEW = 0.1
"""Share of the elapsed time by which the clock gains or loses, until it shows the wall clock's time again."""

MAX_DEVIATION = timedelta(hours=2)
"""Largest difference from the wall clock. A larger step is followed at once: certificates depend on the date."""

_RECORDED = frozenset({"lastTransitionTime", "since"})
"""Fields of a status with the time at which an operator observed something."""


def elapsed() -> float:
    """Return monotonic time in seconds, with the time for which the machine was suspended where the kernel has that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Wall clock time without steps.

    Args:
        wall: wall clock.
        monotonic: monotonic time in seconds.
    """

    def __init__(
        self, wall: Callable[[], datetime] = lambda: datetime.now(UTC), monotonic: Callable[[], float] = elapsed
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._read_at, self._time = monotonic(), wall()

    def __call__(self) -> datetime:
        now = self._monotonic()
        elapsed, self._read_at = timedelta(seconds=now - self._read_at), now
        self._time += elapsed
        behind = self._wall() - self._time
        if abs(behind) > MAX_DEVIATION:
            self._time += behind
        else:
            self._time += max(-SLEW * elapsed, min(behind, SLEW * elapsed))
        return self._time


class ResourceClock:
    """The time of one resource: never before a time that is recorded in its status.

    A former process may have recorded it before the wall clock was set back. As `SteadyClock`, this clock then
    continues from there, and loses a tenth of the elapsed time until it shows the present time again.

    Args:
        resource: the resource as this process first observes it.
        clock: present time.
    """

    def __init__(self, resource: Obj, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._began = now = clock()
        ahead = (at - now for at in _recorded(accessors.status_of(resource)))
        self._ahead = max((each for each in ahead if each <= MAX_DEVIATION), default=timedelta())

    def __call__(self) -> datetime:
        now = self._clock()
        return now + max(self._ahead - SLEW * (now - self._began), timedelta())


def _recorded(value: Any, name: str = "") -> Iterator[datetime]:
    """Yield the times that an operator recorded in a part of a status."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _recorded(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _recorded(each)
    elif name in _RECORDED and isinstance(value, str):
        try:
            yield datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            return
