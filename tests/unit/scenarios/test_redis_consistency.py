"""The consistency checker for Redis, and the parser of `redis-cli --cluster check`."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.scenarios.redis.cli_check import REQUIRED_LINES, Verdict, parse
from e2e.scenarios.redis.cluster import open_slots, own_slots
from e2e.scenarios.redis.consistency import Operation, forgiving, lost, violations
from tests.support.paths import REPOSITORY


def write(number: int, called: float, returned: float | None, key: str = "k") -> Operation:
    return Operation(key, number, write=True, called=called, returned=returned)


def got(number: int, called: float, returned: float, key: str = "k") -> Operation:
    return Operation(key, number, write=False, called=called, returned=returned)


def played(seed: int, writes: int = 30, readers: int = 3) -> list[Operation]:
    """Return the history of a correct store: a key has one writer, and each operation takes effect at one moment."""
    chance = random.Random(seed)
    history, changes, now = [], [(0.0, 0)], 0.0
    for number in range(1, writes + 1):
        called = now
        moment = called + chance.uniform(0, 2)
        now = moment + chance.uniform(0, 2)
        changes.append((moment, number))
        history.append(write(number, called, now))
        now += chance.uniform(0, 1)
    if chance.random() < 0.5:  # the last write has no reply, and may have taken effect
        history[-1] = replace(history[-1], returned=None)
        changes = changes[: chance.choice([-1, len(changes)])]
    for _ in range(readers * writes):
        moment = chance.uniform(0, now + 5)
        seen = max(number for changed, number in changes if changed <= moment)
        history.append(got(seen, moment - chance.uniform(0, 2), moment + chance.uniform(0, 2)))
    chance.shuffle(history)
    return history


def acknowledged(history: list[Operation]) -> list[Operation]:
    return [each for each in history if each.write and each.returned is not None]


@given(st.integers())
def test_history_of_a_correct_store_is_accepted(seed: int) -> None:
    assert violations(played(seed)) == []


@given(st.integers(0, 10_000), st.data())
def test_lost_write_is_detected_by_the_last_read(seed: int, data: st.DataObject) -> None:
    history = played(seed)
    last = max(each.number for each in acknowledged(history))
    end = max(each.returned or 0.0 for each in history) + 1
    final = got(data.draw(st.integers(0, last - 1)), end, end + 1)
    assert any("misses" in output for output in violations([*history, final]))
    assert {each.number for each in lost(history, [final])} == set(range(final.number + 1, last + 1))


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        ([write(1, 0, 1), got(0, 2, 3)], "misses write"),
        ([write(1, 0, 1), write(2, 2, 3), got(1, 4, 5)], "misses write"),
        ([write(1, 0, None), got(1, 1, 2), got(0, 3, 4)], "misses read"),
        ([got(1, 0, 1), write(1, 2, 3)], "before it was written"),
        ([write(1, 0, 1, "a"), got(1, 2, 3, "b")], "before it was written"),
    ],
)
def test_impossible_history_is_reported(history: list[Operation], violation: str) -> None:
    assert any(violation in output for output in violations(history)), violations(history)


@pytest.mark.parametrize(
    "history",
    [
        [write(1, 0, None), got(0, 2, 3), got(1, 4, 5)],
        [write(1, 0, 5), got(1, 1, 2)],
        [write(1, 0, 5), got(0, 1, 2)],
        [write(1, 0, 5), got(1, 1, 3), got(0, 2, 4)],
    ],
)
def test_write_without_a_reply_may_or_may_not_have_taken_effect(history: list[Operation]) -> None:
    assert violations(history) == []


def test_only_writes_acknowledged_around_a_crash_may_be_lost() -> None:
    history = [write(1, 0, 1), write(2, 9.5, 10), got(2, 10.1, 10.2), write(3, 20, 21)]
    crash = [(9.0, 11.0)]
    assert violations([*history, got(1, 12, 13)])
    assert violations([*forgiving(history, crash), got(1, 12, 13)]) == []
    assert violations([*forgiving(history, crash), got(0, 12, 13)]), (
        "a write acknowledged before the crash must not be lost"
    )
    assert violations([*forgiving(history, crash), got(2, 22, 23)]), (
        "a write acknowledged after the crash must not be lost"
    )


ME = "aaaa 10.1.2.3:6379@16379,demo-0 myself,master - 0 0 3 connected 0-2 7 [5->-bbbb] [9-<-cccc]"
OTHER = "bbbb 10.1.2.4:6379@16379,demo-1 master - 0 1 1 connected 3-6 8-16383"


def test_own_slots_are_read_from_the_nodes_own_line() -> None:
    assert own_slots(f"{OTHER}\n{ME}\n") == {"aaaa": [0, 1, 2, 7]}
    assert open_slots(f"{OTHER}\n{ME}\n") == "[5->-bbbb][9-<-cccc]"


FINE = (REPOSITORY / "tests/recorded/redis-cli/check.txt").read_text()
"""Output of `redis-cli --cluster check` for a healthy cluster."""


@pytest.mark.parametrize(
    ("output", "problems"),
    [
        (FINE, ()),
        (FINE.replace(REQUIRED_LINES[1], "[ERR] Not all 16384 slots are covered by nodes."),
         ("[ERR] Not all 16384 slots are covered by nodes.", f"missing: {REQUIRED_LINES[1]}")),
        (FINE + "\x1b[31;1m[WARNING] The following slots are open: 5492.\x1b[0m\n",
         ("[WARNING] The following slots are open: 5492.",)),
        ("Could not connect to Redis at 10.1.2.3:6379: Connection refused\n" + FINE,
         ("Could not connect to Redis at 10.1.2.3:6379: Connection refused",)),
    ],
)  # fmt: skip
def test_verdict_lists_the_problems_of_the_check(output: str, problems: tuple[str, ...]) -> None:
    assert parse(output) == Verdict(1, 1, problems)


def test_empty_output_of_the_check_is_a_failure() -> None:
    assert parse("") == Verdict(0, 0, tuple(f"missing: {line}" for line in REQUIRED_LINES))
