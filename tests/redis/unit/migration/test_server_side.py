"""Failures of server-side migration jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from operators.redis.migration.server_side import Job, failures
from operators.redis.slots.hash_slots import Slots

SLOTS = Slots.of(range(10))


def job(state: str, *, source: str = "a", slots: Slots = SLOTS, retries: int = 0) -> Job:
    return Job("id", source, "b", slots, state, "why", state != "migrating", retries)


@pytest.mark.parametrize(
    ("jobs", "count"),
    [
        ([], 0),
        ([job("failed")] * 3, 3),
        ([job("failed"), job("success"), job("failed")], 1),
        ([job("failed"), job("cancelled"), job("failed")], 2),
        ([job("migrating"), job("failed")], 1),
        ([job("failed", source="c")], 0),
        ([job("failed", slots=Slots.of(20))], 0),
        ([job("failed", slots=Slots.of(9, 20))], 1),
        ([job("canceled", retries=3)], 3),
        ([job("canceled", retries=1)], 0),
    ],
)
def test_consecutive_failures_of_a_path_are_counted(jobs: list[Job], count: int) -> None:
    path: Any = SimpleNamespace(source=SimpleNamespace(id="a"), target=SimpleNamespace(id="b"), slots=SLOTS)
    assert len(failures(jobs, path)) == count
