"""Tests that take turns: the short suite has a part of them, another one after each commit; `make test-long` has all.

Which part depends on the commit only, so that the author of a commit and every CI run the same one.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterable
from functools import cache

import pytest

from e2e.cluster.paths import REPOSITORY


def mark_other_turns(items: Iterable[pytest.Item]) -> None:
    """Mark as long each test that is marked `in_turn(parts)` and whose turn another commit is.

    The mark of a test takes precedence over that of its module: `in_turn(1)` is always in the short suite.
    """
    for item in items:
        mark = item.get_closest_marker("in_turn")
        if mark and not is_turn(item.nodeid, *mark.args):
            item.add_marker(pytest.mark.long)


def is_turn(name: str, parts: int) -> bool:
    """Return whether a test belongs to the present commit's part.

    Args:
        name: name of the test, which decides to which part it belongs.
        parts: number of parts.
    """
    return zlib.crc32(name.encode()) % parts == _commit() % parts


@cache
def _commit() -> int:
    """Return a number of the present commit; 0 outside a repository."""
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(found.stdout[:8] or "0", 16)
