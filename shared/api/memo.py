"""Remembers results of pure functions that take milliseconds: parsing, TLS handshakes, password hashes.

Functions that are marked `remembered` share one cache, bounded in bytes, so that no number and no size of Secrets fills
the memory. Their arguments are kept as digests only.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of all results: those of about 1,000 databases with TLS."""

_ENTRY_BYTES = 512
"""Size of an entry without its result."""

P = ParamSpec("P")
T = TypeVar("T")

_is_cheap: ContextVar[bool] = ContextVar("is_cheap", default=False)


class NotRemembered(Exception):
    """A result must be computed, which the caller does not want (`only_remembered`)."""


class Memo:
    """Results by a key; the least recently used are dropped. Safe for threads.

    Args:
        capacity: maximum size of all results, in bytes.

    Attributes:
        size: size of all results, in bytes, as their functions estimate it.
    """

    def __init__(self, capacity: int = MAX_BYTES) -> None:
        self._capacity = capacity
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, key: Hashable, compute: Callable[[], T], measure: Callable[[T], int]) -> T:
        """Return the remembered result, or compute it; two threads may compute the same one."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                found: T = self._known[key][0]
                return found
        if _is_cheap.get():
            raise NotRemembered
        result = compute()
        size = measure(result)
        with self._lock:
            self._forget(key)
            self._known[key] = result, size
            self.size += size
            while self.size > self._capacity:
                self._forget(next(iter(self._known)))
        return result

    def _forget(self, key: Hashable) -> None:
        if (known := self._known.pop(key, None)) is not None:
            self.size -= known[1]


_memo = Memo()


def remembered(measure: Callable[[Any], int], memo: Memo = _memo) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Remember the results of a function of texts, numbers, None, and tuples of such; no result may be mutable.

    Args:
        measure: estimates the size of a result in bytes.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        name = f"{function.__module__}.{function.__qualname__}"

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            key = _digest((name, args, tuple(sorted(kwargs.items()))))
            found: T = memo.get(key, lambda: function(*args, **kwargs), lambda result: _ENTRY_BYTES + measure(result))
            return found

        return call

    return decorate


@contextmanager
def only_remembered() -> Iterator[None]:
    """Raise NotRemembered in the body instead of computing a result that is not remembered."""
    token = _is_cheap.set(True)
    try:
        yield
    finally:
        _is_cheap.reset(token)


def _digest(arguments: tuple[object, ...]) -> bytes:
    found = hashlib.sha256()
    for part in _parts(arguments):
        found.update(len(part).to_bytes(8, "big") + part)
    return found.digest()


def _parts(value: object) -> Iterable[bytes]:
    """Yield what distinguishes a value from any other: each part is hashed with its length."""
    if isinstance(value, tuple):
        yield b"(%d" % len(value)
        for each in value:
            yield from _parts(each)
    elif isinstance(value, str):
        yield b"s" + value.encode("utf-8", "surrogatepass")
    else:
        yield f"{type(value).__name__} {value!r}".encode()
