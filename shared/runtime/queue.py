"""A keyed work queue with the guarantees of client-go's.

A key is handled by one worker at a time; adding it any number of times while it waits is one piece of work; adding it
while it is handled makes one more piece of work afterwards. Failures back off per key, so that one broken resource
never slows another.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

from shared.kubernetes.kinds import Key
from shared.observability import metrics, tracing

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 60.0
"""Seconds: the first and the longest wait between retries of one key."""


class Queue:
    """Keys that want a worker.

    Args:
        name: the controller's name, for metrics.
        clock: seconds, monotonic.
        jitter: a number in [0, 1) that spreads retries; tests give a constant.
    """

    def __init__(
        self, name: str, *, clock: Callable[[], float] | None = None, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._jitter = jitter
        self._waiting: deque[Key] = deque()
        self._since: dict[Key, float] = {}  # keys that wait or must be handled again, and since when
        self._handled: dict[Key, float] = {}  # keys in a worker's hands, and since when
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._wakeup = asyncio.Event()
        self._rested = asyncio.Event()
        self._rested.set()
        labels = {"name": name, "controller": name}
        self._adds = metrics.QUEUE_ADDS.labels(**labels)
        self._depth = metrics.QUEUE_DEPTH.labels(**labels)
        self._wait = metrics.QUEUE_WAIT.labels(**labels)
        self._work = metrics.QUEUE_WORK.labels(**labels)
        self._retries = metrics.QUEUE_RETRIES.labels(**labels)
        self._depth.set_function(lambda: len(self._waiting))
        metrics.QUEUE_UNFINISHED.labels(**labels).set_function(lambda: sum(self._ages()))
        metrics.QUEUE_LONGEST.labels(**labels).set_function(self.oldest_work)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """Ask for one reconcile of the key, as soon as a worker is free."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if self._closed or key in self._since:
            return
        self._adds.inc()
        self._since[key] = self._clock()
        if key not in self._handled:
            self._waiting.append(key)
            self._wakeup.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a reconcile after so many seconds; an earlier wish for the same key wins."""
        if self._closed:
            return
        when = asyncio.get_running_loop().time() + seconds
        pending = self._timers.get(key)
        if pending is not None and pending.when() <= when:
            return
        if pending is not None:
            pending.cancel()
        self._timers[key] = asyncio.get_running_loop().call_at(when, self.add, key)

    def retry(self, key: Key, *, at_least: float = 0.0) -> float:
        """Ask again after a failure.

        Args:
            at_least: seconds the server asked to wait (Retry-After).

        Returns:
            Seconds until the retry: doubling up to `MAX_RETRY_SECONDS`, plus up to half as jitter.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        ceiling = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(failures, 20))
        delay = max(ceiling * (0.5 + self._jitter() / 2), at_least)
        self._retries.inc()
        self.add_after(key, delay)
        return delay

    def failures(self, key: Key) -> int:
        """Failures in a row so far."""
        return self._failures.get(key, 0)

    def forget_failures(self, key: Key) -> None:
        """The key succeeded: its next failure starts from the shortest wait."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """The next key, now in the caller's hands until `done`."""
        while not self._waiting:
            self._wakeup.clear()
            await self._wakeup.wait()
        key = self._waiting.popleft()
        now = self._clock()
        self._wait.observe(now - self._since.pop(key))
        self._handled[key] = now
        self._rested.clear()
        return key

    def done(self, key: Key) -> None:
        """The caller is finished with the key; if it was added meanwhile, it waits again."""
        self._work.observe(self._clock() - self._handled.pop(key), tracing.exemplar())
        if key in self._since:
            self._waiting.append(key)
            self._wakeup.set()
        if not self._handled:
            self._rested.set()

    def oldest_work(self) -> float:
        """Seconds that the longest work under way has taken so far."""
        return max(self._ages(), default=0.0)

    def close(self) -> None:
        """Take in and hand out nothing more; what waits is forgotten, what is handled goes on."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for forgotten in (self._timers, self._waiting, self._since, self._failures):
            forgotten.clear()

    def open(self) -> None:
        """Take in and hand out keys again after a `close`; what was asked for meanwhile must be added anew."""
        self._closed = False

    async def rest(self) -> None:
        """Wait until no key is in a worker's hands."""
        await self._rested.wait()

    def _ages(self) -> list[float]:
        now = self._clock()
        return [now - since for since in list(self._handled.values())]  # at once: a scrape counts in a thread
