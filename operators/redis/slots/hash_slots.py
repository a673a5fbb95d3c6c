"""Sets of hash slots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SLOTS = 16384
"""Number of slots in every cluster: 0 to 16383."""


@dataclass(frozen=True, slots=True, repr=False)
class Slots:
    """A set of slots; its text is as in CLUSTER NODES: `0-5460 5462`.

    Attributes:
        mask: slot N is bit N. A number of 2 KiB: set operations take microseconds.
    """

    mask: int = 0

    @classmethod
    def of(cls, *slots: int | range) -> Slots:
        """Return a set of single slots and of ranges of consecutive ones.

        Raises:
            ValueError: a slot does not exist.
        """
        mask = 0
        for each in slots:
            run = each if isinstance(each, range) else range(each, each + 1)
            if not run:
                continue
            if run.step != 1 or run.start < 0 or run.stop > SLOTS:
                raise ValueError(f"{each} is not within slots 0-{SLOTS - 1}.")
            mask |= ((1 << len(run)) - 1) << run.start
        return cls(mask)

    @classmethod
    def parse(cls, text: str) -> Slots:
        """Parse the format of `str` and CLUSTER NODES; an empty text is an empty set.

        Raises:
            ValueError: the text is not a list of slots and ranges.
        """
        runs = []
        for word in text.split():
            first, _, last = word.partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()) or word.endswith("-"):
                raise ValueError(f"{word!r} is neither a slot nor a range of slots, such as 7 or 0-5460.")
            runs.append(range(int(first), int(last or first) + 1))
            if not runs[-1]:
                raise ValueError(f"{word!r} ends before its start.")
        return cls.of(*runs)

    @classmethod
    def all(cls) -> Slots:
        return cls((1 << SLOTS) - 1)

    @classmethod
    def union(cls, many: Iterable[Slots]) -> Slots:
        """Return the slots that are in any of the sets."""
        mask = 0
        for slots in many:
            mask |= slots.mask
        return cls(mask)

    @property
    def ranges(self) -> tuple[range, ...]:
        """The runs of consecutive slots, each as long as possible, in ascending order."""
        bits = format(self.mask, "b")[::-1] + "0"
        runs, stop = [], 0
        while (start := bits.find("1", stop)) >= 0:
            stop = bits.find("0", start)
            runs.append(range(start, stop))
        return tuple(runs)

    def first(self, count: int) -> Slots:
        """Return the lowest `count` slots; all, if there are fewer."""
        taken: list[range] = []
        for run in self.ranges:
            if count <= 0:
                break
            taken.append(run[:count])
            count -= len(run)
        return Slots.of(*taken)

    def __or__(self, other: Slots) -> Slots:
        return Slots(self.mask | other.mask)

    def __and__(self, other: Slots) -> Slots:
        return Slots(self.mask & other.mask)

    def __sub__(self, other: Slots) -> Slots:
        return Slots(self.mask & ~other.mask)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, slot: int) -> bool:
        return slot >= 0 and self.mask >> slot & 1 == 1

    def __iter__(self) -> Iterator[int]:
        for run in self.ranges:
            yield from run

    def __str__(self) -> str:
        return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in self.ranges)

    def __repr__(self) -> str:
        return f"Slots({str(self)!r})"
