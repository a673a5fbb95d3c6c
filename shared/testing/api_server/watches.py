"""Delivery of changes to subscribers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shared.kubernetes.kinds import Kind, Obj
from shared.testing.api_server.clone import clone

Callback = Callable[[Obj], None]


class Watches:
    """Delivers changes to subscribers immediately or with a delay. A delayed watch produces a stale cache.

    Attributes:
        history: every change in order.
    """

    def __init__(self) -> None:
        self.history: list[tuple[Kind, Obj]] = []
        self._subscribers: list[tuple[Callback, Kind | None]] = []
        self._held: deque[tuple[Kind, Obj]] = deque()
        self._holding = False

    @property
    def held(self) -> int:
        """Number of changes not delivered yet."""
        return len(self._held)

    def subscribe(self, callback: Callback, kind: Kind | None = None) -> None:
        self._subscribers.append((callback, kind))

    def hold(self) -> None:
        """Delay all changes from now on."""
        self._holding = True

    def release(self, count: int | None = None) -> None:
        """Deliver the delayed changes in order; without `count`, also resume immediate delivery."""
        self._holding = count is not None
        for _ in range(len(self._held) if count is None else min(count, len(self._held))):
            self._deliver(*self._held.popleft())

    def drop(self, count: int | None = None) -> None:
        """Discard the delayed changes, or the first `count` of them, as a broken watch does."""
        for _ in range(len(self._held) if count is None else min(count, len(self._held))):
            self._held.popleft()

    def tell(self, kind: Kind, what: str, obj: Obj) -> None:
        """Record and deliver a change of type ADDED, MODIFIED or DELETED."""
        self.history.append((kind, {"type": what, "object": obj}))
        self._held.append(self.history[-1])
        if not self._holding:
            self.release()

    def _deliver(self, kind: Kind, event: Obj) -> None:
        for callback, wanted in self._subscribers:
            if wanted in (None, kind):
                callback(clone(event))
