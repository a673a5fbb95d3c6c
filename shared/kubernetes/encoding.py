"""JSON of requests, of digests, and of other programs. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

MAX_LEVELS = 64
"""Maximum number of nested objects and arrays of a text of another program."""

MAX_PARSED_BYTES, MAX_PARSED_VALUES = 2 * 1024 * 1024, 60_000
"""Largest text that is parsed at once, in the event loop: it takes 30 ms, and the result up to 14 MiB (200 bytes for a
separator). A thread would not help: the parser holds the lock of the interpreter."""

_SEPARATORS, _CONTAINERS = (b",", b"[", b"{"), (dict, list)
_COUNTED_BYTES = 128 * 1024
_SMALL = 5  # keys of a dict of the smallest size, whose texts are usually shared by many dicts

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
            if outer and isinstance(outer, _CONTAINERS)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def count_values(text: bytes, most: int) -> int:
    """Return the number of separators of a JSON text outside its strings, which is about the number of values.

    Functions of `bytes` do all the work: 1 MiB takes at most 10 ms, with any content. For a text that is not JSON, the
    figure includes at least the separators before the error.

    Args:
        most: above this number, the figure may be lower than the number of separators, but is above it.
    """
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = without_escapes.count(b'"')
    if quotes > 4 * most + 2:  # a separator is followed by at most a key and a value: no JSON has fewer values
        return (quotes + 1) // 4
    found, is_inside = 0, 0
    for at in range(0, len(without_escapes), _COUNTED_BYTES):  # each part between quotes needs 50 bytes meanwhile
        parts = without_escapes[at : at + _COUNTED_BYTES].split(b'"')
        outside = b"".join(parts[is_inside::2])
        found += sum(map(outside.count, _SEPARATORS))
        is_inside ^= (len(parts) - 1) & 1
    return found


def parsed_share(text: bytes) -> float:
    """Return the share of what may be parsed at once that a text takes: above 1, it is too much.

    The values of a short text, which cannot be too many, are not counted.
    """
    values = count_values(text, MAX_PARSED_VALUES) if len(text) > MAX_PARSED_VALUES else 0
    return max(len(text) / MAX_PARSED_BYTES, values / MAX_PARSED_VALUES)


def memory(value: Any) -> int:
    """Return about how many bytes of memory a decoded value takes: an object of a small pod, 25 KiB."""
    size, values = 0, [value]
    while values:
        each = values.pop()
        if isinstance(each, str):
            size += 50 + len(each)
        elif isinstance(each, dict):
            size += 184 if 0 < len(each) <= _SMALL else 64 + 90 * len(each)
            values.extend(each.values())
        elif isinstance(each, list):
            size += 64 + 8 * len(each)
            values.extend(each)
    return size


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
