"""Delivery of changes to subscribers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.clone import clone

Callback = Callable[[Obj], None]


class Watches:
    """Delivers changes to subscribers immediately or with a delay. A delayed watch produces a stale cache.

    Attributes:
        history: every change in order.
    """

    def __init__(self) -> None:
        self.history: list[tuple[Kind, Obj]] = []
        self._subscribers: list[tuple[Callback, Kind | None]] = []
        self._pending: deque[tuple[Kind, Obj]] = deque()
        self._delayed = False

    @property
    def pending(self) -> int:
        """Number of changes not delivered yet."""
        return len(self._pending)

    def subscribe(self, callback: Callback, kind: Kind | None = None) -> None:
        self._subscribers.append((callback, kind))

    def hold(self) -> None:
        """Delay all changes from now on."""
        self._delayed = True

    def release(self, count: int | None = None) -> None:
        """Deliver the delayed changes in order; without `count`, also resume immediate delivery."""
        self._delayed = count is not None
        for _ in range(len(self._pending) if count is None else min(count, len(self._pending))):
            self._deliver(*self._pending.popleft())

    def drop(self, count: int | None = None) -> None:
        """Discard the delayed changes, or the first `count` of them, as a broken watch does."""
        for _ in range(len(self._pending) if count is None else min(count, len(self._pending))):
            self._pending.popleft()

    def record(self, kind: Kind, event_type: str, obj: Obj) -> None:
        """Record and deliver a change of type ADDED, MODIFIED or DELETED."""
        self.history.append((kind, {"type": event_type, "object": obj}))
        self._pending.append(self.history[-1])
        if not self._delayed:
            self.release()

    def _deliver(self, kind: Kind, event: Obj) -> None:
        """Deliver one copy to all subscribers, which do not change it."""
        event = clone(event)
        for callback, watched in self._subscribers:
            if watched is None or watched == kind:
                callback(event)
