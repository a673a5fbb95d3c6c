"""A fake database for use from two threads: the operator's and the kubelet's."""

from __future__ import annotations

from typing import Any


class Locked:
    """A server whose calls hold a lock. The fakes answer without waiting, so a call never blocks for long.

    Args:
        lock: a `threading.RLock`.
    """

    def __init__(self, server: Any, lock: Any) -> None:
        self._server = server
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._server, name)

        async def answer(*arguments: Any) -> Any:
            with self._lock:
                return await method(*arguments)

        return answer
