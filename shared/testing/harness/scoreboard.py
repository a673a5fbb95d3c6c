"""How many disturbed runs there were in a test session, and how many of them ended well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shared.testing.harness.sweep import Sweep


class Scoreboard:
    """Counts runs by scenario."""

    def __init__(self) -> None:
        self._runs: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()

    def require(self, done: Sweep) -> None:
        """Count a sweep.

        Raises:
            AssertionError: a run of it failed; the message tells which, and how.
        """
        self._runs[done.name] += done.runs
        self._passed[done.name] += done.passed
        if done.failures:
            raise AssertionError("\n".join((f"{done.passed} of {done.runs} runs passed", *map(str, done.failures))))

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """By scenario, how many runs there were, and how many passed; fit for JSON."""
        return {name: (runs, self._passed[name]) for name, runs in self._runs.items()}

    def add(self, counts: Mapping[str, Sequence[int]]) -> None:
        """Count what another process counted."""
        for name, (runs, passed) in counts.items():
            self._runs[name] += runs
            self._passed[name] += passed

    @property
    def lines(self) -> list[str]:
        """`memcached/create 84/84` for each scenario, and all together; nothing if there was no run."""
        if not self._runs:
            return []
        counts = [f"{name} {self._passed[name]}/{runs}" for name, runs in self._runs.items()]
        return [*counts, f"total {self._passed.total()}/{self._runs.total()}"]
