"""The pace of polls: reconciles that only inspect whether what a resource waits for is there yet.

No watch reports the state inside a database, so that a resource that waits for it is polled. A thousand resources that
wait at once, such as for nodes with space for their pods, would take more CPU time than there is. Polls therefore get a
share of it: the more resources are polled, and the more CPU time a reconcile takes, the longer is the interval. Events
of the pods still start a reconcile at once.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")

POLL_SHARE = 0.25
"""Share of the time of the event loop that polls may take together."""

MAX_POLL_SECONDS = 30.0
"""Longest interval between two polls of a resource, unless it requests a longer one."""

_REMEMBERED = 32
"""Number of reconciles over which the CPU time is averaged."""


class Pace:
    """The interval between two polls of a resource, for all queues of a process.

    Attributes:
        counts: each returns the number of resources that a queue polls.
    """

    def __init__(self) -> None:
        self.counts: list[Callable[[], int]] = []
        self._cost = 0.0  # seconds of CPU time of a reconcile

    def note(self, cpu_seconds: float) -> None:
        """Note the CPU time of a reconcile."""
        self._cost += (cpu_seconds - self._cost) / _REMEMBERED

    def seconds(self, requested: float) -> float:
        """Return the seconds until the next poll of a resource that requests one after this time."""
        polled = sum(count() for count in self.counts)
        return max(requested, min(polled * self._cost / POLL_SHARE, MAX_POLL_SECONDS))


@types.coroutine
def metered(work: Coroutine[Any, Any, Result], note: Callable[[float], None]) -> Generator[Any, Any, Result]:
    """Await a coroutine, and note the CPU time of its own task in seconds, without that of tasks that it starts."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    spent = 0.0
    try:
        while True:
            began = time.thread_time()
            try:
                awaited = step(value)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            finally:
                spent += time.thread_time() - began
            try:
                value, step = (yield awaited), work.send
            except BaseException as error:  # such as a cancellation, which `work` handles
                value, step = error, work.throw
    finally:
        note(spent)
