"""Plans moves of slots: the minimum number. Pure.

Each plan follows only from the current owners: if earlier moves were interrupted, the next plan contains the rest of
them and no more. A slot is never moved via another node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from operators.redis.slots.hash_slots import SLOTS, Slots

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Move:
    """Slots that move from one primary to another.

    Attributes:
        source: id of the owner.
        target: id of the new owner.
    """

    source: str
    target: str
    slots: Slots


@dataclass(frozen=True, slots=True, order=True)
class Doubt:
    """A key of which the target of a move may have an outdated copy, or still get one, because MIGRATE timed out.

    Attributes:
        key: SHA-1 of the key, in hexadecimal: keys are of any length, and may be confidential.
        value: SHA-1 of the serialized value that was sent, in hexadecimal.
    """

    slot: int
    key: str
    value: str

    @classmethod
    def of(cls, slot: int, key: bytes, value: str) -> Doubt:
        return cls(slot, hashlib.sha1(key, usedforsecurity=False).hexdigest(), value)


@dataclass(frozen=True, slots=True)
class RecordedMove:
    """Slots that the status records as moving.

    Attributes:
        source: id of the primary that gives them; after a failover the one that took over.
        target: id of the primary that receives them; after a failover the one that took over.
        promoted: whether a replica took over from the first source.
        doubts: keys of these slots that are in doubt.
    """

    source: str
    target: str
    slots: Slots
    promoted: bool = False
    doubts: frozenset[Doubt] = frozenset()

    def within(self, slots: Slots) -> RecordedMove:
        """Return the part of the move that is about these slots."""
        doubts = frozenset(doubt for doubt in self.doubts if doubt.slot in slots)
        return replace(self, slots=self.slots & slots, doubts=doubts)


@dataclass(frozen=True, slots=True, order=True)
class RecordedJob:
    """A migration job of the servers that the operator started.

    Attributes:
        node: id of the node that runs it.
        name: name or id that the node gave it.
    """

    node: str
    name: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """One entry of spec.updateStrategy.assignStrategies.

    Attributes:
        slots: number of slots of the new primary.
        sources: ids of the nodes that give them.
    """

    slots: int
    sources: tuple[str, ...]


class CannotMove(ValueError):
    """Slots have no owner, or two: that is repaired first, and never by moves."""


class CannotAssign(ValueError):
    """A manual assignment that cannot be followed exactly; the message contains the numbers."""


NONE_REFUSED: Mapping[str, Slots] = {}


def balanced(
    owners: Mapping[str, Slots], primaries: Sequence[str], refused: Mapping[str, Slots] = NONE_REFUSED
) -> tuple[Move, ...]:
    """Return the minimum moves after which the primaries own all slots, evenly (plus or minus one).

    A primary that stays gives only its surplus, other nodes give all their slots, and both directly to the new
    owner.

    Args:
        owners: slots that each node owns now.
            primaries: ids of the nodes that are to own the slots; among equals, earlier ones give fewer and receive
            more.
        refused: slots that must not move to a node, by its id; fewer move, if the others do not suffice.

    Returns:
        One move for each pair, ordered so that moves between different nodes can run in parallel.

    Raises:
        CannotMove: a slot has no owner or two, or there is no primary.
    """
    _require_one_owner_each(owners)
    desired = shares(owners, primaries)
    have = {node: len(slots) for node, slots in owners.items()}
    surplus = {node: have[node] - desired.get(node, 0) for node in sorted(have) if have[node] > desired.get(node, 0)}
    need = {node: share - have.get(node, 0) for node, share in desired.items() if share > have.get(node, 0)}
    return _chosen(owners, _pairs(surplus, need), refused)


def shares(owners: Mapping[str, Slots], primaries: Sequence[str]) -> dict[str, int]:
    """Return the number of slots of each primary; the remainder goes to the largest owners, which minimizes moves.

    Raises:
        CannotMove: there is no primary, or there are more than slots.
    """
    distinct = tuple(dict.fromkeys(primaries))
    if not 0 < len(distinct) <= SLOTS:
        raise CannotMove(f"{SLOTS} slots cannot be spread over {len(distinct)} primaries.")
    share, left = divmod(SLOTS, len(distinct))
    richest = sorted(distinct, key=lambda node: -len(owners.get(node, Slots())))[:left]
    return {node: share + (node in richest) for node in distinct}


def drained(
    owners: Mapping[str, Slots], primaries: Sequence[str], refused: Mapping[str, Slots] = NONE_REFUSED
) -> tuple[Move, ...]:
    """Return the minimum moves after which only the primaries own slots: other nodes give all, primaries give none.

    The slots go to the primaries with the fewest, so that the receiving ones differ by at most one slot in the end.

    Returns:
        Moves as in `balanced`.

    Raises:
        CannotMove: see `balanced`.
    """
    _require_one_owner_each(owners)
    staying = sorted(dict.fromkeys(primaries), key=lambda node: len(owners.get(node, Slots())))
    if not staying:
        raise CannotMove(f"{SLOTS} slots cannot be spread over 0 primaries.")
    have = [len(owners.get(node, Slots())) for node in staying]
    surplus = {node: len(owners[node]) for node in sorted(owners) if owners[node] and node not in staying}
    level, takers = sum(surplus.values()), 0  # fill the primaries with the fewest slots first
    while takers == 0 or (takers < len(staying) and level > takers * have[takers]):
        level += have[takers]
        takers += 1
    share, left = divmod(level, takers)
    need = {node: share + (number < left) - have[number] for number, node in enumerate(staying[:takers])}
    return _chosen(owners, _pairs(surplus, {node: lacking for node, lacking in need.items() if lacking}), refused)


def assigned(
    owners: Mapping[str, Slots],
    strategies: Sequence[Strategy],
    new_primaries: Sequence[str],
    refused: Mapping[str, Slots] = NONE_REFUSED,
) -> tuple[Move, ...]:
    """Return the moves of the strategies: each new primary, in order, receives its slots from the named nodes.

    Each named node gives in proportion to the slots that it owns. Slots that a new primary owns already count, so
    that the sum is right after an interruption; use `remaining` so that each node gives what was planned.

    Returns:
        Moves as in `balanced`.

    Raises:
        CannotAssign: the strategies cannot be followed exactly; then none is.
        CannotMove: a slot has two owners.
    """
    _require_one_owner_each(owners, all_of_them=False)
    if len(strategies) != len(new_primaries):
        raise CannotAssign(
            f"spec.updateStrategy.assignStrategies has {_count(len(strategies), 'entry', 'entries')}, and "
            f"{_count(len(new_primaries), 'new primary needs', 'new primaries need')} slots. Add one entry "
            "for each, in order."
        )
    left = {node: len(slots) for node, slots in owners.items() if slots}
    pairs: list[tuple[str, str, int]] = []
    for number, (strategy, primary) in enumerate(zip(strategies, new_primaries, strict=True)):
        path = f"spec.updateStrategy.assignStrategies[{number}]"
        _require_sources(path, strategy, owners, new_primaries)
        count = max(0, strategy.slots - len(owners.get(primary, Slots())))
        _require_enough(path, strategy, count, owners, left)
        for source, part in _in_proportion(count, {source: left[source] for source in strategy.sources}).items():
            left[source] -= part
            pairs.append((source, primary, part))
    return _chosen(owners, pairs, refused)


def remaining(moves: Iterable[Move], owners: Mapping[str, Slots]) -> tuple[Move, ...]:
    """Return what is left of moves that were planned before.

    The current owner gives a slot: after a failover that is another node than planned. Slots without an owner are
    omitted.
    """
    left = []
    for move in moves:
        missing = move.slots - owners.get(move.target, Slots())
        givers = sorted(
            (node for node in owners if owners[node] & missing), key=lambda node: (node != move.source, node)
        )
        left += [Move(node, move.target, owners[node] & missing) for node in givers]
    return _in_turns(left)


def moved(owners: Mapping[str, Slots], moves: Iterable[Move]) -> dict[str, Slots]:
    """Return the slots of each node once the moves are complete."""
    after = dict(owners)
    for move in moves:
        after[move.source] -= move.slots
        after[move.target] = after.get(move.target, Slots()) | move.slots
    return after


def _require_one_owner_each(owners: Mapping[str, Slots], *, all_of_them: bool = True) -> None:
    covered = Slots()
    for node, slots in sorted(owners.items()):
        if shared := covered & slots:
            other = next(other for other in sorted(owners) if owners[other] & shared)
            raise CannotMove(f"Slots {owners[other] & shared} have two owners, {other} and {node}.")
        covered |= slots
    if all_of_them and (unassigned := Slots.all() - covered):
        raise CannotMove(f"Slots {unassigned} have no owner.")


def _require_sources(path: str, strategy: Strategy, owners: Mapping[str, Slots], new_primaries: Sequence[str]) -> None:
    named = strategy.sources
    if not named:
        raise CannotAssign(f"{path}.fromReplicas names no node.")
    if repeated := [source for source in dict.fromkeys(named) if named.count(source) > 1]:
        raise CannotAssign(f"{path}.fromReplicas names {', '.join(repeated)} more than once. Name each node once.")
    for source in named:
        if source in new_primaries:
            raise CannotAssign(f"{path}.fromReplicas names {source}, which is a new primary itself.")
        if not owners.get(source):
            primaries = ", ".join(f"{node} ({len(owners[node])})" for node in sorted(owners) if owners[node])
            raise CannotAssign(
                f"{path}.fromReplicas names {source}, which owns no slots. Primaries with slots: {primaries or 'none'}."
            )


def _require_enough(
    path: str, strategy: Strategy, count: int, owners: Mapping[str, Slots], left: Mapping[str, int]
) -> None:
    available = [left[source] for source in strategy.sources]
    if count <= sum(available):
        return
    owned = [len(owners[source]) for source in strategy.sources]
    taken = sum(owned) - sum(available)
    one = len(owned) == 1
    raise CannotAssign(
        f"{path} needs {count} slots from node{'' if one else 's'} {', '.join(strategy.sources)}, which "
        + (f"owns {owned[0]}" if one else f"own {' + '.join(map(str, owned))} = {sum(owned)}")
        + (f", of which earlier entries take {taken}" if taken else "")
        + ". Lower slots, or add nodes to fromReplicas."
    )


def _in_proportion(count: int, owned: Mapping[str, int]) -> dict[str, int]:
    """Return `count` split exactly in proportion to the owned slots: the largest remainders are rounded up."""
    total = sum(owned.values())
    parts = {node: count * own // total for node, own in owned.items()} if total else dict(owned)
    by_remainder = sorted(parts, key=lambda node: -(count * owned[node] % total))
    for node in by_remainder[: count - sum(parts.values())]:
        parts[node] += 1
    return parts


def _pairs(surplus: Mapping[str, int], need: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return pairs of a source and a target with a number of slots: first exact matches, then the largest to the
    largest.
    """
    givers = sorted(surplus.items(), key=lambda each: -each[1])
    takers = sorted(need.items(), key=lambda each: -each[1])
    pairs, open_givers = [], []
    for giver, count in givers:
        fitting = next((taker for taker in takers if taker[1] == count), None)
        if fitting is None:
            open_givers.append((giver, count))
            continue
        takers.remove(fitting)
        pairs.append((giver, fitting[0], count))
    for giver, surplus_left in open_givers:
        count = surplus_left
        while count:
            taker, lacking = takers.pop(0)
            part = min(count, lacking)
            pairs.append((giver, taker, part))
            count -= part
            if lacking > part:
                takers.insert(0, (taker, lacking - part))
    return pairs


