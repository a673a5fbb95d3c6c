"""Restarts the tasks of a process: no error in one of them ends the process, or another task.

Every task handles the errors that it expects. What is left is a bug, or a cancellation of something that the task waits
for, such as a connection of a pool that was closed. Both end the task without a trace if nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.observability import metrics

log = logging.getLogger(__name__)

FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 30.0
"""First and longest delay until a task is started again, in seconds."""

CALM_SECONDS = 120.0
"""Seconds without an error after which a task is well again, and the first delay applies."""

Cancelled = asyncio.CancelledError
"""Raised in a task that is cancelled, and in one that waits for something that is (`end_if_cancelled`)."""

time_limit = asyncio.timeout
"""Returns a context that is cancelled after some seconds."""


class MustEnd(Exception):
    """The process cannot continue: the supervisor does not restart the task, but passes the error on."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last end of a task.

    Attributes:
        at: monotonic time of the end.
        delay: seconds until the task is started again.
        why: the error.
        count: number of ends in a row.
    """

    at: float
    delay: float
    why: str
    count: int


class Supervisor:
    """Starts tasks, and starts each again that ends, after a delay that doubles.

    Args:
        clock: monotonic time in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._failures: dict[str, _Failure] = {}

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run a task until it is cancelled.

        Args:
            name: name of the task; tasks that do the same may share it.
            run: starts the work, which never ends by itself. It must be possible to start it again after any error.

        Returns:
            The task; it ends only if it is cancelled, or with `MustEnd`.
        """
        return asyncio.create_task(self._keep(name, run), name=name)

    def note(self) -> str | None:
        """Return which tasks keep ending; None if there is none."""
        recent = {name: each for name, each in self._failures.items() if self._clock() - each.at < CALM_SECONDS}
        found = [f"{name} was restarted {each.count} times: {each.why}" for name, each in sorted(recent.items())]
        return "; ".join(found) or None

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        while True:
            error: BaseException | None = None
            why = "it ended without an error"
            try:
                await run()
            except MustEnd:
                raise
            except asyncio.CancelledError as found:
                why, error = "it was cancelled", found
            except Exception as found:
                why, error = f"{type(found).__name__}: {found}", found
            end_if_cancelled()  # also if a clean-up that failed replaced the cancellation
            self._failed(name, why, error)
            await self._sleep(self._failures[name].delay)

    def _failed(self, name: str, why: str, error: BaseException | None) -> None:
        now, last = self._clock(), self._failures.get(name)
        is_repeated = last is not None and now - last.at < CALM_SECONDS + last.delay
        delay = min(2 * last.delay, MAX_RESTART_SECONDS) if last and is_repeated else FIRST_RESTART_SECONDS
        self._failures[name] = _Failure(now, delay, why, last.count + 1 if last and is_repeated else 1)
        metrics.TASK_RESTARTS.labels(task=name).inc()
        log.error(
            "internal error (a bug in the operator): the task %s ended, and starts again in %.0f s: %s",
            name,
            delay,
            why,
            exc_info=error,
        )


def end_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled, and not only something that it waits for."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        raise asyncio.CancelledError
