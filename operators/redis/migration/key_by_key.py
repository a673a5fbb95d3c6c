"""Moves slots key by key, as every version can: SETSLOT and MIGRATE, many slots in one go.

A slot on its way is open: its owner serves the keys that it has, and sends who asks for another to the target (ASK).
So clients find every key, however long it takes; and after a crash both ends still know. Each step looks so in turn:

    target   SETSLOT IMPORTING      it takes keys of a slot that is not its own
    source   SETSLOT MIGRATING      it makes no key of the slot any more
    source   GETKEYSINSLOT, MIGRATE, until there is none
    target   SETSLOT NODE           it owns the slot, by an epoch above all others
    source   SETSLOT NODE           and is believed; the others hear of it from the target at once

What must never be: NODE while the source has a key of the slot, for nobody would find it any more. So NODE follows a
list that is empty, made after the last MIGRATE. What a MIGRATE says is but the reason that is told.

A key at both ends, which MIGRATE refuses (BUSYKEY), is there because an answer was late. Until the slot is handed over
clients are answered by the source, so its copy holds and replaces the other. That is safe for one reason: when the slot
was opened, the target had none of its keys. Where it has, and nothing tells where from, nobody touches them.

A MIGRATE that waits for a target that hangs keeps the source from all else, and others take it for dead after
cluster-node-timeout. All that is sent in one go waits in turn: so each may wait a part of half that time.

Sources: https://redis.io/docs/latest/commands/cluster-setslot/, …/migrate/; cluster.c of Redis 7.0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from operators.redis.client.errors import Loading, Refused, SlotStuck, TargetFull
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Command
from operators.redis.lifecycles import SLOT, SlotEvent, SlotState
from operators.redis.migration import big_keys
from operators.redis.migration.latency_probe import LatencyProbe
from operators.redis.migration.memory_check import require_memory
from operators.redis.migration.participants import End
from operators.redis.migration.slot_closing import close
from operators.redis.migration.throttle import Throttle
from operators.redis.slots.hash_slots import Slots

MAX_OPEN_SLOTS = 32
"""Slots that are opened in one go, and handed over in one: for each go, servers write down what they know."""

MAX_TRIES = 3
"""How often in a row a slot may have as many keys as before."""

_LATER = ("CLUSTERDOWN", "LOADING", "TRYAGAIN", "MASTERDOWN", "BUSY ")
"""What a target answers that will take keys by and by."""

_SETSLOT = ("CLUSTER", "SETSLOT")


@dataclass
class KeyByKeyPath:
    """Slots on their way between two nodes.

    Attributes:
        others: masters beside them, as far as they matter.
        until: the moment of the loop's clock after which nothing is begun.
        patience: seconds that the source may be kept from all else: half of cluster-node-timeout.
        stuck: slots that cannot be moved on, and why.
        gone: slots that are the target's.
        states: how far each slot is, by the reports of both ends and the commands since.
        halted: whether what is in the way of one is in the way of all.
    """

    source: End
    target: End
    others: Sequence[End]
    throttle: Throttle
    pulse: LatencyProbe
    until: float
    patience: float
    stuck: dict[int, Refused] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    states: dict[int, SlotState] = field(default_factory=dict)
    halted: bool = False

    async def move(self, slots: Slots) -> None:
        """Move slots that the source owns and the target does not, until time is up; those that are open come first.

        Raises:
            SlotStuck: some could not be moved on; the others have been.
            RedisError: an end does not answer.
        """
        # The target's own have arrived: who was to tell the source stopped, and it hears of it as all others do.
        slots = (slots & self.source.report.me.slots) - self.target.report.me.slots
        begun = slots & Slots.of(*self.source.report.me.migrating, *self.target.report.me.importing)
        rest = iter([*begun, *await self._free(slots - begun)])
        while not self._late and not self.halted and (batch := list(islice(rest, MAX_OPEN_SLOTS))):
            await self._go(batch)
        if self.stuck:
            raise next(iter(self.stuck.values()))

    @property
    def _late(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until

    async def _free(self, slots: Slots) -> Slots:
        """Those of slots that are not open of which the target has no keys."""
        listed = list(slots)
        counts = await self.target.server.pipe([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in listed])
        for slot, count in zip(listed, counts, strict=True):
            if _sure(count):
                self._give_up(
                    slot,
                    f"{self.target.name} holds {count} keys of slot {slot}, which {self.source.name} owns, and nothing "
                    "tells where they are from. Look at them (CLUSTER GETKEYSINSLOT), and delete them there.",
                )
        return slots - Slots.of(*self.stuck)

    async def _go(self, slots: list[int]) -> None:
        """Open slots, empty them at the source, and hand over those that are empty."""
        try:
            await require_memory(self.source, self.target, len(slots))
        except TargetFull as error:
            self.stuck[slots[0]], self.halted = error, True
            return
        self.states |= {slot: slot_state(slot, self.source.report, self.target.report) for slot in slots}
        opened = await self._open([slot for slot in slots if self._continues(slot)])
        empty = await self._empty(opened)
        self._advance(empty, SlotEvent.MOVE_LAST_KEY)
        await self._hand_over(empty)
        if self.halted:
            await close((self.source, self.target), Slots.of(*(opened.keys() - self.gone)))

    def _continues(self, slot: int) -> bool:
        """Whether a slot may go on its way from where it is, though an end may have been replaced amid.

        A target that has failed is waited for: it may have keys of the slot that nobody else has.
        """
        to = self.source.report.me.migrating.get(slot, self.target.id)
        of = self.target.report.me.importing.get(slot, self.source.id)
        if to != self.target.id and not self.target.replaces(to):
            self._give_up(slot, f"Slot {slot} of {self.source.name} is on its way to {to}: it must arrive there first.")
        elif of != self.source.id and not self.source.inherits(of):
            self._give_up(slot, f"Slot {slot} is on its way from {of} to {self.target.name}: it must arrive first.")
        return slot not in self.stuck

    async def _open(self, slots: list[int]) -> dict[int, list[bytes]]:
        """Slots that are open at both ends now, each with the first of its keys."""
        of = self.target.report.me.importing
        taking = [slot for slot in slots if of.get(slot) != self.source.id]
        # Who imports a slot believes nobody's word of who owns it: while that is a dead one, it takes the cluster to be
        # down.
        commands: list[Command] = [(*_SETSLOT, slot, "NODE", self.source.id) for slot in taking if slot in of]
        await self.target.server.pipe(commands)
        self._advance(taking, SlotEvent.IMPORT)
        commands = [(*_SETSLOT, slot, "IMPORTING", self.source.id) for slot in taking]
        for slot, answer in zip(taking, await self.target.server.pipe(commands), strict=True):
            self._heed(slot, answer)
        slots = [slot for slot in slots if slot not in self.stuck]
        giving = [slot for slot in slots if self.source.report.me.migrating.get(slot) != self.target.id]
        self._advance(giving, SlotEvent.MIGRATE)
        commands = [(*_SETSLOT, slot, "MIGRATING", self.target.id) for slot in giving]
        replies = await self.source.server.pipe(commands + [self._list_command(slot) for slot in slots])
        for slot, answer in zip(giving, replies, strict=False):
            self._heed(slot, answer)
        listed = zip(slots, replies[len(giving) :], strict=True)
        return {slot: _sure(keys) for slot, keys in listed if slot not in self.stuck}

    async def _empty(self, keys: dict[int, list[bytes]]) -> list[int]:
        """Move keys until there are none, and return the slots of which there are none."""
        empty = [slot for slot, some in keys.items() if not some]
        rest = {slot: some for slot, some in keys.items() if some}
        replace: set[int] = set()
        failures: Counter[int] = Counter()
        while rest and not self._late and not self.halted:
            now = dict(islice(rest.items(), self.throttle.slots))
            if self.source.report.memory > big_keys.BIG_KEY_BYTES:
                await self._carry(now)
            if self.halted:
                break
            for slot, report, left in await self._migrate(now, replace):
                failures[slot] = failures[slot] + 1 if _sure(left) == rest[slot] else 0
                rest[slot] = left
                if not left:
                    empty.append(slot)
                elif isinstance(report, Refused) and "BUSYKEY" in str(report):
                    replace.add(slot)
                elif isinstance(report, Refused):
                    self._judge(slot, report, failures[slot])
                elif failures[slot] >= MAX_TRIES:
                    self._give_up(slot, f"Keys of slot {slot} stay at {self.source.name}, though it says {report}.")
            rest = {slot: some for slot, some in rest.items() if some and slot not in self.stuck}
        return empty

    async def _migrate(self, keys: dict[int, list[bytes]], replace: set[int]) -> Iterable[tuple[int, Any, Any]]:
        """Move these keys; for each slot, what MIGRATE answered, and the next keys of it."""
        wait = max(1, int(self.patience * 1000 / len(keys)))
        commands: list[Command] = []
        for slot, some in keys.items():
            commands += (self._migrate_command(some, wait, replace=slot in replace), self._list_command(slot))
        self.pulse.taken()
        replies = await self.source.server.pipe(commands)
        self.throttle.judge(self.pulse.taken())
        return zip(keys, replies[::2], replies[1::2], strict=True)

    async def _carry(self, keys: dict[int, list[bytes]]) -> None:
        """Move the big ones among keys, each alone; afterwards they are as good as expired."""
        slot_of = {key: slot for slot, some in keys.items() for key in some}
        found = await big_keys.sizes(self.source, list(slot_of))
        for key, size in found.items():
            async with big_keys.patience((self.source, self.target, *self.others), self.target, size) as seconds:
                report = await self._carried(key, seconds)
            if isinstance(report, Refused):
                self._judge(slot_of[key], report, MAX_TRIES)
                return

    async def _carried(self, key: bytes, seconds: float) -> Any:
        for replace in (False, True):
            command = self._migrate_command([key], int(seconds * 1000), replace=replace)
            (report,) = await self.source.server.pipe([command])
            if not isinstance(report, Refused) or "BUSYKEY" not in str(report):
                break
        return report

    def _judge(self, slot: int, report: Refused, failures: int) -> None:
        """What a MIGRATE was refused for."""
        if report.code == "IOERR" and failures < MAX_TRIES:
            self.throttle.alone()  # the target may just be slow: let each wait longer
            return
        self.halted = True
        if any(word in str(report) for word in _LATER):
            self.stuck[slot] = Loading(f"{self.target.name} takes no keys at this time: {report}.", report.code)
        elif "OOM" in str(report):
            message = f"{self.target.name} has no memory for slot {slot} (maxmemory). Give nodes more, or more masters."
            self.stuck[slot] = TargetFull(message, "OOM")
        else:
            self._give_up(
                slot, f"Keys of slot {slot} do not go from {self.source.name} to {self.target.name}: {report}."
            )

    async def _hand_over(self, slots: list[int]) -> None:
        """Let the target own slots of which the source has no key."""
        ends = (self.target, SlotEvent.ASSIGN_AT_TARGET), (self.source, SlotEvent.ASSIGN_AT_SOURCE)
        for end, event in ends:
            self._advance(slots, event)
            commands: list[Command] = [(*_SETSLOT, slot, "NODE", self.target.id) for slot in slots]
            for slot, answer in zip(slots, await end.server.pipe(commands), strict=True):
                self._heed(slot, answer)
            slots = [slot for slot in slots if slot not in self.stuck]
            self.gone.update(slots)

    def _advance(self, slots: Iterable[int], event: SlotEvent) -> None:
        """Take the transition of slots before its commands are sent; an illegal one raises."""
        for slot in slots:
            self.states[slot] = SLOT.after(self.states[slot], event)

    def _heed(self, slot: int, answer: Any) -> None:
        if isinstance(answer, Refused):
            self._give_up(slot, f"{answer}.")

    def _give_up(self, slot: int, message: str) -> None:
        self.stuck[slot] = SlotStuck(message)

    def _list_command(self, slot: int) -> Command:
        return ("CLUSTER", "GETKEYSINSLOT", slot, self.throttle.keys)

    def _migrate_command(self, keys: Sequence[bytes], wait: int, *, replace: bool) -> Command:
        where = self.target.endpoint
        password = self.target.access.password
        return (
            *("MIGRATE", where.address, where.port, "", 0, wait),
            *(("REPLACE",) if replace else ()),
            *(("AUTH", password) if password else ()),
            *("KEYS", *keys),
        )


def slot_state(slot: int, source: NodeReport, target: NodeReport) -> SlotState:
    """Classify a slot by what both ends report; it is not known yet whether the source still has keys of it."""
    if slot in target.me.slots:
        return SlotState.HANDED_OVER if slot in source.me.slots else SlotState.OWNED
    importing, migrating = target.me.importing.get(slot) == source.id, source.me.migrating.get(slot) == target.id
    if importing:
        return SlotState.OPEN if migrating else SlotState.IMPORTING
    return SlotState.MIGRATING if migrating else SlotState.OWNED


def _sure(answer: Any) -> Any:
    """An answer without which nothing goes on.

    Raises:
        Refused: the server gave none.
    """
    if isinstance(answer, Refused):
        raise answer
    return answer