def _chosen(
    owners: Mapping[str, Slots], pairs: Iterable[tuple[str, str, int]], refused: Mapping[str, Slots]
) -> tuple[Move, ...]:
    """Select the slots of each pair, so that the slots of each node stay in few ranges."""
    after, moves = dict(owners), []
    for source, target, count in pairs:
        available = after[source] - refused.get(target, Slots())
        if part := min(count, len(available)):
            moves.append(Move(source, target, _choice(available, part, after.get(target, Slots()))))
            after = moved(after, moves[-1:])
    return _in_turns(moves)


def _choice(available: Slots, count: int, adjacent: Slots) -> Slots:
    """Select `count` slots: whole ranges, first those adjacent to the target's slots; at most one range is cut."""
    runs = adjacent.ranges
    starts, stops = {run.start for run in runs}, {run.stop for run in runs}

    def apart(run: range) -> bool:
        return run.start not in stops and run.stop not in starts

    taken, longer = [], []
    for run in sorted(available.ranges, key=lambda run: (apart(run), -len(run), run.start)):
        if len(run) <= count:
            taken.append(run)
            count -= len(run)
        else:
            longer.append(run)
    if count:
        run = min(longer, key=lambda run: (apart(run), len(run), run.start))
        at_its_end = run.stop in starts and run.start not in stops
        taken.append(run[-count:] if at_its_end else run[:count])
    return Slots.of(*taken)


def _in_turns(moves: Sequence[Move]) -> tuple[Move, ...]:
    """Order the moves so that as many consecutive ones as possible share no node."""
    return tuple(chain.from_iterable(rounds(moves, lambda move: {move.source, move.target})))


def rounds(moves: Sequence[T], ends: Callable[[T], set[str]]) -> Iterator[list[T]]:
    """Split moves into as few batches as needed so that no node takes part twice in one.

    Args:
        ends: ids of the two nodes of a move.
    """
    while moves:
        busy: set[str] = set()
        now: list[T] = []
        later: list[T] = []
        for move in moves:
            if busy & ends(move):
                later.append(move)
            else:
                now.append(move)
                busy |= ends(move)
        yield now
        moves = later


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
