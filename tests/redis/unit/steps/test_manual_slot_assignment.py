"""Manual assignments are exact or refused with the numbers, and continue after an interruption."""

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
from tests.redis.unit.slots.ownership import THREE, every_slot_has_one_owner, owning, parts, sizes, total

STRATEGIES = st.lists(
    st.builds(
        Strategy,
        st.integers(0, 9000),
        st.lists(st.sampled_from(["a", "b", "c", "x"]), min_size=0, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


def exact_shares(strategy: Strategy, left: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Slots that each source gives: its exact proportion, rounded down and up."""
    everything = sum(left[source] for source in strategy.sources)
    return {
        source: (strategy.slots * left[source] // everything, math.ceil(strategy.slots * left[source] / everything))
        for source in strategy.sources
        if everything
    }


def may_be_refused(strategy: Strategy, earlier: list[Strategy]) -> bool:
    """Return whether a strategy may be refused: it is invalid, or earlier ones may leave too few slots."""
    named = strategy.sources
    if not named or len(set(named)) < len(named) or "x" in named:
        return True
    return strategy.slots + sum(each.slots for each in earlier) > sum(len(THREE[source]) for source in named)


@settings(max_examples=300)
@given(STRATEGIES)
def test_manual_assignment_is_exact_or_refused(strategies: list[Strategy]) -> None:
    primaries = [f"new-{number}" for number in range(len(strategies))]
    try:
        moves = assigned(THREE, strategies, primaries)
    except CannotAssign:
        moves = None
    event("refused" if moves is None else "assigned")
    if moves is None:
        assert any(may_be_refused(strategy, strategies[:number]) for number, strategy in enumerate(strategies))
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
                given_by[move.source] += len(move.slots)  # a KeyError means a source that the strategy does not name
        for source, (low, high) in exact_shares(strategy, left).items():
            assert low <= given_by[source] <= high
            left[source] -= given_by[source]


@given(
    st.lists(st.tuples(st.integers(1, 2500), st.sets(st.sampled_from("abc"), min_size=1)), min_size=1, max_size=2),
    st.data(),
)
def test_interrupted_manual_assignment_ends_as_planned(
    entries: list[tuple[int, set[str]]], data: st.DataObject
) -> None:
    strategies = [Strategy(slots, tuple(sorted(sources))) for slots, sources in entries]
    primaries = [f"new-{number}" for number in range(len(strategies))]
    planned = assigned(THREE, strategies, primaries)
    now = moved(THREE, data.draw(parts(planned)))
    assert owning(moved(now, remaining(planned, now))) == owning(moved(THREE, planned))
    again = moved(now, assigned(now, strategies, primaries))  # also without the recorded plan
    assert [len(again[primary]) for primary in primaries] == [strategy.slots for strategy in strategies]


def test_promoted_replica_gives_the_remaining_slots_after_a_failover() -> None:
    planned = assigned(THREE, [Strategy(2000, ("a",))], ["new"])
    half = planned[0].slots.first(700)
    now = {"promoted": THREE["a"] - half, "b": THREE["b"], "c": THREE["c"], "new": half}
    (rest,) = remaining(planned, now)
    assert (rest.source, rest.target, rest.slots) == ("promoted", "new", planned[0].slots - half)


def test_completed_assignment_leaves_no_moves() -> None:
    planned = assigned(THREE, [Strategy(2000, ("a", "b"))], ["new"])
    assert remaining(planned, moved(THREE, planned)) == ()


@pytest.mark.parametrize(
    ("strategies", "primaries", "message"),
    [
        (
            [Strategy(6000, ("a",))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0] needs 6000 slots from node a, which owns 5461. "
            "Lower slots, or add nodes to fromReplicas.",
        ),
        (
            [Strategy(12000, ("a", "c"))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0] needs 12000 slots from nodes a, c, which own 5461 + 5462 = 10923. "
            "Lower slots, or add nodes to fromReplicas.",
        ),
        (
            [Strategy(5000, ("a",)), Strategy(1000, ("a",))],
            ["new", "newer"],
            "spec.updateStrategy.assignStrategies[1] needs 1000 slots from node a, which owns 5461, of which earlier "
            "entries take 5000. Lower slots, or add nodes to fromReplicas.",
        ),
        (
            [Strategy(10, ("a", "nodeId3"))],
            ["new"],
            "spec.updateStrategy.assignStrategies[0].fromReplicas names nodeId3, which owns no slots. "
            "Primaries with slots: a (5461), b (5461), c (5462).",
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
            "spec.updateStrategy.assignStrategies[1].fromReplicas names new, which is a new primary itself.",
        ),
        (
            [Strategy(10, ("a",))],
            ["new", "newer"],
            "spec.updateStrategy.assignStrategies has 1 entry, and 2 new primaries need slots. "
            "Add one entry for each, in order.",
        ),
        (
            [Strategy(10, ("a",)), Strategy(10, ("a",))],
            ["new"],
            "spec.updateStrategy.assignStrategies has 2 entries, and 1 new primary needs slots. "
            "Add one entry for each, in order.",
        ),
    ],
)
def test_impossible_assignment_is_refused_with_the_numbers(
    strategies: list[Strategy], primaries: list[str], message: str
) -> None:
    with pytest.raises(CannotAssign) as refused:
        assigned(THREE, strategies, primaries)
    assert str(refused.value) == message


def test_slots_are_assigned_in_proportion_and_in_order() -> None:
    moves = assigned(THREE, [Strategy(2000, ("a",)), Strategy(1000, ("b", "c"))], ["new", "newer"])
    assert {(move.source, move.target): len(move.slots) for move in moves} == {
        ("a", "new"): 2000,
        ("b", "newer"): 500,
        ("c", "newer"): 500,
    }


def test_manual_assignment_requires_only_its_sources_to_be_covered() -> None:
    owners = {**THREE, "c": THREE["c"] - Slots.of(16000)}
    assert total(assigned(owners, [Strategy(2000, ("a",))], ["new"])) == 2000


def test_ranges_adjacent_to_slots_of_the_target_move_first() -> None:
    owners = {"a": Slots.parse("0-99 200-259 300-339"), "b": Slots.parse("260-299")}
    (move,) = assigned(owners, [Strategy(140, ("a",))], ["b"])
    assert str(move.slots) == "200-259 300-339"
