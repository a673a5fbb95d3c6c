"""A keyed work queue with the guarantees of client-go's workqueue.

A key is processed by one worker at a time. Adding a key several times while it waits results in one reconcile; adding
it while it is processed results in one more afterwards. Failures back off per key, so that a failing resource does not
delay others. Keys wait by priority (`Priority`): the change of a spec overtakes everything else.
"""

from __future__ import annotations

import asyncio
import enum
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial

from shared.kubernetes.kinds import Key
from shared.observability import metrics, tracing
from shared.runtime.pacing import MAX_POLL_SECONDS, Pace

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 60.0
"""First and longest delay between retries of a key, in seconds."""

LOWER_SHARE = 8
"""One of this number of keys has a lower priority, so that a constant stream of changes does not stop the others."""

MAX_BACKGROUND = 64
"""Maximum number of background keys in process. Each may have several requests that wait for the API server, and the
requests of a change wait behind them."""

TURN_SECONDS = 0.01
"""Seconds of one turn of the event loop in which workers begin reconciles. A reconcile that finds nothing to do never
waits, so that thousands of them would otherwise block the renewal of the Lease and the watches."""


class Priority(enum.IntEnum):
    """Order in which keys are processed; those of the same priority, in the order in which they were added."""

    SPEC = 0
    """A resource whose status does not describe its spec yet: a user may wait for it."""
    CHANGE = 1
    """Anything else that was observed, and what a reconcile requested for a certain time."""
    BACKGROUND = 2
    """Polls, resyncs, and the resources that exist when this replica begins."""


class Queue:
    """A queue of keys to reconcile.

    Args:
        name: name of the controller, for metrics.
        clock: monotonic time in seconds.
        jitter: returns a number in [0, 1) that spreads retries; constant in tests.
        pace: pace of polls, which the queues of a process share.
        is_busy: whether no further key may be processed now; `wake_one` must be called when that ends.

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
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._jitter = jitter
        self._is_busy = is_busy
        self._waiting: dict[Priority, OrderedDict[Key, None]] = {each: OrderedDict() for each in Priority}
        self._passed_over = dict.fromkeys(Priority, 0)  # number of keys that were preferred to those of a priority
        self._since: dict[Key, float] = {}  # start of waiting, by waiting key
        self._again: dict[Key, Priority] = {}  # keys added while in process
        self._handled: dict[Key, float] = {}  # start of processing, by key in process
        self._handled_background: set[Key] = set()
        self._timers: dict[tuple[Key, Priority], asyncio.TimerHandle] = {}
        self._polled: set[Key] = set()  # keys that are polled frequently, except those in process
        self.pace = pace or Pace()
        self.pace.counts.append(lambda: len(self._polled))
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._turn: float | None = None  # when the first reconcile of this turn of the event loop began
        self._idle: deque[asyncio.Future[None]] = deque()  # workers that wait for a key; one is woken for each key
        self._rested = asyncio.Event()
        self._rested.set()
        labels = {"name": name, "controller": name}
        self._adds = metrics.QUEUE_ADDS.labels(**labels)
        self._wait = metrics.QUEUE_WAIT.labels(**labels)
        self._work = metrics.QUEUE_WORK.labels(**labels)
        self._retries = metrics.QUEUE_RETRIES.labels(**labels)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, key: Key, priority: Priority = Priority.CHANGE) -> None:
        """Add a key, to be reconciled as soon as a worker is free; the highest of its priorities applies."""
        if self._closed:
            return
        if key in self._since:
            self._expedite(key, priority)
            return
        self._adds.inc()
        self._since[key] = self._clock()
        if key in self._handled:
            self._again[key] = priority
        else:
            self._enqueue(key, priority)

    def _enqueue(self, key: Key, priority: Priority) -> None:
        self._waiting[priority][key] = None
        self.wake_one()

    def wake_one(self) -> None:
        """Let a waiting worker process the next key, if there is one."""
        while self._idle and self._has_next:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _expedite(self, key: Key, priority: Priority) -> None:
        """Raise the priority of a waiting key."""
        if key in self._again:
            self._again[key] = min(self._again[key], priority)
            return
        for lower in Priority:
            if lower > priority and key in self._waiting[lower]:
                del self._waiting[lower][key]
                self._enqueue(key, priority)

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

    def failures(self, key: Key) -> int:
        """Return the number of consecutive failures."""
        return self._failures.get(key, 0)

    def forget_failures(self, key: Key) -> None:
        """Reset the back-off of a key after a success."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """Return the next key, which the caller processes until `done`."""
        while True:
            if not self._has_next:
                await self._sleep()
            elif self._turn is not None and time.monotonic() >= self._turn + TURN_SECONDS:
                await asyncio.sleep(0)
            else:
                break
        self._begin_turn()
        key, priority = self._pop()
        if priority is Priority.BACKGROUND:
            self._handled_background.add(key)
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
        return bool(self._next) and not self._is_busy()

    @property
    def _next(self) -> list[Priority]:
        """Priorities of which a key may be processed now."""
        found = [each for each in Priority if self._waiting[each]]
        if found[-1:] == [Priority.BACKGROUND] and len(self._handled_background) >= MAX_BACKGROUND:
            found.pop()
        return found

    async def _sleep(self) -> None:
        """Wait until a key may be ready; another worker may take it first."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.wake_one()  # the key is left for another worker
            raise

    def _begin_turn(self) -> None:
        if self._turn is None:
            self._turn = time.monotonic()
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn = None

    def _pop(self) -> tuple[Key, Priority]:
        """Return the next key and its priority: the highest one, unless a lower one was passed over too often."""
        found = self._next
        due = (each for each in reversed(found) if self._passed_over[each] + 1 >= LOWER_SHARE)
        chosen = next(due, found[0])
        for each in found:
            self._passed_over[each] = 0 if each is chosen else self._passed_over[each] + 1
        return self._waiting[chosen].popitem(last=False)[0], chosen

    def done(self, key: Key) -> None:
        """Finish processing a key; if it was added in the meantime, it waits again."""
        self._work.observe(self._clock() - self._handled.pop(key), tracing.exemplar())
        self._handled_background.discard(key)
        if key in self._again:
            self._enqueue(key, self._again.pop(key))
        else:
            self.wake_one()
        if not self._handled:
            self._rested.set()

    @property
    def is_open(self) -> bool:
        return not self._closed

    def oldest_work(self) -> float:
        """Return the age in seconds of the longest running reconcile."""
        return max(self.ages(), default=0.0)

    def close(self) -> None:
        """Drop all waiting keys, and accept no more; running reconciles continue."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for forgotten in (self._timers, self._polled, self._failures, self._since, self._again):
            forgotten.clear()
        for waiting in self._waiting.values():
            waiting.clear()

    def open(self) -> None:
        """Accept keys again after `close`; keys that were added in the meantime are lost."""
        self._closed = False

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
    metrics.QUEUE_DEPTH.labels(**labels).set_function(lambda: sum(map(len, several)))
    metrics.QUEUE_UNFINISHED.labels(**labels).set_function(lambda: sum(sum(queue.ages()) for queue in several))
    metrics.QUEUE_LONGEST.labels(**labels).set_function(lambda: max(queue.oldest_work() for queue in several))
