"""Moves slots key by key with SETSLOT and MIGRATE, which every version supports; several slots in one batch.

A slot that moves is open: its owner serves the keys that it still has, and redirects requests for others to the
target (`ASK`). So clients find every key at any time, and after a crash both ends still know the state. The sequence
is:

| target | SETSLOT IMPORTING | accepts keys of a slot that it does not own |
| source | SETSLOT MIGRATING | creates no more keys of the slot |
| source | GETKEYSINSLOT, MIGRATE | moves keys until none is left |
| target | SETSLOT NODE | owns the slot, with an epoch above all others |
| source | SETSLOT NODE | acknowledges the new owner; the target informs the others at once |

NODE must never be sent while the source has a key of the slot, because no client would find it any more. So NODE
follows an empty list of keys, made after the last MIGRATE. The reply of MIGRATE only explains failures.

A key at both ends, which MIGRATE rejects (BUSYKEY), is the result of a late response. Until the slot is handed over,
the source serves clients, so its copy is current and replaces the other one. That is safe for one reason: when the
slot was opened, the target had none of its keys. If it had some of unknown origin, none is changed.

A MIGRATE that waits for an unresponsive target blocks the source, and others mark it as failed after
cluster-node-timeout. The commands of a batch wait one after the other: so each may only wait for a part of half that
time.

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
"""Maximum number of slots of a batch, which are opened and handed over together: servers save their state each time."""

MAX_TRIES = 3
"""Maximum number of attempts in a row without progress for a slot."""

_LATER = ("CLUSTERDOWN", "LOADING", "TRYAGAIN", "MASTERDOWN", "BUSY ")
"""Replies of a target that is temporarily unavailable."""

_SETSLOT = ("CLUSTER", "SETSLOT")


@dataclass
class KeyByKeyPath:
    """Slots that move between two nodes.

    Attributes:
        others: other primaries, as far as they are needed.
        until: time of the loop's clock after which no further batch is started.
        block_limit: time that the source may be blocked, in seconds: half of cluster-node-timeout.
        stuck: slots that cannot be moved, and why.
        moved: slots that the target owns now.
        states: state of each slot, from the reports of both ends and the commands since.
        halted: whether a problem affects all slots.
    """

    source: End
    target: End
    others: Sequence[End]
    throttle: Throttle
    pulse: LatencyProbe
    until: float
    block_limit: float
    stuck: dict[int, Refused] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    states: dict[int, SlotState] = field(default_factory=dict)
    halted: bool = False

    async def move(self, slots: Slots) -> None:
        """Move slots that the source owns and the target does not, until time is up; open slots first.

        Raises:
            SlotStuck: some slots cannot be moved; the others were.
            RedisError: an end is unreachable.
        """
        # Slots of the target have arrived; if the source was not informed, it learns it from gossip.
        slots = (slots & self.source.report.me.slots) - self.target.report.me.slots
        begun = slots & Slots.of(*self.source.report.me.migrating, *self.target.report.me.importing)
        rest = iter([*begun, *await self._free(slots - begun)])
        while not self._is_expired and not self.halted and (batch := list(islice(rest, MAX_OPEN_SLOTS))):
            await self._move_batch(batch)
        if self.stuck:
            raise next(iter(self.stuck.values()))

    @property
    def _is_expired(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until

    async def _free(self, slots: Slots) -> Slots:
        """Return the slots, none of them open, of which the target has no keys."""
        listed = list(slots)
        counts = await self.target.server.pipe([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in listed])
        for slot, count in zip(listed, counts, strict=True):
            if _sure(count):
                self._give_up(
                    slot,
                    f"{self.target.name} has {count} keys of unknown origin in slot {slot}, which {self.source.name} "
                    "owns. Inspect them (CLUSTER GETKEYSINSLOT), and delete them there.",
                )
        return slots - Slots.of(*self.stuck)

    async def _move_batch(self, slots: list[int]) -> None:
        """Open slots, move their keys, and hand over the empty ones."""
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
            await close((self.source, self.target), Slots.of(*(opened.keys() - self.moved)))

    def _continues(self, slot: int) -> bool:
        """Return whether the migration of a slot may continue, although an end may have been replaced.

        The operator waits for a failed target, which may have the only copy of keys of the slot.
        """
        to = self.source.report.me.migrating.get(slot, self.target.id)
        of = self.target.report.me.importing.get(slot, self.source.id)
        if to != self.target.id and not self.target.replaces(to):
            self._give_up(
                slot, f"Slot {slot} of {self.source.name} is migrating to {to}, which must be completed first."
            )
        elif of != self.source.id and not self.source.inherits(of):
            self._give_up(
                slot, f"Slot {slot} is migrating from {of} to {self.target.name}, which must be completed first."
            )
        return slot not in self.stuck

    async def _open(self, slots: list[int]) -> dict[int, list[bytes]]:
        """Return the slots that are open at both ends now, each with the first of its keys."""
        of = self.target.report.me.importing
        taking = [slot for slot in slots if of.get(slot) != self.source.id]
        # A node that imports a slot ignores claims of other nodes to it: with a failed owner it reports the cluster as
        # down.
        commands: list[Command] = [(*_SETSLOT, slot, "NODE", self.source.id) for slot in taking if slot in of]
        await self.target.server.pipe(commands)
        self._advance(taking, SlotEvent.IMPORT)
        commands = [(*_SETSLOT, slot, "IMPORTING", self.source.id) for slot in taking]
        for slot, answer in zip(taking, await self.target.server.pipe(commands), strict=True):
            self._record_failure(slot, answer)
        slots = [slot for slot in slots if slot not in self.stuck]
        giving = [slot for slot in slots if self.source.report.me.migrating.get(slot) != self.target.id]
        self._advance(giving, SlotEvent.MIGRATE)
        commands = [(*_SETSLOT, slot, "MIGRATING", self.target.id) for slot in giving]
        replies = await self.source.server.pipe(commands + [self._list_command(slot) for slot in slots])
        for slot, answer in zip(giving, replies, strict=False):
            self._record_failure(slot, answer)
        listed = zip(slots, replies[len(giving) :], strict=True)
        return {slot: _sure(keys) for slot, keys in listed if slot not in self.stuck}

    async def _empty(self, keys: dict[int, list[bytes]]) -> list[int]:
        """Move keys until time is up, and return the slots without keys."""
        empty = [slot for slot, some in keys.items() if not some]
        rest = {slot: some for slot, some in keys.items() if some}
        replace: set[int] = set()
        failures: Counter[int] = Counter()
        while rest and not self._is_expired and not self.halted:
            now = dict(islice(rest.items(), self.throttle.slots))
            if self.source.report.memory > big_keys.BIG_KEY_BYTES:
                await self._carry(now)
            if self.halted:
                break
            for slot, reply, left in await self._migrate(now, replace):
                failures[slot] = failures[slot] + 1 if _sure(left) == rest[slot] else 0
                rest[slot] = left
                if not left:
                    empty.append(slot)
                elif isinstance(reply, Refused) and "BUSYKEY" in str(reply):
                    replace.add(slot)
                elif isinstance(reply, Refused):
                    self._judge(slot, reply, failures[slot])
                elif failures[slot] >= MAX_TRIES:
                    self._give_up(
                        slot, f"Keys of slot {slot} stay at {self.source.name}, although MIGRATE returned {reply}."
                    )
            rest = {slot: some for slot, some in rest.items() if some and slot not in self.stuck}
        return empty

    async def _migrate(self, keys: dict[int, list[bytes]], replace: set[int]) -> Iterable[tuple[int, Any, Any]]:
        """Move these keys; return, for each slot, the reply of MIGRATE and the next keys of the slot."""
        wait = max(1, int(self.block_limit * 1000 / len(keys)))
        commands: list[Command] = []
        for slot, some in keys.items():
            commands += (self._migrate_command(some, wait, replace=slot in replace), self._list_command(slot))
        self.pulse.taken()
        replies = await self.source.server.pipe(commands)
        self.throttle.judge(self.pulse.taken())
        return zip(keys, replies[::2], replies[1::2], strict=True)

    async def _carry(self, keys: dict[int, list[bytes]]) -> None:
        """Move the large keys, each alone."""
        slot_of = {key: slot for slot, some in keys.items() for key in some}
        found = await big_keys.sizes(self.source, list(slot_of))
        for key, size in found.items():
            async with big_keys.extended_timeouts(
                (self.source, self.target, *self.others), self.target, size
            ) as seconds:
                reply = await self._carried(key, seconds)
            if isinstance(reply, Refused):
                self._judge(slot_of[key], reply, MAX_TRIES)
                return

    async def _carried(self, key: bytes, seconds: float) -> Any:
        for replace in (False, True):
            command = self._migrate_command([key], int(seconds * 1000), replace=replace)
            (reply,) = await self.source.server.pipe([command])
            if not isinstance(reply, Refused) or "BUSYKEY" not in str(reply):
                break
        return reply

    def _judge(self, slot: int, reply: Refused, failures: int) -> None:
        """Evaluate a rejected MIGRATE."""
        if reply.code == "IOERR" and failures < MAX_TRIES:
            self.throttle.use_single_slot()  # the target may be slow: allow each MIGRATE more time
            return
        self.halted = True
        if any(word in str(reply) for word in _LATER):
            self.stuck[slot] = Loading(f"{self.target.name} accepts no keys at the moment: {reply}.", reply.code)
        elif "OOM" in str(reply):
            message = f"{self.target.name} has no memory for slot {slot}. Raise maxmemory, or add primaries."
            self.stuck[slot] = TargetFull(message, "OOM")
        else:
            self._give_up(
                slot, f"Keys of slot {slot} cannot be moved from {self.source.name} to {self.target.name}: {reply}."
            )

    async def _hand_over(self, slots: list[int]) -> None:
        """Let the target own slots of which the source has no key."""
        ends = (self.target, SlotEvent.ASSIGN_AT_TARGET), (self.source, SlotEvent.ASSIGN_AT_SOURCE)
        for end, event in ends:
            self._advance(slots, event)
            commands: list[Command] = [(*_SETSLOT, slot, "NODE", self.target.id) for slot in slots]
            for slot, answer in zip(slots, await end.server.pipe(commands), strict=True):
                self._record_failure(slot, answer)
            slots = [slot for slot in slots if slot not in self.stuck]
            self.moved.update(slots)

    def _advance(self, slots: Iterable[int], event: SlotEvent) -> None:
        """Take the transition of slots before its commands are sent; an illegal one raises."""
        for slot in slots:
            self.states[slot] = SLOT.after(self.states[slot], event)

    def _record_failure(self, slot: int, answer: Any) -> None:
        if isinstance(answer, Refused):
            self._give_up(slot, f"{answer}.")

    def _give_up(self, slot: int, message: str) -> None:
        self.stuck[slot] = SlotStuck(message)

    def _list_command(self, slot: int) -> Command:
        return ("CLUSTER", "GETKEYSINSLOT", slot, self.throttle.keys)

    def _migrate_command(self, keys: Sequence[bytes], wait: int, *, replace: bool) -> Command:
        endpoint = self.target.endpoint
        password = self.target.access.password
        return (
            *("MIGRATE", endpoint.address, endpoint.port, "", 0, wait),
            *(("REPLACE",) if replace else ()),
            *(("AUTH", password) if password else ()),
            *("KEYS", *keys),
        )


def slot_state(slot: int, source: NodeReport, target: NodeReport) -> SlotState:
    """Return the state of a slot from the reports of both ends, which do not include the keys at the source."""
    if slot in target.me.slots:
        return SlotState.HANDED_OVER if slot in source.me.slots else SlotState.OWNED
    importing, migrating = target.me.importing.get(slot) == source.id, source.me.migrating.get(slot) == target.id
    if importing:
        return SlotState.OPEN if migrating else SlotState.IMPORTING
    return SlotState.MIGRATING if migrating else SlotState.OWNED


def _sure(answer: Any) -> Any:
    """Return a reply without which the migration cannot continue.

    Raises:
        Refused: the server answered with an error.
    """
    if isinstance(answer, Refused):
        raise answer
    return answer
