"""Amounts of memory as redis.conf writes them: 2gb, 512mb, 1g, 1073741824. Pure.

Source: memtoull in src/util.c.
"""

from __future__ import annotations

import re

FORM = r"^[0-9]{1,15}([bB]|[kKmMgG][bB]?)?$"
"""Pattern of an amount, for Python and for CEL."""

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1000**2, "mb": 1 << 20, "g": 1000**3, "gb": 1 << 30}


def parse_memory(text: str) -> int:
    """Return the bytes of an amount.

    Raises:
        ValueError: the text is not an amount.
    """
    if re.fullmatch(FORM, text) is None:
        raise ValueError(f"{text!r} is not an amount of memory; use the format of redis.conf, such as 2gb or 512mb")
    digits = re.sub("[a-zA-Z]", "", text)
    return int(digits) * _UNITS[text[len(digits) :].lower()]
