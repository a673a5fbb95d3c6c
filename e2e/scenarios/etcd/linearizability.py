"""Check of the linearizability of a history of a key-value store. Pure.

A history is linearizable if its operations have an order that satisfies two conditions (Herlihy and Wing, 1990). The
order agrees with real time: an operation that ended before another began comes first. Each read returns the value of
the last write before it.

Finding such an order is hard in general, but checking a given one is easy. etcd provides one: each response contains a
revision, and every write has a revision of its own. This module checks in one pass that the order of the revisions
satisfies both conditions. A store that loses a write, returns a stale value, or reuses revisions fails the check.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a client.

    Attributes:
        key: key that was written or read.
        value: value that was written or read; None if a read found no value. No two writes have the same value.
        write: whether it is a write.
        called: start, in seconds of the clock that all clients share.
        returned: time of the response; None if it is unknown whether the operation took effect.
        revision: revision of a write, or of the store at a read; None if it is unknown.
        written: for a read, the revision at which its value was written; 0 if it found no value.
    """

    key: str
    value: str | None
    write: bool
    called: float
    returned: float | None = None
    revision: int | None = None
    written: int = 0

    def __str__(self) -> str:
        kind = "write" if self.write else "read"
        at = "unanswered" if self.returned is None else f"{self.called:.3f}-{self.returned:.3f} s"
        return f"{kind} {self.key}={self.value} at revision {self.revision} ({at})"


def violations(history: Iterable[Operation]) -> list[str]:
    """Return every contradiction to the order of the revisions; an empty list if the history is linearizable.

    A write without a response may have taken effect at any time after its call, or never. If its value was read, it
    took effect at the revision that the read returned.
    """
    operations = list(history)
    reads = [each for each in operations if not each.write and each.returned is not None]
    writes, found = _with_revisions([each for each in operations if each.write], reads)
    ordered = [each for each in writes if each.revision is not None]
    return [*found, *_twice(ordered), *_stale(ordered, reads), *_against_time([*ordered, *reads])]


def _with_revisions(writes: Sequence[Operation], reads: Sequence[Operation]) -> tuple[list[Operation], list[str]]:
    """Return the writes; those without a response get the revision at which their value was read."""
    by_value = {each.value: each for each in writes}
    found = []
    for read in reads:
        if read.value is None:
            continue
        write = by_value.get(read.value)
        if write is None or write.key != read.key:
            found.append(f"the value was never written: {read}")
        elif write.revision is None:
            by_value[read.value] = replace(write, revision=read.written)
        elif write.revision != read.written:
            found.append(f"a value has two revisions: {write}, and {read} has {read.written}")
    return list(by_value.values()), found


def _twice(writes: Iterable[Operation]) -> list[str]:
    first: dict[int | None, Operation] = {}
    pairs = [(first.setdefault(write.revision, write), write) for write in writes]
    return [f"two writes at one revision: {other}, and {write}" for other, write in pairs if other is not write]


def _stale(writes: Iterable[Operation], reads: Iterable[Operation]) -> list[str]:
    """Return reads that miss a write between the value that they returned and themselves."""
    by_key: dict[str, list[tuple[int, Operation]]] = defaultdict(list)
    for write in writes:
        by_key[write.key].append((write.revision or 0, write))
    for of_key in by_key.values():
        of_key.sort(key=_revision)
    found = []
    for read in reads:
        of_key = by_key[read.key]
        before = bisect_right(of_key, read.revision or 0, key=_revision)
        if before and of_key[before - 1][0] > read.written:
            found.append(f"{read} misses {of_key[before - 1][1]}")
    return found


def _revision(pair: tuple[int, Operation]) -> int:
    return pair[0]


def _against_time(operations: Iterable[Operation]) -> list[str]:
    """Return operations ordered before one that had ended when they began."""
    by_call = sorted(operations, key=lambda each: each.called)
    by_return = sorted((each for each in by_call if each.returned is not None), key=lambda each: each.returned or 0.0)
    found, newest, ended = [], None, 0
    for each in by_call:
        while ended < len(by_return) and (by_return[ended].returned or 0.0) < each.called:
            over = by_return[ended]
            if newest is None or (over.revision or 0) > (newest.revision or 0):
                newest = over
            ended += 1
        if newest is None or newest.revision is None or each.revision is None:
            continue
        if each.revision < newest.revision or (each.write and each.revision == newest.revision):
            found.append(f"{each} comes in the order before {newest}, which had ended when it began")
    return found
