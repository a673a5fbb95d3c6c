"""Whether what clients were told about a key-value store could have happened one after the other. Pure.

A history is linearizable if its operations have an order that agrees with real time (what ended before another began
comes first) and in which each read returns the last write before it (Herlihy and Wing, 1990). To find such an order is
hard in general; to check one is not. etcd names one: each answer bears a revision, every write has one of its own, and
a read is of a revision. So the order is claimed to be that of revisions, and this module checks the claim in one pass
over the history. A store that forgets a write, returns an old value, or counts its revisions anew breaks it.
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
        key: what was written or read.
        value: what was written, or read; None where nothing was there to be read. No two writes have the same value.
        write: whether it is a write.
        called: when it began, in seconds of the clock that all clients share.
        returned: when it was answered; None if nobody knows whether it happened.
        revision: the store's when it was carried out: for a write its own. None where it is not known.
        written: for a read, the revision at which its value was written; 0 where nothing was there.
    """

    key: str
    value: str | None
    write: bool
    called: float
    returned: float | None = None
    revision: int | None = None
    written: int = 0

    def __str__(self) -> str:
        what = "write" if self.write else "read"
        at = "unanswered" if self.returned is None else f"{self.called:.3f}-{self.returned:.3f} s"
        return f"{what} {self.key}={self.value} at revision {self.revision} ({at})"


def violations(history: Iterable[Operation]) -> list[str]:
    """What contradicts that operations happened in the order of their revisions; nothing if they could have.

    A write without an answer may have happened at any time after it was called, or never: if its value was read, then
    at the revision that the reader was told.
    """
    operations = list(history)
    reads = [each for each in operations if not each.write and each.returned is not None]
    writes, found = _placed([each for each in operations if each.write], reads)
    placed = [each for each in writes if each.revision is not None]
    return [*found, *_twice(placed), *_stale(placed, reads), *_against_time([*placed, *reads])]


def _placed(writes: Sequence[Operation], reads: Sequence[Operation]) -> tuple[list[Operation], list[str]]:
    """The writes, those that nobody answered at the revision where their value was read."""
    by_value = {each.value: each for each in writes}
    found = []
    for read in reads:
        if read.value is None:
            continue
        write = by_value.get(read.value)
        if write is None or write.key != read.key:
            found.append(f"nobody wrote what was read: {read}")
        elif write.revision is None:
            by_value[read.value] = replace(write, revision=read.written)
        elif write.revision != read.written:
            found.append(f"a value has two revisions: {write}, and {read} says {read.written}")
    return list(by_value.values()), found


def _twice(writes: Iterable[Operation]) -> list[str]:
    first: dict[int | None, Operation] = {}
    pairs = [(first.setdefault(write.revision, write), write) for write in writes]
    return [f"two writes at one revision: {other}, and {write}" for other, write in pairs if other is not write]


def _stale(writes: Iterable[Operation], reads: Iterable[Operation]) -> list[str]:
    """Reads that miss a write which is in the order between what they returned and themselves."""
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


def _revision(placed: tuple[int, Operation]) -> int:
    return placed[0]


def _against_time(operations: Iterable[Operation]) -> list[str]:
    """Operations that come in the order before one that had ended when they began."""
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
