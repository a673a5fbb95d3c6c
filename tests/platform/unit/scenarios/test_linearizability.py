"""The linearizability checker for etcd: accepts possible histories and reports impossible ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.scenarios.etcd.linearizability import Operation, violations


def write(value: str, called: float, returned: float | None, revision: int | None, key: str = "k") -> Operation:
    return Operation(key, value, write=True, called=called, returned=returned, revision=revision)


def read(value: str | None, called: float, returned: float, revision: int, written: int, key: str = "k") -> Operation:
    return Operation(key, value, write=False, called=called, returned=returned, revision=revision, written=written)


def played(seed: int, operations: int = 200) -> list[Operation]:
    """Return the history of a correct store: each operation takes effect at one moment between call and return."""
    chance = random.Random(seed)
    moments = sorted((chance.uniform(0, 50), chance.uniform(0, 2), chance.uniform(0, 2)) for _ in range(operations))
    store: dict[str, tuple[str, int]] = {}
    revision, history = 1, []
    for number, (moment, before, after) in enumerate(moments):
        key, called, returned = chance.choice("abc"), moment - before, moment + after
        fate = chance.random()
        if fate < 0.5:
            value, written = store.get(key, (None, 0))
            history.append(Operation(key, value, False, called, returned, revision, written))
            continue
        happens = fate < 0.95
        if happens:
            revision += 1
            store[key] = (str(number), revision)
        known = fate < 0.9
        history.append(
            Operation(key, str(number), True, called, returned if known else None, revision if known else None)
        )
    chance.shuffle(history)
    return history


@given(st.integers())
def test_history_of_a_correct_store_is_linearizable(seed: int) -> None:
    assert violations(played(seed)) == []


@given(st.integers(0, 10_000))
def test_lost_write_is_detected_by_a_later_read(seed: int) -> None:
    history = played(seed)
    end = max(each.returned or 0.0 for each in history) + 1
    last = max((each for each in history if each.write and each.revision), key=lambda each: each.revision or 0)
    store_revision = (last.revision or 0) + 5
    stale = read(None, end, end + 1, store_revision, 0, key=last.key)
    assert any("misses" in reported for reported in violations([*history, stale]))


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        ([write("1", 0, 1, 2), read(None, 2, 3, 1, 0)], "comes in the order before"),
        ([write("1", 0, 1, 2), read(None, 2, 3, 2, 0)], "misses"),
        ([write("1", 0, 1, 2), write("2", 2, 3, 3), read("1", 4, 5, 3, 2)], "misses"),
        ([write("1", 0, 1, 2), write("2", 2, 3, 2)], "two writes at one revision"),
        ([write("1", 0, 1, 2), read("2", 2, 3, 3, 3)], "never written"),
        ([write("1", 0, 1, 2), read("1", 2, 3, 4, 3)], "two revisions"),
        ([write("1", 0, 1, 2, key="a"), read("1", 2, 3, 2, 2, key="b")], "never written"),
        ([read(None, 0, 1, 9, 0), write("1", 2, 3, 5)], "comes in the order before"),
        ([write("1", 0, None, None), read("1", 2, 3, 4, 4), read(None, 5, 6, 4, 0)], "misses"),
    ],
)
def test_impossible_history_is_reported(history: list[Operation], violation: str) -> None:
    assert any(violation in reported for reported in violations(history)), violations(history)


@pytest.mark.parametrize(
    "history",
    [
        [write("1", 0, None, None), read(None, 2, 3, 1, 0)],
        [write("1", 0, None, None), read(None, 2, 3, 1, 0), read("1", 4, 5, 2, 2)],
        [write("1", 0, 5, 2), read(None, 1, 2, 1, 0)],
        [write("1", 0, 5, 2), read("1", 1, 2, 2, 2)],
        [read(None, 0, 1, 2, 0), read(None, 2, 3, 2, 0)],
    ],
)
def test_write_without_a_reply_may_or_may_not_have_taken_effect(history: list[Operation]) -> None:
    assert violations(history) == []


def test_real_time_order_applies_only_to_operations_that_do_not_overlap() -> None:
    overlapping = [write("1", 0, 10, 3), write("2", 0, 10, 2)]
    assert violations(overlapping) == []
    after = replace(overlapping[1], called=11, returned=12)
    assert violations([overlapping[0], after])
