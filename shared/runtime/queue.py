"""A keyed work queue with the guarantees of client-go's workqueue.

A key is processed by one worker at a time. Adding a key several times while it waits results in one reconcile; adding
it while it is processed results in one more afterwards. Failures back off per key, so that a failing resource does not
delay others. Which key is next, and how many are processed at once, is decided by namespace and priority
(`shared.kubernetes.fair_queue`): the change of a spec overtakes everything else, and no namespace delays the others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from shared.kubernetes.fair_queue import FairQueue, Priority
from shared.kubernetes.kinds import Key
from shared.observability import metrics, tracing
from shared.runtime.pacing import MAX_POLL_SECONDS, Pace

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 60.0
"""First and longest delay between retries of a key, in seconds."""

TURN_SECONDS = 0.01
"""Seconds of one turn of the event loop in which workers begin reconciles. A reconcile that finds nothing to do never
waits, so that thousands of them would otherwise block the renewal of the Lease and the watches."""

MIN_MOVE_SECONDS = 0.05
"""Shortest time between two moves of keys that have become slow, in seconds."""

LARGE_BYTES = 512 * 1024
"""Memory from which a resource is large. Those of a namespace take turns apart from the small ones: a reconcile that
waits for a server may take minutes."""

MAX_KEYS_AT_ONCE = 256
"""Maximum number of keys that are processed at the same time, by default."""


class Queue:
    """A queue of keys to reconcile.

    Args:
        name: name of the controller, for metrics.
        clock: monotonic time in seconds.
        jitter: returns a number in [0, 1) that spreads retries; constant in tests.
        pace: pace of polls, which the queues of a process share.
        slots: maximum number of keys that are processed at the same time.
        memory: returns the bytes of memory that the processing of a key needs.

    Attributes:
        pace: the same.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
        pace: Pace | None = None,
        slots: int = MAX_KEYS_AT_ONCE,
        memory: Callable[[Key], int] = lambda _: 0,
    ) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._jitter = jitter
        self._memory = memory
        self._fair = FairQueue(slots, memory)
        self._slow_timer: asyncio.TimerHandle | None = None
        self._since: dict[Key, float] = {}  # start of waiting, by waiting key
        self._again: dict[Key, Priority] = {}  # keys added while in process
        self._handled: dict[Key, float] = {}  # start of processing, by key in process
        self._timers: dict[tuple[Key, Priority], asyncio.TimerHandle] = {}
        self._polled: set[Key] = set()  # keys that are polled frequently, except those in process
        self.pace = pace or Pace()
        self.pace.counts.append(lambda: len(self._polled))
        self._failures: dict[Key, int] = {}
        self._closed = self._suspended = False
        self._turn: float | None = None  # when the first reconcile of this turn of the event loop began
        self._begun = 0  # number of reconciles that began in this turn
        self._idle: deque[asyncio.Future[None]] = deque()  # workers that wait for a key; one is woken for each key
        self._rested = asyncio.Event()
        self._rested.set()
        labels = {"name": name, "controller": name}
        self._adds = metrics.QUEUE_ADDS.labels(**labels)
        self._wait = metrics.QUEUE_WAIT.labels(**labels)
        self._work = metrics.QUEUE_WORK.labels(**labels)
        self._retries = metrics.QUEUE_RETRIES.labels(**labels)

    def __len__(self) -> int:
        return len(self._fair)

    def add(self, key: Key, priority: Priority = Priority.CHANGE) -> None:
        """Add a key, to be reconciled as soon as a worker is free; the highest of its priorities applies."""
        if self._closed:
            return
        if key not in self._since:
            self._adds.inc()
            self._since[key] = self._clock()
        if key in self._handled:
            self._again[key] = min(self._again.get(key, priority), priority)
        else:
            self._enqueue(key, priority)

    def _enqueue(self, key: Key, priority: Priority) -> None:
        group = key.namespace if self._memory(key) < LARGE_BYTES else f"{key.namespace}/large"
        self._fair.add(key, group, priority, self._clock())
        self._wake_one()

    def _wake_one(self) -> None:
        """Let a waiting worker process the next key, if there is one, in this turn of the event loop or the next one.

        Workers do not wait for the next turn awake: hundreds that look for it in each one take a quarter of the CPU.
        """
        while self._idle and not self._is_turn_over and self._has_next:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return

    def add_after(self, key: Key, seconds: float, priority: Priority = Priority.CHANGE) -> None:
        """Add a key after a delay in seconds; the earliest of several delays for a key and a priority applies.

        The next reconcile of the key cancels the delays, and requests new ones.
        """
        if self._closed:
            return
        when = asyncio.get_running_loop().time() + seconds
        pending = self._timers.get((key, priority))
        if pending is not None and pending.when() <= when:
            return
        if pending is not None:
            pending.cancel()
        add = partial(self.add, key, priority)
        self._timers[key, priority] = asyncio.get_running_loop().call_at(when, add)

    def poll(self, key: Key, seconds: float) -> None:
        """Add a key after a delay, as background work; the delay is longer while many keys are polled.

        Args:
            seconds: requested delay.
        """
        if self._closed:
            return
        if seconds < MAX_POLL_SECONDS:
            self._polled.add(key)
        self.add_after(key, self.pace.seconds(seconds), Priority.BACKGROUND)

    def retry(self, key: Key, *, at_least: float = 0.0, at_most: float = MAX_RETRY_SECONDS) -> float:
        """Add a key after a failure, with back-off.

        Args:
            at_least: minimum delay in seconds, as requested by the server (Retry-After).
            at_most: maximum of the back-off in seconds.

        Returns:
            Delay in seconds: doubling up to `at_most`, of which half is jitter.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        ceiling = min(at_most, FIRST_RETRY_SECONDS * 2.0 ** min(failures, 20))
        delay = max(ceiling * (0.5 + self._jitter() / 2), at_least)
        self._retries.inc()
        self.add_after(key, delay)
        return delay

    def retry_now(self) -> None:
        """Add every key that waits for its retry: what failed is over, as after an outage of the API server."""
        failed, self._failures = self._failures, {}
        for key in failed:
            self.add(key)

    def failures(self, key: Key) -> int:
        """Return the number of consecutive failures."""
        return self._failures.get(key, 0)

    def forget_failures(self, key: Key) -> None:
        """Reset the back-off of a key after a success."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """Return the next key, which the caller processes until `done`."""
        while self._is_turn_over or not self._has_next:
            await self._sleep()
        self._begin_turn()
        key = self._fair.take(self._clock())
        self._note_slow()
        self._wake_one()  # a namespace may have got several slots at once
        self._polled.discard(key)
        for each in Priority:
            if timer := self._timers.pop((key, each), None):
                timer.cancel()
        now = self._clock()
        self._wait.observe(now - self._since.pop(key))
        self._handled[key] = now
        self._rested.clear()
        return key

    @property
    def _has_next(self) -> bool:
        return not self._suspended and self._fair.is_ready

    def _note_slow(self) -> None:
        """Begin to look for slow keys, which no longer hold the slots of other namespaces."""
        if self._slow_timer is None:
            self._move_slow()

    def _move_slow(self) -> None:
        self._slow_timer = None
        left = self._fair.note_slow(self._clock())
        if left is not None:
            self._slow_timer = asyncio.get_running_loop().call_later(max(left, MIN_MOVE_SECONDS), self._move_slow)
        self._wake_one()

    async def _sleep(self) -> None:
        """Wait until a key may be ready; another worker may take it first."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake_one()  # the key is left for another worker
            raise

    @property
    def _is_turn_over(self) -> bool:
        """Whether no further reconcile begins in this turn of the event loop."""
        return self._turn is not None and time.monotonic() >= self._turn + TURN_SECONDS

    def _begin_turn(self) -> None:
        if self._turn is None:
            self._turn, self._begun = time.monotonic(), 0
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._begun += 1

    def _end_turn(self) -> None:
        """Let as many workers continue as have begun a reconcile in this turn; each lets another one continue."""
        self._turn = None
        for _ in range(self._begun):
            self._wake_one()

    def done(self, key: Key) -> None:
        """Finish processing a key; if it was added in the meantime, it waits again. A second call changes nothing."""
        if key not in self._handled:
            return
        self._work.observe(self._clock() - self._handled.pop(key), tracing.exemplar())
        self._fair.done(key, self._clock())
        if key in self._again:
            self._enqueue(key, self._again.pop(key))
        else:
            self._wake_one()
        if not self._handled:
            self._rested.set()

    @property
    def is_open(self) -> bool:
        return not self._closed and not self._suspended

    def age(self, key: Key) -> float:
        """Return for how many seconds a key has been processed; 0 if it is not."""
        now = self._clock()
        return now - self._handled.get(key, now)

    def oldest_work(self) -> float:
        """Return the age in seconds of the longest running reconcile."""
        return max(self.ages(), default=0.0)

    def close(self) -> None:
        """Drop all waiting keys, and accept no more; running reconciles continue."""
        self._closed, self._suspended = True, False
        for timer in self._timers.values():
            timer.cancel()
        for forgotten in (self._timers, self._polled, self._failures, self._since, self._again):
            forgotten.clear()
        self._fair.clear()

    def suspend(self) -> None:
        """Let no reconcile begin until `open`, and lose no key: those in process will be reconciled again."""
        self._suspended = True
        for key in self._handled:
            self.add(key)

    @property
    def is_suspended(self) -> bool:
        return self._suspended

    def open(self) -> None:
        """Continue after `suspend`, or accept keys again after `close`; keys that were added while closed are lost."""
        self._closed = self._suspended = False

    async def rest(self) -> None:
        """Wait until no key is being processed."""
        await self._rested.wait()

    def ages(self) -> list[float]:
        """Return the ages in seconds of the running reconciles; safe from any thread."""
        now = self._clock()
        return [now - since for since in list(self._handled.values())]


def expose(name: str, queues: Iterable[Queue]) -> None:
    """Expose the gauges of a controller, whose keys are split among several queues."""
    labels, several = {"name": name, "controller": name}, tuple(queues)
    metrics.QUEUE_DEPTH.labels(**labels).set_function(lambda: sum(len(queue) for queue in several if queue.is_open))
    metrics.QUEUE_UNFINISHED.labels(**labels).set_function(lambda: sum(sum(queue.ages()) for queue in several))
    metrics.QUEUE_LONGEST.labels(**labels).set_function(lambda: max(queue.oldest_work() for queue in several))
