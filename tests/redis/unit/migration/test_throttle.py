"""Batch sizes of slot migration."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.migration.throttle import BATCH_SECONDS, MAX_KEYS, MAX_SLOTS, MEASUREMENTS, Throttle

ROUND_TRIP = 0.001


def play(throttle: Throttle, batches: int, per_key: float) -> list[tuple[int, int]]:
    """Return the sizes of batches whose keys take equally long."""
    return play_busy(throttle, batches, per_key, 0, Random())


def play_busy(throttle: Throttle, batches: int, per_key: float, delay: float, random: Random) -> list[tuple[int, int]]:
    """Return the sizes of batches on a machine that delays each by a random time, on average by this many seconds."""
    sizes = []
    for _ in range(batches):
        sizes.append(size := throttle.next_size())
        throttle.judge(ROUND_TRIP + size[0] * per_key + (random.expovariate(1 / delay) if delay else 0), *size)
    return sizes


def test_batches_of_small_keys_grow_from_one_key_to_the_maximum() -> None:
    assert play(Throttle(), 10, per_key=1e-6)[-1] == (MAX_KEYS, MAX_SLOTS)


def test_keys_that_take_long_move_alone() -> None:
    assert {keys for keys, _ in play(Throttle(), 20, per_key=4 * BATCH_SECONDS)} == {1, 2}


def test_single_slow_batch_does_not_shrink_the_next() -> None:
    throttle = Throttle(keys=64, slots=8)
    throttle.judge(ROUND_TRIP, 1, 1)
    for seconds in (9.0, 9.0, ROUND_TRIP + 0.9 * BATCH_SECONDS, 9.0, 9.0):
        throttle.judge(seconds, 64, 8)
    assert (throttle.keys, throttle.slots) == (64, 8)
    throttle.judge(9.0, 64, 8)
    assert (throttle.keys, throttle.slots) == (32, 4)


def test_slow_connection_does_not_shrink_batches() -> None:
    throttle = Throttle()
    for _ in range(10):
        throttle.judge(20 * BATCH_SECONDS, throttle.keys, throttle.slots)
    assert (throttle.keys, throttle.slots) == (MAX_KEYS, MAX_SLOTS)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("delay", [0.02, 0.1])
def test_busy_machine_does_not_shrink_batches(delay: float, seed: int) -> None:
    sizes = play_busy(Throttle(), 300, 1e-5, delay, Random(seed))
    assert mean(keys for keys, _ in sizes[100:]) > MAX_KEYS / 4


@pytest.mark.parametrize("seed", range(10))
def test_keys_that_take_long_move_in_few_at_a_time_once_the_machine_is_idle_again(seed: int) -> None:
    throttle = Throttle()
    play_busy(throttle, 300, BATCH_SECONDS, 0.1, Random(seed))
    play(throttle, 20 * MEASUREMENTS, BATCH_SECONDS)
    assert max(play(throttle, 100, BATCH_SECONDS)) <= (2, 2)


def test_batch_that_was_not_full_does_not_grow() -> None:
    throttle = Throttle(keys=8, slots=4)
    throttle.judge(ROUND_TRIP, keys=3, slots=4)
    assert (throttle.keys, throttle.slots) == (8, 8)


def test_slot_moves_alone_after_a_failure() -> None:
    throttle = Throttle(keys=64, slots=8)
    throttle.restart()
    assert (throttle.keys, throttle.slots) == (1, 1)


@given(st.lists(st.floats(0, 1), max_size=50))
def test_size_stays_within_its_bounds(times: list[float]) -> None:
    throttle = Throttle()
    for seconds in times:
        throttle.judge(seconds, throttle.keys, throttle.slots)
        assert 1 <= throttle.keys <= MAX_KEYS
        assert 1 <= throttle.slots <= MAX_SLOTS
