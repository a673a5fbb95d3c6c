"""A queue of work in which no namespace delays the others. Pure: callers pass the time.

Items wait by priority, and the namespaces of a priority take turns. A higher priority goes first, but a namespace that
had a turn shares the next ones with those that have waited since. An item that is taken holds a slot until it is
done. What waits for a server that does not answer, such as a hung database or the webhook of a namespace, must not hold
what the others need. There are therefore two sets of slots:

- *Quick* slots are for namespaces whose work is short. One namespace may hold all of them while no other waits.
- An item that is not done after `SLOW_SECONDS` moves to a *slow* slot. From then on, the items of its namespace begin
  in slow slots, until none was slow for `SLOW_MEMORY_SECONDS`. They begin while less than half of the slow slots are
  in use, and no more than there are quick ones: if everything is slow, more concurrent work makes it slower. A
  namespace gets half of that, and one item begins in any case while a slow slot is free, so that namespaces with hung
  items do not stop the others. The rest is for items that move.

So another namespace waits about `SLOW_SECONDS` for a quick slot at most, and only when a namespace has just become
slow. If more namespaces than there are slow slots become slow at once, items stay in quick slots until one is free.

An item of a namespace begins only while those of it that are taken need little memory (`MAX_NAMESPACE_BYTES`).

Every operation takes constant time on average, regardless of the number of items and namespaces.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item", bound=Hashable)

MAX_QUICK_SLOTS = 32
"""Maximum number of quick slots: more concurrent work makes a loaded API server slower, not faster."""

SLOW_SECONDS = 0.5
"""Seconds after which an item counts as slow. Most reconciles take less than 0.2 s."""

MAX_NAMESPACE_BYTES = 4 * 1024 * 1024
"""Memory of the taken items of a namespace above which no other item of it begins: that of 20 to 40 small resources."""

SLOW_MEMORY_SECONDS = 60.0
"""Seconds without a slow item after which a namespace takes quick slots again: the longest delay between retries."""

LOWER_SHARE = 8
"""One of this number of items has a lower priority, so that a constant stream of changes does not stop the others."""

AGAIN = LOWER_SHARE // 2
"""How often such an item counts of a namespace that had a turn since the one with the lower priority waits."""


class Priority(enum.IntEnum):
    """Order in which items are taken; those of one namespace and priority, in the order in which they were added."""

    SPEC = 0
    """A resource whose status does not describe its spec yet: a user may wait for it."""
    CHANGE = 1
    """Anything else that was observed, and what a reconcile requested for a certain time."""
    BACKGROUND = 2
    """Polls, resyncs, and the resources that exist when this replica begins."""


class _Speed(enum.IntEnum):
    """The slots that a namespace may take: quick ones, a first slow one, more slow ones, or none: it has its share."""

    QUICK = 0
    FIRST_SLOW = 1
    SLOW = 2
    FULL = 3


class _Class(NamedTuple):
    """Waiting items of one priority, of namespaces of one speed."""

    priority: Priority
    speed: _Speed


_TAKEN_FROM = tuple(_Class(priority, speed) for priority in Priority for speed in _Speed if speed < _Speed.FULL)
"""Classes in the order in which they are preferred."""


@dataclass(slots=True)
class _Namespace:
    """A namespace with items.

    Attributes:
        items: number of items, waiting or taken.
        memory: bytes of memory that the taken ones need.
        slow_slots: number of slow slots that it holds.
        overdue: number of items that are slow.
        slow_until: when it takes quick slots again, unless an item is slow then.
        waits_since, had_turn: numbers of the last turn before it waits, and of its own last one; 0 if it had none.
    """

    speed: _Speed = _Speed.QUICK
    items: int = 0
    memory: int = 0
    slow_slots: int = 0
    overdue: int = 0
    slow_until: float = -math.inf
    waits_since: int = 0
    had_turn: int = 0


@dataclass(slots=True)
class _Taken:
    """An item that holds a slot.

    Attributes:
        since: when it was taken.
        memory: bytes of memory that it needs.
        is_overdue: whether it is slow.
    """

    namespace: str
    since: float
    memory: int
    holds_slow_slot: bool
    is_overdue: bool = False


_Ring = OrderedDict[str, OrderedDict[Item, None]]
"""Namespaces in the order of their turns, each with its waiting items."""


class FairQueue(Generic[Item]):
    """A fair queue.

    Args:
        slots: maximum number of items that are taken at the same time; all are quick if there is only one.
        memory: returns the bytes of memory that an item needs while it is taken.
    """

    def __init__(self, slots: int, memory: Callable[[Item], int] = lambda _: 0) -> None:
        self._memory = memory
        self._quick_slots = min(MAX_QUICK_SLOTS, math.ceil(slots / 2))
        self._slow_slots = slots - self._quick_slots
        self._begin_slots = min(MAX_QUICK_SLOTS, math.ceil(self._slow_slots / 2))
        self._share = math.ceil(self._begin_slots / 2)
        self._quick_used = self._slow_used = self._turns = 0
        self._rings: dict[_Class, _Ring[Item]] = {
            _Class(priority, speed): OrderedDict() for priority in Priority for speed in _Speed
        }
        self._passed_over = dict.fromkeys(_TAKEN_FROM, 0)  # how often others were preferred to a class
        self._waiting: dict[Item, tuple[str, Priority]] = {}
        self._taken: dict[Item, _Taken] = {}
        self._on_time: dict[Item, None] = {}  # taken items that are not slow, by the time at which they were taken
        self._stranded: OrderedDict[Item, None] = OrderedDict()  # slow items in quick slots
        self._namespaces: dict[str, _Namespace] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()  # slow namespaces without items, in the order they became so

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return len(self._waiting)

    def __contains__(self, item: Item) -> bool:
        """Whether an item waits."""
        return item in self._waiting

    def add(self, item: Item, namespace: str, priority: Priority, now: float) -> None:
        """Let an item wait; one that waits already gets the higher of both priorities."""
        if (waiting := self._waiting.get(item)) is not None:
            if waiting[1] <= priority:
                return
            self._withdraw(item)
        self._forget_idle(now)
        self._idle.pop(namespace, None)
        if (of := self._namespaces.get(namespace)) is None:
            of = self._namespaces[namespace] = _Namespace(waits_since=self._turns)
        of.items += 1
        self._waiting[item] = namespace, priority
        self._rings[_Class(priority, of.speed)].setdefault(namespace, OrderedDict())[item] = None
        self._update(namespace, of, now)

    def clear(self) -> None:
        """Withdraw all waiting items."""
        for item in list(self._waiting):
            self._withdraw(item)

    @property
    def is_ready(self) -> bool:
        """Whether an item can be taken."""
        return bool(self._waiting) and any(self._rings[each] and self._has_slot(each.speed) for each in _TAKEN_FROM)

    def take(self, now: float) -> Item:
        """Take the next item, which holds a slot until it is done; `is_ready` must be true."""
        chosen = self._choose()
        ring = self._rings[chosen]
        namespace, items = next(iter(ring.items()))
        item = next(iter(items))
        del items[item], self._waiting[item]
        if items:
            ring.move_to_end(namespace)
        else:
            del ring[namespace]
        of, is_slow = self._namespaces[namespace], chosen.speed is not _Speed.QUICK
        self._turns += 1
        of.waits_since = of.had_turn = self._turns
        self._taken[item] = taken = _Taken(namespace, now, self._memory(item), is_slow)
        of.memory += taken.memory
        self._on_time[item] = None
        if is_slow:
            self._hold_slow_slot(of)
        else:
            self._quick_used += 1
        self._update(namespace, of, now)
        return item

    def done(self, item: Item, now: float) -> None:
        """Release the slot of an item."""
        taken = self._taken.pop(item)
        of = self._namespaces[taken.namespace]
        of.memory -= taken.memory
        self._on_time.pop(item, None)
        self._stranded.pop(item, None)
        if taken.is_overdue:
            of.overdue -= 1
            of.slow_until = now + SLOW_MEMORY_SECONDS
        if taken.holds_slow_slot:
            self._slow_used -= 1
            of.slow_slots -= 1
            if self._stranded:
                self._move_to_slow_slot(self._stranded.popitem(last=False)[0], now)
        else:
            self._quick_used -= 1
        self._update(taken.namespace, of, now)
        self._forget_one(taken.namespace, of)

    def note_slow(self, now: float) -> float | None:
        """Move the items that are slow by now to slow slots, as far as there are any.

        Returns:
            Seconds until the next taken item becomes slow; None if none can.
        """
        while self._slow_slots and self._on_time:
            item = next(iter(self._on_time))
            taken = self._taken[item]
            if (left := taken.since + SLOW_SECONDS - now) > 0:
                return left
            del self._on_time[item]
            of, taken.is_overdue = self._namespaces[taken.namespace], True
            of.overdue += 1
            if not taken.holds_slow_slot:
                self._stranded[item] = None
                if self._slow_used < self._slow_slots:
                    self._move_to_slow_slot(self._stranded.popitem(last=False)[0], now)
            self._update(taken.namespace, of, now)
        return None

    def _choose(self) -> _Class:
        """Return the first class with an item that can be taken, unless a lower one was passed over too often."""
        found = [each for each in _TAKEN_FROM if self._rings[each] and self._has_slot(each.speed)]
        had_turn = self._next(found[0]).had_turn
        for each in found:
            self._passed_over[each] += AGAIN if had_turn > self._next(each).waits_since else 1
        chosen = next((each for each in reversed(found) if self._passed_over[each] >= LOWER_SHARE), found[0])
        self._passed_over[chosen] = 0
        return chosen

    def _next(self, each: _Class) -> _Namespace:
        """Return the namespace of a class whose turn is next."""
        return self._namespaces[next(iter(self._rings[each]))]

    def _has_slot(self, speed: _Speed) -> bool:
        """Whether an item of such a namespace may begin."""
        if speed is _Speed.QUICK:
            return self._quick_used < self._quick_slots
        return self._slow_used < (self._slow_slots if speed is _Speed.FIRST_SLOW else self._begin_slots)

    def _hold_slow_slot(self, of: _Namespace) -> None:
        self._slow_used += 1
        of.slow_slots += 1

    def _move_to_slow_slot(self, item: Item, now: float) -> None:
        taken = self._taken[item]
        of, taken.holds_slow_slot = self._namespaces[taken.namespace], True
        self._quick_used -= 1
        self._hold_slow_slot(of)
        self._update(taken.namespace, of, now)

    def _update(self, namespace: str, of: _Namespace, now: float) -> None:
        """Update the slots that a namespace may take."""
        if of.memory >= MAX_NAMESPACE_BYTES:
            speed = _Speed.FULL
        elif not of.overdue and of.slow_until <= now:
            speed = _Speed.QUICK
        elif not of.slow_slots:
            speed = _Speed.FIRST_SLOW
        else:
            speed = _Speed.SLOW if of.slow_slots < self._share else _Speed.FULL
        if speed is of.speed:
            return
        for priority in Priority:
            if items := self._rings[_Class(priority, of.speed)].pop(namespace, None):
                self._rings[_Class(priority, speed)][namespace] = items
        of.speed = speed

    def _withdraw(self, item: Item) -> None:
        namespace, priority = self._waiting.pop(item)
        of = self._namespaces[namespace]
        ring = self._rings[_Class(priority, of.speed)]
        del ring[namespace][item]
        if not ring[namespace]:
            del ring[namespace]
        self._forget_one(namespace, of)

    def _forget_one(self, namespace: str, of: _Namespace) -> None:
        """Count one item less; a namespace without items is forgotten, once it is no longer slow."""
        of.items -= 1
        if of.items:
            return
        if of.speed is _Speed.QUICK:
            del self._namespaces[namespace]
        else:
            self._idle[namespace] = None

    def _forget_idle(self, now: float) -> None:
        """Forget the namespaces that were slow and have not had an item since."""
        while self._idle and self._namespaces[next(iter(self._idle))].slow_until <= now:
            del self._namespaces[self._idle.popitem(last=False)[0]]
