"""Whether what clients were told about keys with one writer each could be true. Pure.

Redis numbers nothing by itself, so the clients do: each key has one writer, which writes 1, 2, 3… to it, one after the
other, and gives the key up once a write was not answered. Then what a read may return lies between two numbers: the
last that was acknowledged, or seen by anybody, before the read began; and the last that was begun when it ended. That
is atomicity of a register with one writer (Lamport, 1986), and it is checked in one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a client.

    Attributes:
        key: what was written or read.
        number: what was written, or read; 0 where nothing was there to be read.
        write: whether it is a write.
        called: when it began, in seconds of the clock that all clients share.
        returned: when it was answered; None if nobody knows whether it happened.
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
"""Two moments of the clients' clock."""


def violations(history: Iterable[Operation]) -> list[str]:
    """What no store could have answered that forgets nothing and never goes back; nothing if one could."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        by_key[each.key].append(each)
    return [said for of_key in by_key.values() for said in _of_one_key(of_key)]


def lost(history: Iterable[Operation], finals: Iterable[Operation]) -> list[Operation]:
    """Acknowledged writes that are not there in the end.

    Args:
        finals: a read of each key after all is over.
    """
    left = {each.key: each.number for each in finals}
    return [each for each in history if each.write and each.returned is not None and each.number > left[each.key]]


def forgiving(history: Iterable[Operation], intervals: Sequence[Interval]) -> list[Operation]:
    """A history in which what was answered within these intervals binds nobody.

    For replication is asynchronous: with a master that crashes, the last that it acknowledged may be gone.
    """

    def bound(each: Operation) -> bool:
        return each.returned is None or not any(begin <= each.returned <= end for begin, end in intervals)

    return [each if bound(each) else replace(each, returned=None) for each in history if each.write or bound(each)]


def _of_one_key(history: Sequence[Operation]) -> list[str]:
    """Goes through the moments at which something becomes certain, or possible, in order."""
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
            found.append(f"nobody had begun to write what was read: {read}")
    return found
