"""Acknowledged states of each key of `FakeRedis`, and which of them clients may find.

The budget of allowed loss is kept by key. Normally only the last acknowledged state of a key may be found. When the
process of its primary ends, or a replica is elected while the primary is cut off, the budget grows down to the newest
state that

- a replica had that could be elected (Redis replicates asynchronously), or without such a replica
- the primary's own disk has (a process that ends loses nothing of its log, see `Process.persistent`), or
- any other disk.

Nothing older may be found, ever, and no deleted key. The next acknowledged write of the key, or its copy at all
replicas, ends the budget.

A slot that is moved key by key can lose its marks with its source (a promoted replica has none before Valkey 8). Then
the present owner does not find a key that the target has. That is not a loss while the target keeps it; if a client
writes the key again, both are kept, as two branches, until an end that reports them (`Ledger.unresolved`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simulator.redis.client import Entry


class State(NamedTuple):
    """An acknowledged state of a key. It never changes, so that forks of a world share it.

    Attributes:
        number: number of the write.
        entry: value; None if the write deleted the key.
        before: the state before; None for the first one.
    """

    number: int
    entry: Entry | None
    before: State | None

    def __deepcopy__(self, _: Any) -> State:
        return self


NEVER = State(0, None, None)
"""The state of a key before its first write."""


@dataclass(slots=True)
class Branch:
    """One line of acknowledged states.

    Attributes:
        head: last acknowledged state.
        floor: number of the oldest state that may be found; 0 if the key may be missing.
    """

    head: State
    floor: int

    def states(self, *, all_states: bool = False) -> Iterator[State]:
        """Yield the states that may be found, newest first; or all."""
        state: State | None = self.head
        while state is not None and (all_states or state.number >= self.floor):
            yield state
            state = state.before
        if not self.floor or all_states:
            yield NEVER

    def found(self, entry: Entry | None, now: float) -> State | None:
        """Return the state that a value is, if it may be found."""
        if entry is self.head.entry and (entry is None or not entry.expires):
            return self.head
        entry = alive(entry, now)
        oldest = self.floor if entry is None else max(self.floor, entry.number)  # a state has the number of its entry
        state: State | None = self.head
        while state is not None and state.number >= oldest:
            known = state.entry
            if known is None or (known.expires and known.expires <= now):
                if entry is None:
                    return state
            elif entry is not None and known.number == entry.number:
                return state
            state = state.before
        return NEVER if entry is None and not self.floor else None

    def lower(self, copies: Iterable[Entry | None], now: float) -> bool:
        """Extend the budget down to the newest state among copies; return whether it grew."""
        copies = [alive(copy, now) for copy in copies]
        numbers = {copy.number for copy in copies if copy is not None}
        newest = next(
            (
                state
                for state in self.states(all_states=True)
                if (copies and None in copies if alive(state.entry, now) is None else state.entry.number in numbers)  # type: ignore[union-attr]
            ),
            NEVER,
        )
        grew, self.floor = newest.number < self.floor, min(self.floor, newest.number)
        return grew


@dataclass(slots=True)
class Record:
    """Acknowledged states of one key.

    Attributes:
        branches: one line of states; several if clients wrote the key on two nodes (see the module).
        revived: numbers of values that may come back: a primary ended before a replica received that they had moved.
    """

    branches: list[Branch]
    revived: set[int] = field(default_factory=set)


def alive(entry: Entry | None, now: float) -> Entry | None:
    """Return a value unless it has expired."""
    return None if entry is not None and entry.expires and entry.expires <= now else entry
