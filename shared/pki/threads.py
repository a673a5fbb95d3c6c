"""Runs what takes milliseconds of CPU, such as cryptography, in threads instead of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from shared.api import memo

MAX_AT_ONCE = 2
"""Maximum number of concurrent calls; further ones wait."""

_workers = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="certificates")

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a function, computed in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_workers, lambda: function(*args, **kwargs))


async def evaluate(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a pure function: at once if all its parts are remembered (memo.py), else from a thread."""
    try:
        with memo.only_remembered():
            return function(*args, **kwargs)
    except memo.NotRemembered:
        return await in_thread(function, *args, **kwargs)
