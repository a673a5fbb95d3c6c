"""The benchmark of certificates."""

from __future__ import annotations

from e2e.bench.certificates import Measured, goals
from e2e.bench.measures import MIB


def test_goal_is_the_memory_limit_of_the_chart() -> None:
    found = goals([Measured(500, 60.0, 80 * MIB, peak, 30.0) for peak in (255 * MIB, 257 * MIB)])
    assert [(goal.value, goal.met) for goal in found] == [(255, True), (257, False)]
