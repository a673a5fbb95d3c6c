"""Which slots go where: the fewest that must. Pure.

Each plan follows from who owns what now, and from nothing else: however many of the moves came about before somebody
stopped, the next plan asks for the rest of them and no more. A slot is never moved on the way to somewhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from operators.redis.slots.hash_slots import SLOTS, Slots

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Move:
    """Slots that go from one master to another.

    Attributes:
        source: id of the node that owns them.
        target: id of the node that is to own them.
    """

    source: str
    target: str
    slots: Slots


@dataclass(frozen=True, slots=True)
class Strategy:
    """One of spec.updateStrategy.assignStrategies.

    Attributes:
        slots: how many the new master is to have.
        sources: ids of the nodes that give them.
    """

    slots: int
    sources: tuple[str, ...]


class CannotMove(ValueError):
    """Slots have no owner, or two: that is mended first, and never by moves."""


class CannotAssign(ValueError):
    """A manual assignment that cannot be followed to the letter; the message says why, with the numbers."""


def balanced(owners: Mapping[str, Slots], primaries: Sequence[str]) -> tuple[Move, ...]:
    """The fewest moves after which the masters own all slots, and none more than one slot more than another.

    A master that stays gives only what it has too much, one that is not among `masters` gives everything, and both give
    straight to who keeps it.

    Args:
        owners: what each node owns now.
        masters: ids of those that are to own the slots; among equals, the earlier ones give less and are given more.

    Returns:
        One move for each pair, those between different nodes beside each other, so that they can run at once.

    Raises:
        CannotMove: a slot has no owner or two, or there is nobody to own any.
    """
    _require_one_owner_each(owners)
    desired = shares(owners, primaries)
    have = {node: len(slots) for node, slots in owners.items()}
    surplus = {node: have[node] - desired.get(node, 0) for node in sorted(have) if have[node] > desired.get(node, 0)}
    need = {node: share - have.get(node, 0) for node, share in desired.items() if share > have.get(node, 0)}
    return _chosen(owners, _pairs(surplus, need))


def shares(owners: Mapping[str, Slots], primaries: Sequence[str]) -> dict[str, int]:
    """How many slots each master is to own; who owns most now keeps what does not divide evenly, which moves least.

    Raises:
        CannotMove: there are fewer than one master, or more than slots.
    """
    distinct = tuple(dict.fromkeys(primaries))
    if not 0 < len(distinct) <= SLOTS:
        raise CannotMove(f"{SLOTS} slots cannot be spread over {len(distinct)} masters.")
    share, left = divmod(SLOTS, len(distinct))
    richest = sorted(distinct, key=lambda node: -len(owners.get(node, Slots())))[:left]
    return {node: share + (node in richest) for node in distinct}


def drained(owners: Mapping[str, Slots], primaries: Sequence[str]) -> tuple[Move, ...]:
    """The fewest moves after which nobody but the masters owns slots: the others give all, the masters give nothing.

    Who has the fewest slots is given them; so none that is given some has more than one more than another in the end.

    Returns:
        As `balanced`.

    Raises:
        CannotMove: as of `balanced`.
    """
    _require_one_owner_each(owners)
    staying = sorted(dict.fromkeys(primaries), key=lambda node: len(owners.get(node, Slots())))
    if not staying:
        raise CannotMove(f"{SLOTS} slots cannot be spread over 0 masters.")
    have = [len(owners.get(node, Slots())) for node in staying]
    surplus = {node: len(owners[node]) for node in sorted(owners) if owners[node] and node not in staying}
    level, takers = sum(surplus.values()), 0  # as water fills the deepest first
    while takers == 0 or (takers < len(staying) and level > takers * have[takers]):
        level += have[takers]
        takers += 1
    share, left = divmod(level, takers)
    need = {node: share + (number < left) - have[number] for number, node in enumerate(staying[:takers])}
    return _chosen(owners, _pairs(surplus, {node: lacking for node, lacking in need.items() if lacking}))


def assigned(
    owners: Mapping[str, Slots], strategies: Sequence[Strategy], new_masters: Sequence[str]
) -> tuple[Move, ...]:
    """What the strategies say, to the letter: each new master in turn takes so many slots from the nodes named.

    Each node named gives in proportion to what it owns. What a new master owns already counts as taken, so that the
    sum is right after an interruption, too; so that each node gives what it was to give, go on with `remaining`.

    Returns:
        As `balanced`.

    Raises:
        CannotAssign: to the letter it cannot be done; then nothing of it is.
        CannotMove: a slot has two owners.
    """
    _require_one_owner_each(owners, all_of_them=False)
    if len(strategies) != len(new_masters):
        raise CannotAssign(
            f"spec.updateStrategy.assignStrategies has {_count(len(strategies), 'entry', 'entries')}, and "
            f"{_count(len(new_masters), 'new master is', 'new masters are')} to take slots. Give one for each, in turn."
        )
    left = {node: len(slots) for node, slots in owners.items() if slots}
    pairs: list[tuple[str, str, int]] = []
    for number, (strategy, primary) in enumerate(zip(strategies, new_masters, strict=True)):
        where = f"spec.updateStrategy.assignStrategies[{number}]"
        _require_sources(where, strategy, owners, new_masters)
        count = max(0, strategy.slots - len(owners.get(primary, Slots())))
        _require_enough(where, strategy, count, owners, left)
        for source, part in _in_proportion(count, {source: left[source] for source in strategy.sources}).items():
            left[source] -= part
            pairs.append((source, primary, part))
    return _chosen(owners, pairs)


def remaining(moves: Iterable[Move], owners: Mapping[str, Slots]) -> tuple[Move, ...]:
    """What is yet to be done of moves that were planned before.

    Whoever owns a slot now gives it: after a failover that is another node than was planned. Slots without an owner
    are left out.
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
    """Who owns what once the moves have come about."""
    after = dict(owners)
    for move in moves:
        after[move.source] -= move.slots
        after[move.target] = after.get(move.target, Slots()) | move.slots
    return after


