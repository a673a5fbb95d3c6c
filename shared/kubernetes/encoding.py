"""JSON of requests, and of digests. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_SMALL_NUMBER = re.compile(rb"e-\d[,}\]]|e-\d\Z")
"""End of a number that json writes otherwise than orjson: 1e-07 instead of 1e-7."""


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
