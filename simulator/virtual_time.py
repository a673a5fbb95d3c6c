"""An event loop whose time passes only while every task waits, so that a simulation does not depend on the machine.

`looptime` offers the same as a plugin of pytest. Its version 0.9 rounds the time, and never reaches a timer that is a
fraction of a microsecond away; the pauses of leader election come that close.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _Selector(selectors.SelectSelector):
    """Moves the time forward instead of waiting, if no file is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # no timer: only another thread or a file can continue
            return super().select(timeout)
        if not timeout and len(self.get_map()) == 1:  # something is due, and only the loop's own pipe could be ready
            return []
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, which starts at 0 seconds."""

    def __init__(self) -> None:
        self._selector_with_time = _Selector()
        super().__init__(self._selector_with_time)
        self._clock_resolution = 1e-6  # of timers: one that is nearer than this is due

    def time(self) -> float:
        return self._selector_with_time.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function at once: in a thread it would take real time, in which the simulated one passes by hours."""
        ended = self.create_future()
        try:
            ended.set_result(func(*args))
        except Exception as error:
            ended.set_exception(error)
        return ended