def _require_one_owner_each(owners: Mapping[str, Slots], *, all_of_them: bool = True) -> None:
    covered = Slots()
    for node, slots in sorted(owners.items()):
        if twice := covered & slots:
            other = next(other for other in sorted(owners) if owners[other] & twice)
            raise CannotMove(f"Slots {owners[other] & twice} have two owners, {other} and {node}.")
        covered |= slots
    if all_of_them and (nobody := Slots.all() - covered):
        raise CannotMove(f"Slots {nobody} have no owner.")


def _require_sources(where: str, strategy: Strategy, owners: Mapping[str, Slots], new_masters: Sequence[str]) -> None:
    named = strategy.sources
    if not named:
        raise CannotAssign(f"{where}.fromReplicas names no node.")
    if twice := [source for source in dict.fromkeys(named) if named.count(source) > 1]:
        raise CannotAssign(f"{where}.fromReplicas names {', '.join(twice)} more than once. Name each node once.")
    for source in named:
        if source in new_masters:
            raise CannotAssign(f"{where}.fromReplicas names {source}, which is itself new and is to take slots.")
        if not owners.get(source):
            primaries = ", ".join(f"{node} ({len(owners[node])})" for node in sorted(owners) if owners[node])
            raise CannotAssign(
                f"{where}.fromReplicas names {source}, which owns no slots. These do: {primaries or 'none'}."
            )


def _require_enough(
    where: str, strategy: Strategy, count: int, owners: Mapping[str, Slots], left: Mapping[str, int]
) -> None:
    available = [left[source] for source in strategy.sources]
    if count <= sum(available):
        return
    owned = [len(owners[source]) for source in strategy.sources]
    spoken_for = sum(owned) - sum(available)
    one = len(owned) == 1
    raise CannotAssign(
        f"{where} asks {count} slots from node{'' if one else 's'} {', '.join(strategy.sources)}, which "
        + (f"owns {owned[0]}" if one else f"own {' + '.join(map(str, owned))} = {sum(owned)}")
        + (f", of which earlier entries take {spoken_for}" if spoken_for else "")
        + ". Lower slots, or name more nodes in fromReplicas."
    )


def _in_proportion(count: int, owned: Mapping[str, int]) -> dict[str, int]:
    """`count` split in proportion to what each owns, exactly: the largest remainders are rounded up."""
    total = sum(owned.values())
    parts = {node: count * own // total for node, own in owned.items()} if total else dict(owned)
    by_remainder = sorted(parts, key=lambda node: -(count * owned[node] % total))
    for node in by_remainder[: count - sum(parts.values())]:
        parts[node] += 1
    return parts


def _pairs(surplus: Mapping[str, int], need: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Who gives how many to whom, in few pairs: first who fit each other exactly, then the largest to the largest."""
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


def _chosen(owners: Mapping[str, Slots], pairs: Iterable[tuple[str, str, int]]) -> tuple[Move, ...]:
    """Which slots these are: such that everybody's stay in few ranges."""
    after, moves = dict(owners), []
    for source, target, count in pairs:
        if count:
            moves.append(Move(source, target, _choice(after[source], count, after.get(target, Slots()))))
            after = moved(after, moves[-1:])
    return _in_turns(moves)


def _choice(available: Slots, count: int, beside: Slots) -> Slots:
    """`count` of the slots: whole ranges, first those beside the target's own; at most one is cut in two."""
    runs = beside.ranges
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
    """The same moves, with as many as possible beside each other that share no node."""
    return tuple(chain.from_iterable(rounds(moves, lambda move: {move.source, move.target})))


def rounds(moves: Sequence[T], ends: Callable[[T], set[str]]) -> Iterator[list[T]]:
    """Split moves into as few rounds as needed so that no node takes part twice in one.

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
