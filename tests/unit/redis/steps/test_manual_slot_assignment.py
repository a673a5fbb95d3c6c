"""What is assigned by hand is exact, or refused with the numbers; and whoever stops half-way is gone on from."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import (
    CannotAssign,
    Strategy,
    assigned,
    moved,
    remaining,
)
from tests.unit.redis.slots.owning import THREE, every_slot_has_one_owner, owning, parts, sizes, total

STRATEGIES = st.lists(
    st.builds(
        Strategy,
        st.integers(0, 9000),
        st.lists(st.sampled_from(["a", "b", "c", "x"]), min_size=0, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


def owed(strategy: Strategy, left: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The bounds of what each gives: its exact proportion, rounded down and up."""
    everything = sum(left[source] for source in strategy.sources)
    return {
        source: (strategy.slots * left[source] // everything, math.ceil(strategy.slots * left[source] / everything))
        for source in strategy.sources
        if everything
    }


def wrong(strategy: Strategy, earlier: list[Strategy]) -> bool:
    """Whether a strategy can be refused: it is wrong in itself, or those before it may have taken too much."""
    named = strategy.sources
    if not named or len(set(named)) < len(named) or "x" in named:
        return True
    return strategy.slots + sum(each.slots for each in earlier) > sum(len(THREE[source]) for source in named)


@settings(max_examples=300)
@given(STRATEGIES)
def test_a_manual_assignment_is_exact_or_refused(strategies: list[Strategy]) -> None:
    primaries = [f"new-{number}" for number in range(len(strategies))]
    try:
        moves = assigned(THREE, strategies, primaries)
    except CannotAssign:
        moves = None
    event("refused" if moves is None else "followed")
    if moves is None:
        assert any(wrong(strategy, strategies[:number]) for number, strategy in enumerate(strategies))
        return
    after = moved(THREE, moves)
    assert every_slot_has_one_owner(after)
    assert {node: len(after.get(node, Slots())) for node in primaries} == {
        primary: strategy.slots for primary, strategy in zip(primaries, strategies, strict=True)
    }
    left = sizes(THREE)
    for strategy, primary in zip(strategies, primaries, strict=True):
        given_by = dict.fromkeys(strategy.sources, 0)
        for move in moves:
            if move.target == primary:
                given_by[move.source] += len(move.slots)  # a KeyError: it was not named
        for source, (low, high) in owed(strategy, left).items():
            assert low <= given_by[source] <= high
            left[source] -= given_by[source]


@given(
    st.lists(st.tuples(st.integers(1, 2500), st.sets(st.sampled_from("abc"), min_size=1)), min_size=1, max_size=2),
    st.data(),
)
def test_a_manual_assignment_that_stopped_half_way_ends_as_it_was_planned(
    wanted: list[tuple[int, set[str]]], data: st.DataObject
) -> None:
    strategies = [Strategy(slots, tuple(sorted(sources))) for slots, sources in wanted]
    primaries = [f"new-{number}" for number in range(len(strategies))]
    planned = assigned(THREE, strategies, primaries)
    now = moved(THREE, data.draw(parts(planned)))
    assert owning(moved(now, remaining(planned, now))) == owning(moved(THREE, planned))
    again = moved(now, assigned(now, strategies, primaries))  # even where what was planned is not known any more
    assert [len(again[primary]) for primary in primaries] == [strategy.slots for strategy in strategies]


def test_after_a_failover_the_one_who_took_over_gives_what_is_left() -> None:
    planned = assigned(THREE, [Strategy(2000, ("a",))], ["new"])
    half = planned[0].slots.first(700)
    now = {"heir": THREE["a"] - half, "b": THREE["b"], "c": THREE["c"], "new": half}
    (rest,) = remaining(planned, now)
    assert (rest.source, rest.target, rest.slots) == ("heir", "new", planned[0].slots - half)


def test_what_is_done_is_not_asked_for_again() -> None:
    planned = assigned(THREE, [Strategy(2000, ("a", "b"))], ["new"])
    assert remaining(planned, moved(THREE, planned)) == ()


@pytest.mark.parametrize(
    ("strategies", "primaries", "message"),
    [
        (
            [Strategy(6000, ("a",))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0] asks 6000 slots from node a, which owns 5461. "
            "Lower slots, or name more nodes in fromReplicas.",
        ),
        (
            [Strategy(12000, ("a", "c"))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0] asks 12000 slots from nodes a, c, which own 5461 + 5462 = 10923. "
            "Lower slots, or name more nodes in fromReplicas.",
        ),
        (
            [Strategy(5000, ("a",)), Strategy(1000, ("a",))],
            ["new", "newer"],
            "spec.updateStrategy.assignStrategies[1] asks 1000 slots from node a, which owns 5461, of which earlier "
            "entries take 5000. Lower slots, or name more nodes in fromReplicas.",
        ),
        (
            [Strategy(10, ("a", "nodeId3"))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0].fromReplicas names nodeId3, which owns no slots. "
            "These do: a (5461), b (5461), c (5462).",
        ),
        (
            [Strategy(10, ("a", "b", "a"))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0].fromReplicas names a more than once. Name each node once.",
        ),
        ([Strategy(10, ())], ["new"], "spec.updateStrategy.assignStrategies[0].fromReplicas names no node."),
        (
            [Strategy(10, ("a",)), Strategy(10, ("new",))],
            ["new", "newer"],
            "spec.updateStrategy.assignStrategies[1].fromReplicas names new, which is itself new and is to take slots.",
        ),
        (
            [Strategy(10, ("a",))],
            ["new", "newer"],
            "spec.updateStrategy.assignStrategies has 1 entry, and 2 new masters are to take slots. "
            "Give one for each, in turn.",
        ),
        (
            [Strategy(10, ("a",)), Strategy(10, ("a",))],
            ["new"],
            "spec.updateStrategy.assignStrategies has 2 entries, and 1 new master is to take slots. "
            "Give one for each, in turn.",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_numbers(
    strategies: list[Strategy], primaries: list[str], message: str
) -> None:
    with pytest.raises(CannotAssign) as refused:
        assigned(THREE, strategies, primaries)
    assert str(refused.value) == message


def test_slots_are_assigned_in_proportion_and_in_turn() -> None:
    moves = assigned(THREE, [Strategy(2000, ("a",)), Strategy(1000, ("b", "c"))], ["new", "newer"])
    assert {(move.source, move.target): len(move.slots) for move in moves} == {
        ("a", "new"): 2000,
        ("b", "newer"): 500,
        ("c", "newer"): 500,
    }


def test_a_manual_assignment_needs_only_its_sources_to_be_covered() -> None:
    owners = {**THREE, "c": THREE["c"] - Slots.of(16000)}
    assert total(assigned(owners, [Strategy(2000, ("a",))], ["new"])) == 2000


def test_ranges_beside_what_the_target_has_go_first() -> None:
    owners = {"a": Slots.parse("0-99 200-259 300-339"), "b": Slots.parse("260-299")}
    (move,) = assigned(owners, [Strategy(140, ("a",))], ["b"])
    assert str(move.slots) == "200-259 300-339"
