"""Watches: who hears of changes, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shared.kubernetes.kinds import Kind, Obj
from shared.testing.api_server.clone import clone

Callback = Callable[[Obj], None]


class Watches:
    """Tells subscribers of changes at once, or later: a held watch is how a stale cache comes about.

    Attributes:
        history: every change there was, in order.
    """

    def __init__(self) -> None:
        self.history: list[tuple[Kind, Obj]] = []
        self._subscribers: list[tuple[Callback, Kind | None]] = []
        self._held: deque[tuple[Kind, Obj]] = deque()
        self._holding = False

    @property
    def held(self) -> int:
        """Changes kept back."""
        return len(self._held)

    def subscribe(self, callback: Callback, kind: Kind | None = None) -> None:
        self._subscribers.append((callback, kind))

    def hold(self) -> None:
        """Keep changes back from now on."""
        self._holding = True

    def release(self, count: int | None = None) -> None:
        """Tell of what was kept back, in order; go back to telling at once unless only `count` are asked for."""
        self._holding = count is not None
        for _ in range(len(self._held) if count is None else min(count, len(self._held))):
            self._deliver(*self._held.popleft())

    def drop(self, count: int | None = None) -> None:
        """Forget what was kept back, or the first `count` of it: a watch that broke, and missed this."""
        for _ in range(len(self._held) if count is None else min(count, len(self._held))):
            self._held.popleft()

    def tell(self, kind: Kind, what: str, obj: Obj) -> None:
        """Enter a change: ADDED, MODIFIED or DELETED."""
        self.history.append((kind, {"type": what, "object": obj}))
        self._held.append(self.history[-1])
        if not self._holding:
            self.release()

    def _deliver(self, kind: Kind, event: Obj) -> None:
        for callback, wanted in self._subscribers:
            if wanted in (None, kind):
                callback(clone(event))
