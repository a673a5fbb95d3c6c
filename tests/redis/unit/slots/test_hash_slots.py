"""Sets of hash slots: set operations, the text format of Redis, and the slot of a key."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import SLOTS, Slots

NUMBERS = st.integers(0, SLOTS - 1)
RUNS = st.builds(lambda start, length: range(start, min(start + length, SLOTS)), NUMBERS, st.integers(1, 6000))
SETS = st.lists(NUMBERS | RUNS, max_size=8).map(lambda parts: Slots.of(*parts))


@given(SETS, SETS)
def test_slots_behave_as_sets(one: Slots, other: Slots) -> None:
    assert set(one | other) == set(one) | set(other)
    assert set(one & other) == set(one) & set(other)
    assert set(one - other) == set(one) - set(other)
    assert Slots.union((one, other)) == one | other
    assert len(one) == len(set(one))
    assert bool(one) == (len(one) > 0)
    assert list(one) == sorted(one)
    assert (one == other) == (set(one) == set(other))
    assert hash(one | other) == hash(other | one)


@given(SETS, NUMBERS)
def test_membership_of_a_slot(slots: Slots, slot: int) -> None:
    assert (slot in slots) == (slot in set(slots))
    assert slot in slots | Slots.of(slot)
    assert slot not in slots - Slots.of(slot)


@given(SETS)
def test_text_of_slots_parses_back(slots: Slots) -> None:
    assert Slots.parse(str(slots)) == slots
    assert Slots.of(*slots.ranges) == slots


@given(SETS)
def test_ranges_are_merged(slots: Slots) -> None:
    for before, after in pairwise(slots.ranges):
        assert before.stop < after.start


@given(SETS, st.integers(-1, SLOTS + 1))
def test_first_returns_the_lowest_slots(slots: Slots, count: int) -> None:
    assert list(slots.first(count)) == sorted(slots)[: max(0, count)]


def test_text_is_the_format_of_cluster_nodes() -> None:
    slots = Slots.parse("0-5460 5462 5464-5465")
    assert str(slots) == "0-5460 5462 5464-5465"
    assert repr(slots) == "Slots('0-5460 5462 5464-5465')"
    assert slots.ranges == (range(5461), range(5462, 5463), range(5464, 5466))
    assert Slots.parse("") == Slots() == Slots.of(range(7, 7))
    assert len(Slots.all()) == SLOTS
    assert str(Slots.all()) == "0-16383"
    assert -1 not in Slots.all()
    assert SLOTS not in Slots.all()


@pytest.mark.parametrize("text", ["x", "5-", "-5", "5-3", "0-16384", "16384", "[5->-abc]", "1,2", "1-2-3"])
def test_invalid_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"slot|start"):
        Slots.parse(text)


@pytest.mark.parametrize("slot", [-1, SLOTS, range(SLOTS, SLOTS + 1), range(0, 10, 2)])
def test_slot_out_of_range_is_rejected(slot: int | range) -> None:
    with pytest.raises(ValueError, match="not within slots 0-16383"):
        Slots.of(slot)
