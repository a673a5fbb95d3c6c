"""JSON of requests, and of digests. Pure."""

from __future__ import annotations

import json
from typing import Any

import orjson


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
        if text.isascii():
            return text
    except TypeError:
        pass  # as for `encode`
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
