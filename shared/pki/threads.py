"""Runs what takes milliseconds of CPU, such as cryptography, in threads instead of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from shared.api import memo

MAX_AT_ONCE = 2
"""Maximum number of concurrent calls; further ones wait."""

_workers = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="certificates")
_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by namespace

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a function, computed in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_workers, lambda: function(*args, **kwargs))


async def evaluate(namespace: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a pure function: at once if all its parts are remembered (memo.py), else from a thread.

    Args:
        namespace: namespace of the resource, for which one call waits for a thread at a time: those with many Secrets
            delay the others by one call each.
    """
    try:
        with memo.only_remembered():
            return function(*args, **kwargs)
    except memo.NotRemembered:
        pass
    async with _turns.setdefault(namespace, asyncio.Lock()):
        return await in_thread(function, *args, **kwargs)
