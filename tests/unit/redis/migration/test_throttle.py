"""Batch sizes of slot migration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.redis.migration.throttle import CALM_WAIT_SECONDS, MAX_WAIT_SECONDS, Throttle


def test_batches_shrink_under_latency_and_grow_again() -> None:
    throttle, sizes = Throttle(100, 8, slots=8), []
    for waited in (*[4 * MAX_WAIT_SECONDS] * 5, *[CALM_WAIT_SECONDS] * 4, MAX_WAIT_SECONDS, None):
        throttle.judge(waited)
        sizes.append((throttle.slots, throttle.keys))
    assert sizes == [
        *((4, 100), (2, 100), (1, 100), (1, 50), (1, 25)),
        *((1, 50), (1, 100), (2, 100), (4, 100)),
        *((2, 100), (2, 100)),
    ]


def test_slow_connection_gets_full_key_batches_of_single_slots() -> None:
    throttle, sizes = Throttle(100, 8, keys=25), []
    for _ in range(3):
        throttle.judge(MAX_WAIT_SECONDS)
        sizes.append((throttle.slots, throttle.keys))
    assert sizes == [(1, 50), (1, 100), (1, 100)]


def test_slot_moves_alone_after_a_failure() -> None:
    throttle = Throttle(100, 64, slots=64)
    throttle.use_single_slot()
    assert (throttle.slots, throttle.keys) == (1, 100)


@given(st.integers(1, 1000), st.integers(1, 128), st.lists(st.none() | st.floats(0, 1)))
def test_batches_stay_within_limits(keys: int, slots: int, waits: list[float | None]) -> None:
    throttle = Throttle(keys, slots)
    for waited in waits:
        throttle.judge(waited)
        assert 1 <= throttle.keys <= keys
        assert 1 <= throttle.slots <= slots
