"""A fake database that two threads use: the operator's and the kubelet's."""

from __future__ import annotations

from typing import Any


class Locked:
    """A server that answers while nobody else changes anything: no answer of a fake waits for anything.

    Args:
        lock: a `threading.RLock`.
    """

    def __init__(self, server: Any, lock: Any) -> None:
        self._server = server
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._server, name)

        async def answer(*arguments: Any) -> Any:
            with self._lock:
                return await asked(*arguments)

        return answer
