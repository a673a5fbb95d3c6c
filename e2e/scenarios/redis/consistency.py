"""Consistency check of keys that have a single writer each. Pure.

Redis does not version its values, so the clients do: the writer of a key writes 1, 2, 3… to it in turn, and abandons
the key after an unanswered write. A read must return a number between two bounds. The lower one is the last number that
was acknowledged, or read by any client, before the read began. The upper one is the last number whose write began
before the read ended. This is atomicity of a single-writer register (Lamport, 1986), checked in one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of a client.

    Attributes:
        key: key that was written or read.
        number: value that was written or read; 0 for a missing key.
        write: whether it is a write.
        called: start, in seconds of the clock that all clients share.
        returned: time of the answer; None if it is unknown whether the operation took effect.
    """

    key: str
    number: int
    write: bool
    called: float
    returned: float | None = None

    def __str__(self) -> str:
        what = "write" if self.write else "read"
        at = "unanswered" if self.returned is None else f"{self.called:.3f}-{self.returned:.3f} s"
        return f"{what} {self.key}={self.number} ({at})"


Interval = tuple[float, float]
"""Start and end, in seconds of the clients' clock."""


def violations(history: Iterable[Operation]) -> list[str]:
    """Return the reads that no consistent store could have returned."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        by_key[each.key].append(each)
    return [violation for of_key in by_key.values() for violation in _of_one_key(of_key)]


def lost(history: Iterable[Operation], finals: Iterable[Operation]) -> list[Operation]:
    """Return the acknowledged writes that are missing at the end.

    Args:
        finals: a read of each key at the end.
    """
    left = {each.key: each.number for each in finals}
    return [each for each in history if each.write and each.returned is not None and each.number > left[each.key]]


def forgiving(history: Iterable[Operation], intervals: Sequence[Interval]) -> list[Operation]:
    """Return the history without the acknowledgements within these intervals.

    Replication is asynchronous: when a primary crashes, the writes that it acknowledged last may be lost.
    """

    def bound(each: Operation) -> bool:
        return each.returned is None or not any(begin <= each.returned <= end for begin, end in intervals)

    return [each if bound(each) else replace(each, returned=None) for each in history if each.write or bound(each)]


def _of_one_key(history: Sequence[Operation]) -> list[str]:
    """Check one key in order of the times at which values become certain or possible."""
    answered = [each for each in history if each.returned is not None]
    certain = sorted(answered, key=lambda each: each.returned or 0.0)
    begun = sorted((each for each in history if each.write), key=lambda each: each.called)
    found = []

    floor, passed = None, 0
    for read in sorted((each for each in answered if not each.write), key=lambda each: each.called):
        while passed < len(certain) and (certain[passed].returned or 0.0) < read.called:
            if floor is None or certain[passed].number > floor.number:
                floor = certain[passed]
            passed += 1
        if floor is not None and read.number < floor.number:
            found.append(f"{read} misses {floor}")

    newest, passed = 0, 0
    for read in (each for each in certain if not each.write):
        while passed < len(begun) and begun[passed].called < (read.returned or 0.0):
            newest = max(newest, begun[passed].number)
            passed += 1
        if read.number > newest:
            found.append(f"read before it was written: {read}")
    return found
