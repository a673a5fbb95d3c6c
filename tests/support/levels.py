"""Levels of the tests: what runs for each commit, each night, and each week.

A test is marked `nightly` or `weekly`; without a mark it runs for each commit. Of several marks the closest counts (a
test's before its module's, where `commit` makes an exception), and among marks of one test the highest, such as a
parameter's. Each level contains those below it, so the weekly one has every test. No selection depends on which commit
is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

import pytest

from tests.harness.disturbance import Disturbance
from tests.harness.outage import sample
from tests.harness.scenario import Scenario


class Level(IntEnum):
    """A selection of tests; each contains those below it."""

    COMMIT = 1
    NIGHTLY = 2
    WEEKLY = 3

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def is_random(self) -> bool:
        """Whether tests draw new examples in each run. Those of a commit are the same on every machine."""
        return self is not Level.COMMIT


BY_NAME = {str(level): level for level in Level}


def of(item: pytest.Item) -> Level:
    """Return the lowest level that has a test."""
    for node in reversed(item.listchain()):
        marked = [BY_NAME[mark.name] for mark in node.own_markers if mark.name in BY_NAME]
        if marked:
            return max(marked)
    return Level.COMMIT


def split(items: Iterable[pytest.Item], level: Level) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that a level has, and those that only higher levels have."""
    found = list(items)
    return [item for item in found if of(item) <= level], [item for item in found if of(item) > level]


def swept(scenario: Scenario, disturbance: Disturbance, share: int, *, each_night: bool) -> Iterator[Any]:
    """Yield a sweep as parameters: each week at all points, and at one in `share` of them if it runs each night."""
    name = f"{scenario}-{disturbance}"
    if each_night:
        yield pytest.param(scenario, sample(disturbance, share), id=f"{name}-sample", marks=pytest.mark.nightly)
    yield pytest.param(scenario, disturbance, id=name, marks=pytest.mark.weekly)
