"""Tests of which the short suite runs a part, another one after each commit; `make test-long` runs the others.

Which part depends on the commit only, so that the author of a commit and every CI run the same one.
"""

from __future__ import annotations

import subprocess
import zlib
from functools import cache

import pytest

from e2e.cluster.paths import REPOSITORY


def in_turn(name: str, parts: int) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a test that belongs to the short suite of one in `parts` commits.

    Args:
        name: name of the test, which decides to which part it belongs.
        parts: number of parts.
    """
    return () if zlib.crc32(name.encode()) % parts == _commit() % parts else (pytest.mark.long,)


@cache
def _commit() -> int:
    """Return a number of the present commit; 0 outside a repository."""
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(found.stdout[:8] or "0", 16)
