"""Progress of a series of runs."""

from __future__ import annotations

import sys
import time


class Progress:
    """A bar in a terminal, a line for each step elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._began = total, time.monotonic()

    def show(self, done: int, text: str) -> None:
        width = 24
        filled = width * done // max(1, self._total)
        spent = time.monotonic() - self._began
        line = f"[{'#' * filled}{'.' * (width - filled)}] {done}/{self._total} {spent:5.0f} s  {text}"
        sys.stdout.write(f"\r\033[K{line}" if sys.stdout.isatty() else f"{line}\n")
        sys.stdout.flush()
