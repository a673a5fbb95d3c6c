"""Consistency check of keys that have a single writer each, with a budget of allowed loss. Pure.

A key is a register or a collection. The writer of a register writes 1, 2, 3… to it in turn, and abandons the key after
an unanswered write; a deletion takes a number, too. A read must return a number between two bounds. The lower one is
the last number that was acknowledged, or read by any client, before the read began. The upper one is the last number
whose write began before the read ended. This is atomicity of a single-writer register (Lamport, 1986).

A collection (counter, set, list, hash) counts its elements; a counter has a single one. Of each element, a read must
return at least what was acknowledged before it began, and at most what was sent before it ended. So an unanswered INCR
or LPUSH may or may not have counted.

Replication is asynchronous: a primary that dies may take with it what it acknowledged and had not yet replicated. That
is the budget, see `Death`. Nothing older may be missing, nothing of other shards, and no deletion may be undone.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from redis.crc import key_slot

EXPIRY_TOLERANCE_SECONDS = 1.0
"""Time after its expiry within which a key may still be read."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write of a client.

    Attributes:
        key: key that was written.
        number: position among the writes to the key, from 1; the value, if the key is a register.
        called: start, in seconds of the clock that all clients share.
        returned: time of the answer; None if it is unknown whether the write took effect.
        adds: number of each element that is added to a collection; None for a register, or a deletion.
        idempotent: whether adding an element again changes nothing, as in sets and hashes.
        deletes: whether the key is missing afterwards.
        delay: time in seconds after which the write takes effect: an expiry is a delayed deletion.
    """

    key: str
    number: int
    called: float
    returned: float | None = None
    adds: Mapping[str, int] | None = None
    idempotent: bool = False
    deletes: bool = False
    delay: float = 0.0

    @property
    def begins(self) -> float:
        """Time from which the write may have taken effect."""
        return self.called + self.delay

    @property
    def ends(self) -> float:
        """Time from which an acknowledged write has taken effect."""
        assert self.returned is not None
        return self.returned + (self.delay + EXPIRY_TOLERANCE_SECONDS if self.delay else 0.0)

    def __str__(self) -> str:
        what = "expiry" if self.delay else "deletion" if self.deletes else "write"
        added = f" of {_brief(self.adds)}" if self.adds else ""
        return f"{what} {self.number}{added} to {self.key} ({_interval(self.called, self.returned)})"


@dataclass(frozen=True, slots=True)
class Read:
    """Answered read of a client.

    Attributes:
        found: number in a register, 0 for a missing key; or the number of each element of a collection.
    """

    key: str
    found: int | Mapping[str, int]
    called: float
    returned: float

    def __str__(self) -> str:
        return f"read {self.key}={_brief(self.found)} ({_interval(self.called, self.returned)})"


Operation = Write | Read


@dataclass(frozen=True)
class Death:
    """End of a primary, and what it may have taken with it.

    Attributes:
        name: name of the node, for messages.
        slots: slots that it owned or imported.
        replicated: time until which all its acknowledged writes are known to be replicated, in seconds of the clients'
            clock.
        until: time by which it certainly served no client any more.
    """

    name: str
    slots: frozenset[int]
    replicated: float
    until: float

    def may_lose(self, operation: Operation) -> bool:
        """Whether the node may have answered this operation without replicating what it acknowledged."""
        if operation.returned is None:
            return False  # nothing was acknowledged
        in_time = operation.called <= self.until and operation.returned > self.replicated
        return in_time and _slot(operation.key) in self.slots


def violations(history: Iterable[Operation], deaths: Sequence[Death] = ()) -> list[str]:
    """Return the reads that no consistent store could have returned, except for the budget of these deaths."""

    def certain(each: Operation) -> bool:
        return each.returned is not None and not any(death.may_lose(each) for death in deaths)

    found: list[str] = []
    for of_key in _by_key(history).values():
        writes = [each for each in of_key if isinstance(each, Write)]
        reads = sorted((each for each in of_key if isinstance(each, Read)), key=lambda each: each.called)
        collection = any(not isinstance(each.found, int) for each in reads)
        found += (_of_collection if collection else _of_register)(writes, reads, certain)
    return found


def lost(history: Iterable[Operation], finals: Iterable[Read]) -> list[Write]:
    """Return the acknowledged writes that are missing at the end.

    Args:
        finals: a read of each key at the end.
    """
    left = {each.key: each.found for each in finals}
    found: list[Write] = []
    for key, of_key in _by_key(each for each in history if isinstance(each, Write)).items():
        writes = [each for each in of_key if isinstance(each, Write)]
        number = max((each.number for each in writes if each.deletes), default=0)
        last = left[key]
        if isinstance(last, int):
            now = [each for each in writes if not each.delay]  # a key may expire later
            found += [each for each in now if each.returned is not None and each.number > (last or number)]
        else:
            kept = [each for each in writes if each.returned is not None and each.adds and each.number > number]
            found += _missing(kept, last)
    return found


def _missing(adds: Sequence[Write], last: Mapping[str, int]) -> list[Write]:
    """Return the additions that a collection lacks; among equal ones, the newest."""
    rest, found = Counter(last), []
    for each in sorted(adds, key=lambda each: each.called):
        if any(rest[element] < count for element, count in (each.adds or {}).items()):
            found.append(each)
        elif not each.idempotent:
            rest.subtract(each.adds or {})
    return found


def _by_key(history: Iterable[Operation]) -> dict[str, list[Operation]]:
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        by_key[each.key].append(each)
    return by_key


Certain = Callable[[Operation], bool]
"""Whether what an operation wrote or read must last."""


def _of_register(writes: Sequence[Write], reads: Sequence[Read], certain: Certain) -> list[str]:
    """Check the reads of a register in order of the times at which values become certain."""
    begun = sorted(writes, key=lambda each: each.begins)
    times = [each.begins for each in begun]
    newest = [0, *accumulate((each.number for each in begun), max)]
    missing = sorted({0, *(each.number for each in writes if each.deletes)})
    # Numbers that became certain, by time; the third part only keeps entries of equal times apart.
    pending: list[tuple[float, int, int, Operation]] = [
        (each.ends, each.number, index, each) for index, each in enumerate(writes) if certain(each)
    ]
    heapq.heapify(pending)
    floor: Operation | None = None
    least = 0
    found: list[str] = []
    for index, read in enumerate(reads, len(writes)):
        while pending and pending[0][0] < read.called:
            _, number, _, operation = heapq.heappop(pending)
            if number > least or floor is None:
                least, floor = max(least, number), operation
        most = newest[bisect_left(times, read.returned)]
        assert isinstance(read.found, int)
        number = read.found
        if not number:  # an earlier deletion explains it as well as a later one: assume the earlier one
            number = missing[min(bisect_left(missing, least), len(missing) - 1)]
        if number < 0:
            found.append(f"{read} has a time to live that was never set")
        elif number < least:
            undone = isinstance(floor, Write) and floor.deletes
            found.append(f"{read} {'undoes' if undone else 'misses'} {floor}")
        elif number > most:
            found.append(f"{read} was never written" if read.found else f"{read} misses {floor}")
        elif certain(read):
            heapq.heappush(pending, (read.returned, number, index, read))
    return found


def _of_collection(writes: Sequence[Write], reads: Sequence[Read], certain: Certain) -> list[str]:
    """Check the number of each element in the reads of a collection."""
    adds, deletions = [each for each in writes if each.adds], [each for each in writes if each.deletes]
    lasting = {id(each) for each in writes if certain(each)}
    pending: list[tuple[float, int, Read]] = []
    observed: Counter[str] = Counter()
    found: list[str] = []
    for index, read in enumerate(reads):
        while pending and pending[0][0] < read.called:
            observed |= _counted(heapq.heappop(pending)[2])
        deleted, maybe_deleted = 0, 0
        for each in deletions:
            if each.begins < read.returned:
                maybe_deleted = max(maybe_deleted, each.number)
            if id(each) in lasting and each.ends < read.called:
                deleted = max(deleted, each.number)
        least = _sum(
            each for each in adds if id(each) in lasting and each.number > maybe_deleted and each.ends < read.called
        )
        most = _sum(each for each in adds if each.number > deleted and each.begins < read.returned)
        wrong = _compare(read, least | observed, most, _sum(each for each in adds if each.number <= deleted))
        found += wrong
        if not wrong and not deletions and certain(read):  # without deletions, a collection only grows
            heapq.heappush(pending, (read.returned, index, read))
    return found


def _counted(read: Read) -> Counter[str]:
    assert not isinstance(read.found, int)
    return Counter(read.found)


def _sum(adds: Iterable[Write]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in adds:
        if each.idempotent:
            total |= Counter(each.adds or {})
        else:
            total.update(each.adds or {})
    return total


def _compare(read: Read, least: Counter[str], most: Counter[str], deleted: Counter[str]) -> list[str]:
    """Compare the elements of a read with their bounds.

    Args:
        deleted: elements that were deleted before the read.
    """
    assert not isinstance(read.found, int)
    missing = {each: count for each, count in least.items() if read.found.get(each, 0) < count}
    more = {each: count for each, count in read.found.items() if count > most[each]}
    found = []
    if missing:
        found.append(f"{read} misses acknowledged {_brief(missing)}")
    if undone := {each: count for each, count in more.items() if not most[each] and deleted[each]}:
        found.append(f"{read} undoes the deletion of {_brief(undone)}")
    if excess := {each: count for each, count in more.items() if each not in undone}:
        found.append(f"{read} has more of {_brief(excess)} than was written: {_brief({e: most[e] for e in excess})}")
    return found


@cache
def _slot(key: str) -> int:
    return int(key_slot(key.encode()))


def _brief(found: int | Mapping[str, int]) -> str:
    """Return a number, or the first elements of a collection."""
    if isinstance(found, int):
        return str(found)
    listed = [str(count) if not element else f"{element}×{count}" for element, count in sorted(found.items())]
    return "{" + ", ".join(listed[:5]) + (f", … {len(listed)} elements" if len(listed) > 5 else "") + "}"


def _interval(called: float, returned: float | None) -> str:
    return f"{called:.3f} s, unanswered" if returned is None else f"{called:.3f}-{returned:.3f} s"
