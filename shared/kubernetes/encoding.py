"""JSON of requests, of digests, and of other programs. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

MAX_LEVELS = 64
"""Maximum number of nested objects and arrays of a text of another program."""

_SMALL_NUMBER = re.compile(rb"e-\d[,}\]]|e-\d\Z")
"""End of a number that json writes otherwise than orjson: 1e-07 instead of 1e-7."""


def decode(text: bytes | str) -> Any:
    """Parse JSON that another program wrote.

    The functions of `json` and `repr` are recursive: a few kilobytes of brackets make them raise RecursionError.

    Raises:
        ValueError: the text is not JSON, or has more than `MAX_LEVELS` levels.
    """
    found = orjson.loads(text)
    if is_deeper(found, MAX_LEVELS):
        raise ValueError(f"the text has more than {MAX_LEVELS} levels")
    return found


def is_deeper(value: object, depth: int) -> bool:
    """Return whether a value has more levels of containers."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, which a database may report: orjson writes Unicode only
        return json.dumps(value).encode()


def canonical(value: Any) -> bytes:
    """Return a value as JSON of one form, for digests: they are stored in objects, so that it must never change.

    It is ASCII with sorted keys and without spaces.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if text.isascii() and b"\x7f" not in text and not _SMALL_NUMBER.search(text):
            return text
    except TypeError:
        pass  # as for `encode`
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
