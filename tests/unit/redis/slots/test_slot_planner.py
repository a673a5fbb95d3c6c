"""Moves are the fewest, go straight to where slots stay, and whoever stops half-way is gone on from."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import SLOTS, Slots
from operators.redis.slots.slot_planner import (
    CannotMove,
    balanced,
    drained,
    moved,
    shares,
)
from tests.unit.redis.slots.owning import THREE, every_slot_has_one_owner, parts, sizes, total

OLD = [f"old-{number}" for number in range(7)]
NEW = [f"new-{number}" for number in range(4)]


@st.composite
def ownerships(draw: st.DrawFn) -> dict[str, Slots]:
    """Every slot is owned by one of a few nodes, in a few ranges or in many."""
    nodes = draw(st.lists(st.sampled_from(OLD), min_size=1, max_size=7, unique=True))
    cuts = [0, *sorted(draw(st.sets(st.integers(1, SLOTS - 1), max_size=20))), SLOTS]
    owners = dict.fromkeys(nodes, Slots())
    for start, stop in pairwise(cuts):
        node = draw(st.sampled_from(nodes))
        owners[node] |= Slots.of(range(start, stop))
    return owners


@st.composite
def even_ownerships(draw: st.DrawFn) -> dict[str, Slots]:
    """As a cluster is after it was balanced."""
    nodes = draw(st.lists(st.sampled_from(OLD), min_size=1, max_size=7, unique=True))
    return moved({"": Slots.all()}, balanced({"": Slots.all()}, nodes)) | {"": Slots()}


OWNERSHIPS = ownerships() | even_ownerships()
MASTERS = st.lists(st.sampled_from(OLD + NEW), min_size=1, max_size=7, unique=True)


def fewest(owners: Mapping[str, Slots], primaries: list[str]) -> int:
    """How many slots must change hands, whoever is to have one more than others: the best of all possible choices."""
    share, left = divmod(SLOTS, len(primaries))
    have = [len(owners.get(node, Slots())) for node in primaries]
    kept = max(
        sum(min(own, share + (number in lucky)) for number, own in enumerate(have))
        for lucky in combinations(range(len(primaries)), left)
    )
    return SLOTS - kept


def is_even(owners: Mapping[str, Slots], primaries: list[str]) -> bool:
    found = sizes(owners)
    return set(found) == set(primaries) and max(found.values()) - min(found.values()) <= 1


@given(OWNERSHIPS, MASTERS)
def test_in_the_end_every_slot_has_one_owner_and_all_have_as_many(
    owners: dict[str, Slots], primaries: list[str]
) -> None:
    after = moved(owners, balanced(owners, primaries))
    assert every_slot_has_one_owner(after)
    assert is_even(after, primaries)
    assert sizes(after) == shares(owners, primaries)


@given(OWNERSHIPS, MASTERS)
def test_no_way_moves_fewer(owners: dict[str, Slots], primaries: list[str]) -> None:
    assert total(balanced(owners, primaries)) == fewest(owners, primaries)


@given(OWNERSHIPS, MASTERS)
def test_each_slot_is_moved_once_by_who_owns_it_and_straight_to_who_keeps_it(
    owners: dict[str, Slots], primaries: list[str]
) -> None:
    moves = balanced(owners, primaries)
    for move in moves:
        assert move.slots
        assert move.slots - owners[move.source] == Slots()
        assert move.target in primaries
    assert total(moves) == len(Slots.union(move.slots for move in moves))
    assert not {move.source for move in moves} & {move.target for move in moves}, "who gives takes nothing"
    assert len({(move.source, move.target) for move in moves}) == len(moves), "one move for each pair"
    assert len(moves) <= max(0, len({move.source for move in moves}) + len({move.target for move in moves}) - 1)


@given(OWNERSHIPS, MASTERS)
def test_no_master_that_stays_is_ever_emptied_nor_sinks_below_its_share(
    owners: dict[str, Slots], primaries: list[str]
) -> None:
    now = dict(owners)
    for move in balanced(owners, primaries):
        now = moved(now, [move])
        for node in primaries:
            assert len(now.get(node, Slots())) >= min(len(owners.get(node, Slots())), SLOTS // len(primaries))


@given(OWNERSHIPS, MASTERS, st.data())
def test_whoever_stops_half_way_the_next_plan_goes_on_and_nothing_is_moved_twice(
    owners: dict[str, Slots], primaries: list[str], data: st.DataObject
) -> None:
    needed, done, now = fewest(owners, primaries), 0, dict(owners)
    for _ in range(data.draw(st.integers(1, 3), label="interruptions")):
        part = data.draw(parts(balanced(now, primaries)))
        now, done = moved(now, part), done + total(part)
        assert every_slot_has_one_owner(now)
    rest = balanced(now, primaries)
    assert done + total(rest) == needed
    assert is_even(moved(now, rest), primaries)
    assert balanced(moved(now, rest), primaries) == ()


@given(OWNERSHIPS, MASTERS, MASTERS, st.data())
def test_a_change_of_mind_costs_no_more_than_to_undo_what_was_done(
    owners: dict[str, Slots], primaries: list[str], others: list[str], data: st.DataObject
) -> None:
    part = data.draw(parts(balanced(owners, primaries)))
    now = moved(owners, part)
    rest = balanced(now, others)
    assert is_even(moved(now, rest), others)
    assert total(rest) <= fewest(owners, others) + total(part)


@given(OWNERSHIPS, MASTERS, st.permutations(OLD))
def test_the_same_world_has_the_same_plan(owners: dict[str, Slots], primaries: list[str], order: list[str]) -> None:
    shuffled = {node: owners[node] for node in [*order, ""] if node in owners}
    assert balanced(shuffled, primaries) == balanced(owners, primaries)


@given(OWNERSHIPS, MASTERS)
def test_moves_between_different_nodes_are_beside_each_other(owners: dict[str, Slots], primaries: list[str]) -> None:
    moves = balanced(owners, primaries)
    busy: set[str] = set()
    for number, move in enumerate(moves):
        if busy & {move.source, move.target}:  # a new turn: nobody later would have fitted into the one before
            assert all(busy & {later.source, later.target} for later in moves[number:])
            busy = set()
        busy |= {move.source, move.target}


@pytest.mark.parametrize(
    ("before", "after", "least"), [(3, 4, 4096), (4, 3, 4096), (3, 7, 9361), (7, 3, 9361), (5, 5, 0)]
)
def test_growing_and_shrinking_move_what_they_must(before: int, after: int, least: int) -> None:
    owners = moved({"": Slots.all()}, balanced({"": Slots.all()}, [f"node-{number}" for number in range(before)]))
    del owners[""]
    moves = balanced(owners, [f"node-{number}" for number in range(after)])
    assert total(moves) == least == fewest(owners, [f"node-{number}" for number in range(after)])


def test_a_master_that_goes_again_gives_the_slots_back_to_their_neighbours() -> None:
    grown = moved(THREE, balanced(THREE, ["a", "b", "c", "d"]))
    shrunk = moved(grown, balanced(grown, ["a", "b", "c"]))
    assert all(len(THREE[node] - shrunk[node]) <= 1 for node in THREE), "but for the one that does not divide evenly"


def test_who_fits_whom_exactly_gives_to_them_alone() -> None:
    cuts = [0, 2461, 5922, 10384, 12384, SLOTS]  # a lacks 3000, b 2000, c 1000; d has 2000, e 4000
    owners = {node: Slots.of(range(*run)) for node, run in zip("abcde", pairwise(cuts), strict=True)}
    pairs = {(move.source, move.target) for move in balanced(owners, ["a", "b", "c"])}
    assert pairs == {("d", "b"), ("e", "a"), ("e", "c")}


def test_what_is_given_is_cut_off_beside_what_the_target_has() -> None:
    owners = {"a": Slots.of(range(10000)), "b": Slots.of(range(10000, SLOTS))}
    (move,) = balanced(owners, ["a", "b"])
    assert str(move.slots) == "8192-9999"
    owners = {"b": Slots.of(range(6384)), "a": Slots.of(range(6384, SLOTS))}
    (move,) = balanced(owners, ["a", "b"])
    assert str(move.slots) == "6384-8191"


def test_growing_and_shrinking_again_and_again_leaves_few_ranges() -> None:
    owners = {"": Slots.all()}
    for count in [3, 4, 3, 7, 3, 5, 6, 4, 8, 3, 10, 3, 4, 3] * 5:
        owners = moved(owners, balanced(owners, [f"node-{number}" for number in range(count)]))
        assert sum(len(slots.ranges) for slots in owners.values()) <= 6 * count


@given(OWNERSHIPS, MASTERS)
def test_who_only_drains_gives_everything_to_those_with_fewest(owners: dict[str, Slots], primaries: list[str]) -> None:
    moves = drained(owners, primaries)
    after = moved(owners, moves)
    assert every_slot_has_one_owner(after)
    assert set(sizes(after)) <= set(primaries)
    assert total(moves) == sum(len(owners[node]) for node in owners if node not in primaries)
    given = {move.target for move in moves}
    least = min(len(after.get(node, Slots())) for node in primaries)
    assert all(len(after[node]) <= least + 1 for node in given)


def test_a_slot_without_an_owner_is_no_matter_of_moves() -> None:
    with pytest.raises(CannotMove, match="Slots 7 9-10 have no owner"):
        balanced({"a": Slots.all() - Slots.parse("7 9-10")}, ["a", "b"])


def test_a_slot_with_two_owners_is_no_matter_of_moves() -> None:
    with pytest.raises(CannotMove, match="Slots 5-6 have two owners, a and b"):
        balanced({"a": Slots.all(), "b": Slots.parse("5-6")}, ["a", "b"])


def test_slots_need_a_master() -> None:
    with pytest.raises(CannotMove, match="over 0 masters"):
        balanced({"a": Slots.all()}, [])
    with pytest.raises(CannotMove, match="over 0 masters"):
        drained({"a": Slots.all()}, [])
