"""Owners of slots, as data, for tests of slot moves."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from operators.redis.slots.hash_slots import SLOTS, Slots
from operators.redis.slots.slot_planner import Move

THREE = {
    "a": Slots.of(range(5461)),
    "b": Slots.of(range(5461, 10922)),
    "c": Slots.of(range(10922, SLOTS)),
}


def owning(owners: Mapping[str, Slots]) -> dict[str, Slots]:
    return {node: slots for node, slots in owners.items() if slots}


def sizes(owners: Mapping[str, Slots]) -> dict[str, int]:
    return {node: len(slots) for node, slots in owners.items() if slots}


def total(moves: tuple[Move, ...]) -> int:
    return sum(len(move.slots) for move in moves)


def every_slot_has_one_owner(owners: Mapping[str, Slots]) -> bool:
    return sum(map(len, owners.values())) == SLOTS == len(Slots.union(owners.values()))


@st.composite
def parts(draw: st.DrawFn, moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """Any part of the moves, as left by an interruption."""
    kept = []
    for move in moves:
        low, high = draw(st.integers(0, SLOTS)), draw(st.integers(0, SLOTS))
        done = move.slots & Slots.of(range(min(low, high), max(low, high)))
        kept.append(Move(move.source, move.target, draw(st.sampled_from([Slots(), done, done, move.slots]))))
    return tuple(kept)
