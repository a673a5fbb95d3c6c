"""Background work that a few tasks share fairly: events, and queries of databases between two reconciles.

One item is worked on by one task at a time. No namespace delays the others (`shared.kubernetes.fair_queue`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NoReturn, TypeVar

from shared.kubernetes.fair_queue import FairQueue, Priority

Item = TypeVar("Item", bound=Hashable)


class FairPool(Generic[Item]):
    """Tasks that work on items.

    Args:
        work: works on an item; an error ends the pool.
        tasks: number of tasks.
    """

    def __init__(self, work: Callable[[Item], Awaitable[None]], tasks: int) -> None:
        self._work = work
        self._tasks = tasks
        self._queue = FairQueue[Item](tasks)
        self._again: dict[Item, str | None] = {}  # items in work; the namespace of those that were added meanwhile
        self._idle: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._rested = asyncio.Event()
        self._rested.set()

    def __len__(self) -> int:
        """Return the number of items that wait or are worked on."""
        return len(self._queue) + len(self._again)

    def __contains__(self, item: Item) -> bool:
        """Whether an item waits or is worked on."""
        return item in self._queue or item in self._again

    def add(self, item: Item, namespace: str) -> None:
        """Let an item be worked on; if that is happening now, once more afterwards."""
        if item in self._again:
            self._again[item] = namespace
            return
        self._rested.clear()
        self._queue.add(item, namespace, Priority.CHANGE, _now())
        self._wake_one()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._tasks):
                group.create_task(self._work_on_items())

    async def rest(self) -> None:
        """Wait until nothing is left to do."""
        await self._rested.wait()

    async def _work_on_items(self) -> NoReturn:
        while True:
            while not self._queue.is_ready:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
            item = self._queue.take(_now())
            self._again[item] = None
            if self._timer is None:
                self._move_slow()
            self._wake_one()
            try:
                await self._work(item)
            finally:
                self._queue.done(item, _now())
                if (namespace := self._again.pop(item)) is not None:
                    self.add(item, namespace)
                if not len(self):
                    self._rested.set()
                self._wake_one()

    def _move_slow(self) -> None:
        """Move slow items to slots in which they delay nothing, and look for others when they may be slow."""
        left, self._timer = self._queue.note_slow(_now()), None
        if left is not None:
            self._timer = asyncio.get_running_loop().call_later(left, self._move_slow)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._idle and self._queue.is_ready:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return


def _now() -> float:
    return asyncio.get_running_loop().time()
