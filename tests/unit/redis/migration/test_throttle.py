"""How much moves in one go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.redis.migration.throttle import CALM_WAIT_SECONDS, MAX_WAIT_SECONDS, Throttle


def test_it_narrows_where_others_wait_and_widens_again() -> None:
    held, seen = Throttle(100, 8, slots=8), []
    for waited in (*[4 * MAX_WAIT_SECONDS] * 5, *[CALM_WAIT_SECONDS] * 4, MAX_WAIT_SECONDS, None):
        held.judge(waited)
        seen.append((held.slots, held.keys))
    assert seen == [
        *((4, 100), (2, 100), (1, 100), (1, 50), (1, 25)),
        *((1, 50), (1, 100), (2, 100), (4, 100)),
        *((2, 100), (2, 100)),
    ]


def test_who_is_far_away_gets_all_keys_but_slots_one_by_one() -> None:
    held, seen = Throttle(100, 8, keys=25), []
    for _ in range(3):
        held.judge(MAX_WAIT_SECONDS)
        seen.append((held.slots, held.keys))
    assert seen == [(1, 50), (1, 100), (1, 100)]


def test_after_a_failure_a_slot_goes_alone() -> None:
    held = Throttle(100, 64, slots=64)
    held.use_single_slot()
    assert (held.slots, held.keys) == (1, 100)


@given(st.integers(1, 1000), st.integers(1, 128), st.lists(st.none() | st.floats(0, 1)))
def test_something_always_moves_and_never_more_than_may(keys: int, slots: int, waits: list[float | None]) -> None:
    held = Throttle(keys, slots)
    for waited in waits:
        held.judge(waited)
        assert 1 <= held.keys <= keys
        assert 1 <= held.slots <= slots
