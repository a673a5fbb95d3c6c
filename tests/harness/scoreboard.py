"""The number of disturbed runs in a test session, and the number of those that passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.harness.sweep import Sweep


class Scoreboard:
    """Counts of runs by scenario."""

    def __init__(self) -> None:
        self._runs: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()

    def require(self, done: Sweep) -> None:
        """Count a sweep.

        Raises:
            AssertionError: runs failed; the message describes each failure.
        """
        self._runs[done.name] += done.runs
        self._passed[done.name] += done.passed
        if done.failures:
            raise AssertionError("\n".join((f"{done.passed} of {done.runs} runs passed", *map(str, done.failures))))

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Number of runs and of passed runs by scenario, in a form that JSON can express."""
        return {name: (runs, self._passed[name]) for name, runs in self._runs.items()}

    def add(self, counts: Mapping[str, Sequence[int]]) -> None:
        """Add the counts of another process."""
        for name, (runs, passed) in counts.items():
            self._runs[name] += runs
            self._passed[name] += passed

    @property
    def lines(self) -> list[str]:
        """One line per scenario, such as `memcached/create 84/84`, and a total; empty without runs."""
        if not self._runs:
            return []
        counts = [f"{name} {self._passed[name]}/{runs}" for name, runs in self._runs.items()]
        return [*counts, f"total {self._passed.total()}/{self._runs.total()}"]
