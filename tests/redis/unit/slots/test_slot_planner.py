"""The slot planner: the fewest moves, directly to the final owner, resumable after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import SLOTS, Slots
from operators.redis.slots.slot_planner import CannotMove, balanced, drained, moved, shares
from tests.redis.unit.slots.ownership import THREE, every_slot_has_one_owner, parts, sizes, total

OLD = [f"old-{number}" for number in range(7)]
NEW = [f"new-{number}" for number in range(4)]


@st.composite
def ownerships(draw: st.DrawFn) -> dict[str, Slots]:
    """Every slot is owned by one of several nodes, in a few or many ranges."""
    nodes = draw(st.lists(st.sampled_from(OLD), min_size=1, max_size=7, unique=True))
    cuts = [0, *sorted(draw(st.sets(st.integers(1, SLOTS - 1), max_size=20))), SLOTS]
    owners = dict.fromkeys(nodes, Slots())
    for start, stop in pairwise(cuts):
        node = draw(st.sampled_from(nodes))
        owners[node] |= Slots.of(range(start, stop))
    return owners


@st.composite
def even_ownerships(draw: st.DrawFn) -> dict[str, Slots]:
    """Owners of the slots of a balanced cluster."""
    nodes = draw(st.lists(st.sampled_from(OLD), min_size=1, max_size=7, unique=True))
    return moved({"": Slots.all()}, balanced({"": Slots.all()}, nodes)) | {"": Slots()}


OWNERSHIPS = ownerships() | even_ownerships()
PRIMARIES = st.lists(st.sampled_from(OLD + NEW), min_size=1, max_size=7, unique=True)


def fewest(owners: Mapping[str, Slots], primaries: list[str]) -> int:
    """Return the lowest number of slots to move, over all choices of the primaries that own one slot more."""
    share, left = divmod(SLOTS, len(primaries))
    have = [len(owners.get(node, Slots())) for node in primaries]
    kept = max(
        sum(min(own, share + (number in with_extra)) for number, own in enumerate(have))
        for with_extra in combinations(range(len(primaries)), left)
    )
    return SLOTS - kept


def is_even(owners: Mapping[str, Slots], primaries: list[str]) -> bool:
    found = sizes(owners)
    return set(found) == set(primaries) and max(found.values()) - min(found.values()) <= 1


@given(OWNERSHIPS, PRIMARIES)
def test_balanced_slots_have_one_owner_each_and_are_even(owners: dict[str, Slots], primaries: list[str]) -> None:
    after = moved(owners, balanced(owners, primaries))
    assert every_slot_has_one_owner(after)
    assert is_even(after, primaries)
    assert sizes(after) == shares(owners, primaries)


@given(OWNERSHIPS, PRIMARIES)
def test_number_of_moved_slots_is_minimal(owners: dict[str, Slots], primaries: list[str]) -> None:
    assert total(balanced(owners, primaries)) == fewest(owners, primaries)


@given(OWNERSHIPS, PRIMARIES)
def test_each_slot_moves_once_from_its_owner_to_its_final_owner(owners: dict[str, Slots], primaries: list[str]) -> None:
    moves = balanced(owners, primaries)
    for move in moves:
        assert move.slots
        assert move.slots - owners[move.source] == Slots()
        assert move.target in primaries
    assert total(moves) == len(Slots.union(move.slots for move in moves))
    assert not {move.source for move in moves} & {move.target for move in moves}, (
        "no node is both a source and a target"
    )
    assert len({(move.source, move.target) for move in moves}) == len(moves), "one move for each pair"
    assert len(moves) <= max(0, len({move.source for move in moves}) + len({move.target for move in moves}) - 1)


@given(OWNERSHIPS, PRIMARIES)
def test_remaining_primary_never_falls_below_its_share(owners: dict[str, Slots], primaries: list[str]) -> None:
    now = dict(owners)
    for move in balanced(owners, primaries):
        now = moved(now, [move])
        for node in primaries:
            assert len(now.get(node, Slots())) >= min(len(owners.get(node, Slots())), SLOTS // len(primaries))


@given(OWNERSHIPS, PRIMARIES, st.data())
def test_interrupted_rebalance_continues_without_moving_a_slot_twice(
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


@given(OWNERSHIPS, PRIMARIES, PRIMARIES, st.data())
def test_changed_target_costs_at_most_the_undo_of_completed_moves(
    owners: dict[str, Slots], primaries: list[str], others: list[str], data: st.DataObject
) -> None:
    part = data.draw(parts(balanced(owners, primaries)))
    now = moved(owners, part)
    rest = balanced(now, others)
    assert is_even(moved(now, rest), others)
    assert total(rest) <= fewest(owners, others) + total(part)


@given(OWNERSHIPS, PRIMARIES, st.permutations(OLD))
def test_plan_does_not_depend_on_the_order_of_owners(
    owners: dict[str, Slots], primaries: list[str], order: list[str]
) -> None:
    shuffled = {node: owners[node] for node in [*order, ""] if node in owners}
    assert balanced(shuffled, primaries) == balanced(owners, primaries)


@given(OWNERSHIPS, PRIMARIES)
def test_independent_moves_are_grouped_for_parallel_migration(owners: dict[str, Slots], primaries: list[str]) -> None:
    moves = balanced(owners, primaries)
    busy: set[str] = set()
    for number, move in enumerate(moves):
        if busy & {move.source, move.target}:  # a new group: no later move fits into the one before
            assert all(busy & {later.source, later.target} for later in moves[number:])
            busy = set()
        busy |= {move.source, move.target}


@pytest.mark.parametrize(
    ("before", "after", "least"), [(3, 4, 4096), (4, 3, 4096), (3, 7, 9361), (7, 3, 9361), (5, 5, 0)]
)
def test_scaling_moves_the_minimum_number_of_slots(before: int, after: int, least: int) -> None:
    owners = moved({"": Slots.all()}, balanced({"": Slots.all()}, [f"node-{number}" for number in range(before)]))
    del owners[""]
    moves = balanced(owners, [f"node-{number}" for number in range(after)])
    assert total(moves) == least == fewest(owners, [f"node-{number}" for number in range(after)])


def test_slots_of_a_removed_primary_return_to_their_former_owners() -> None:
    grown = moved(THREE, balanced(THREE, ["a", "b", "c", "d"]))
    shrunk = moved(grown, balanced(grown, ["a", "b", "c"]))
    assert all(len(THREE[node] - shrunk[node]) <= 1 for node in THREE), "except one slot that does not divide evenly"


def test_source_with_an_exactly_matching_target_has_one_move() -> None:
    cuts = [0, 2461, 5922, 10384, 12384, SLOTS]  # a lacks 3000, b 2000, c 1000; d has 2000, e 4000
    owners = {node: Slots.of(range(*run)) for node, run in zip("abcde", pairwise(cuts), strict=True)}
    pairs = {(move.source, move.target) for move in balanced(owners, ["a", "b", "c"])}
    assert pairs == {("d", "b"), ("e", "a"), ("e", "c")}


def test_moved_slots_are_adjacent_to_the_slots_of_the_target() -> None:
    owners = {"a": Slots.of(range(10000)), "b": Slots.of(range(10000, SLOTS))}
    (move,) = balanced(owners, ["a", "b"])
    assert str(move.slots) == "8192-9999"
    owners = {"b": Slots.of(range(6384)), "a": Slots.of(range(6384, SLOTS))}
    (move,) = balanced(owners, ["a", "b"])
    assert str(move.slots) == "6384-8191"


def test_repeated_scaling_leaves_few_ranges() -> None:
    owners = {"": Slots.all()}
    for count in [3, 4, 3, 7, 3, 5, 6, 4, 8, 3, 10, 3, 4, 3] * 5:
        owners = moved(owners, balanced(owners, [f"node-{number}" for number in range(count)]))
        assert sum(len(slots.ranges) for slots in owners.values()) <= 6 * count


@given(OWNERSHIPS, PRIMARIES)
def test_drained_slots_go_to_the_primaries_with_the_fewest_slots(
    owners: dict[str, Slots], primaries: list[str]
) -> None:
    moves = drained(owners, primaries)
    after = moved(owners, moves)
    assert every_slot_has_one_owner(after)
    assert set(sizes(after)) <= set(primaries)
    assert total(moves) == sum(len(owners[node]) for node in owners if node not in primaries)
    given = {move.target for move in moves}
    least = min(len(after.get(node, Slots())) for node in primaries)
    assert all(len(after[node]) <= least + 1 for node in given)


def test_slot_without_an_owner_is_refused() -> None:
    with pytest.raises(CannotMove, match="Slots 7 9-10 have no owner"):
        balanced({"a": Slots.all() - Slots.parse("7 9-10")}, ["a", "b"])


def test_slot_with_two_owners_is_refused() -> None:
    with pytest.raises(CannotMove, match="Slots 5-6 have two owners, a and b"):
        balanced({"a": Slots.all(), "b": Slots.parse("5-6")}, ["a", "b"])


def test_rebalance_without_a_primary_is_refused() -> None:
    with pytest.raises(CannotMove, match="over 0 primaries"):
        balanced({"a": Slots.all()}, [])
    with pytest.raises(CannotMove, match="over 0 primaries"):
        drained({"a": Slots.all()}, [])


@given(OWNERSHIPS, PRIMARIES, st.sets(st.integers(0, SLOTS - 1), max_size=200), st.booleans())
def test_refused_slots_stay_where_they_are(
    owners: dict[str, Slots], primaries: list[str], some: set[int], drains: bool
) -> None:
    refused = {primaries[0]: Slots.of(*some)}
    moves = (drained if drains else balanced)(owners, primaries, refused)
    for move in moves:
        assert not move.slots & refused.get(move.target, Slots())
        assert not move.slots - owners[move.source]
    assert every_slot_has_one_owner(moved(owners, moves))
