"""Moves slots key by key with SETSLOT and MIGRATE, which every version supports.

A slot that moves is open: its owner serves the keys that it still has, and redirects requests for others to the
target (`ASK`). So clients find every key at any time, and after a crash both ends still know the state. The sequence
is:

| target | SETSLOT IMPORTING | accepts keys of a slot that it does not own |
| source | SETSLOT MIGRATING | creates no more keys of the slot |
| source | GETKEYSINSLOT, MIGRATE | moves keys until none is left |
| target | WAIT | a replica has the keys |
| target | SETSLOT NODE | owns the slot, with an epoch above all others |
| source | SETSLOT NODE | acknowledges the new owner; the target informs the others at once |

Before the first slot is opened, a target of some versions forgets outdated claims (`claim_renewal`).

Several slots are opened together, because that costs round trips only: all their keys are at the source. Then each
slot is emptied and handed over at once. While keys of a slot are at both ends, a failure of the source hides them:
MIGRATING is not replicated before Valkey 8, so a replica that takes over does not redirect clients, and they may
create the keys again. Therefore MIGRATING is set at such a replica before anything else, and a key that exists at
both ends then is never replaced (`duplicates`).

NODE must never be sent while the source has a key of the slot, because no client would find it any more. So NODE
follows a list of keys or a count that is empty after the last MIGRATE. The reply of MIGRATE only explains failures.

A MIGRATE that waits for an unresponsive target blocks the source, and others mark it as failed after
cluster-node-timeout. The commands of a batch wait one after the other: so each may only wait for a part of half that
time. After such a failure (IOERR) the target may still execute the command. The keys of the batch are in doubt:
copies at the target are removed, and each key is moved alone. The status records these keys until then, so that the
next process of the operator removes the copies if this one ends. One that is killed during the MIGRATE, or loses its
Lease, records nothing: then a copy of a key that was deleted meanwhile stays.

Sources: https://redis.io/docs/latest/commands/cluster-setslot/, …/migrate/; cluster.c of Redis 7.0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from operators.redis.client.errors import Loading, Refused, SlotStuck, TargetFull, TargetNotReplicating, no_node, sure
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Command
from operators.redis.facts.lifecycles import SLOT, SlotEvent, SlotState
from operators.redis.migration import acknowledgement, big_keys, claim_renewal, duplicates
from operators.redis.migration.journal import Journal
from operators.redis.migration.participants import End, Limits
from operators.redis.migration.slot_closing import close
from operators.redis.migration.target_check import require_target
from operators.redis.migration.throttle import Throttle
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Doubt
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.errors import KubeError
from shared.runtime.errors import DatabaseError

MAX_OPEN_SLOTS = 32
"""Maximum number of slots that are opened together: servers save their state each time."""

MAX_EMPTY_SLOTS = 64
"""Maximum number of slots without keys that are opened and handed over together."""

LISTED_KEYS = 1000
"""Maximum number of keys of a slot that are listed at once."""

MAX_TRIES = 3
"""Maximum number of attempts in a row without progress for a slot."""

MAX_LISTED_ITEMS = 3
"""Maximum number of keys in a message."""

STOP_SECONDS = 90.0
"""Longest time for which a reconcile that is stopped waits for replies to MIGRATE, which usually take some seconds."""

_LATER = ("CLUSTERDOWN", "LOADING", "TRYAGAIN", "MASTERDOWN", "BUSY ")
"""Replies of a target that is temporarily unavailable."""

_SETSLOT = ("CLUSTER", "SETSLOT")


@dataclass
class KeyByKeyPath:
    """Slots that move between two nodes.

    Attributes:
        slots: slots to move; reduced to those that the source owns and the target does not.
        others: connects to the other primaries.
        block_limit: time that the source may be blocked, in seconds: half of cluster-node-timeout.
        journal: where slots are recorded before they are opened.
        stuck: slots that cannot be moved, and why.
        moved: slots that the target owns now.
        states: state of each slot, from the reports of both ends and the commands since.
        conflicts: keys of a slot with different values at both ends.
        doubts: SHA-1 of the value of keys that the target may receive late, by slot.
        halted: problem that affects all slots.
    """

    source: End
    target: End
    slots: Slots
    others: Callable[[], AbstractAsyncContextManager[Sequence[End]]]
    throttle: Throttle
    limits: Limits
    block_limit: float
    journal: Journal
    stuck: dict[int, Refused] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    states: dict[int, SlotState] = field(default_factory=dict)
    conflicts: dict[int, set[bytes]] = field(default_factory=dict)
    doubts: dict[int, dict[bytes, str]] = field(default_factory=dict)
    halted: Refused | None = None
    _closed: Slots = field(default_factory=Slots)
    _are_claims_current: bool = False
    _begun: list[int] = field(default_factory=list)
    _unconfirmed: list[int] = field(default_factory=list)
    _failures: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        source, target = self.source.report, self.target.report
        # Slots of the target have arrived; if the source was not informed, it learns it from gossip.
        self.slots = (self.slots & source.me.slots) - target.me.slots
        self.states = {slot: slot_state(slot, source, target) for slot in self.slots}
        # A mark at the target alone proves nothing: a server that starts with keys of others sets it by itself.
        alone = [slot for slot in self.slots - self.limits.promoted if self.states[slot] is SlotState.IMPORTING]
        begun = (self.slots & Slots.of(*source.me.migrating, *target.me.importing)) - Slots.of(*alone)
        self._begun = [slot for slot in begun if self._continues(slot)]

    async def mark(self) -> None:
        """Set MIGRATING at a source that took over from the former one, for the slots that the target imports.

        Without this mark it answers requests for moved keys as if they did not exist. So this comes before anything
        else.

        Raises:
            RedisError: the source is unreachable.
        """
        slots = [slot for slot in self._begun if self.states[slot] in (SlotState.IMPORTING, SlotState.INHERITED)]
        self._advance(slots, SlotEvent.MIGRATE)
        commands: list[Command] = [(*_SETSLOT, slot, "MIGRATING", self.target.id) for slot in slots]
        for slot, answer in zip(slots, await self.source.server.pipe(commands), strict=True):
            self._record_failure(slot, answer)

    async def move(self) -> None:
        """Move slots that the source owns and the target does not, until time is up; open slots first.

        Raises:
            SlotStuck: some slots cannot be moved; the others were.
            TargetNotReplicating: no replica of the target has the keys; no further slot was moved.
            Loading: no further slot moves yet.
            RedisError: an end is unreachable.
        """
        if self._begun:
            await self._settle_doubts()
        report = self.source.report
        most = max(1, min(MAX_OPEN_SLOTS, 2 * LISTED_KEYS * len(report.me.slots) // max(1, report.keys)))
        await self._move_batches([slot for slot in self._begun if slot not in self.stuck], most)
        if not self._is_expired and self.halted is None:
            claim_renewal.require_settled(self.source, self.target, 2 * self.block_limit)
            empty, occupied = await self._free(self.slots - Slots.of(*self._begun, *self.stuck))
            await self._move_batches(empty, MAX_EMPTY_SLOTS)
            await self._move_batches(occupied, most)
        if self.stuck:
            raise self._all_stuck()
        if self.halted:
            raise self.halted

    @property
    def _is_expired(self) -> bool:
        return asyncio.get_running_loop().time() >= self.limits.until

    def _continues(self, slot: int) -> bool:
        """Return whether the migration of an open slot may continue, although an end may have been replaced.

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

    async def _free(self, slots: Slots) -> tuple[list[int], list[int]]:
        """Return the slots, none of them begun, of which the target has no keys: those without any key, and others."""
        commands: list[Command] = [("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots]
        at_target, at_source = await asyncio.gather(*(end.server.pipe(commands) for end in (self.target, self.source)))
        empty: list[int] = []
        occupied: list[int] = []
        for slot, foreign, count in zip(slots, at_target, at_source, strict=True):
            if sure(foreign):
                self._give_up(
                    slot,
                    f"{self.target.name} has {foreign} keys of unknown origin in slot {slot}, which "
                    f"{self.source.name} owns. Inspect them (CLUSTER GETKEYSINSLOT), and delete them there.",
                )
            else:
                (occupied if sure(count) else empty).append(slot)
        return empty, occupied

    async def _move_batches(self, slots: Iterable[int], most: int) -> None:
        rest = iter(slots)
        while not self._is_expired and not self.halted and (batch := list(islice(rest, most))):
            await self._move_batch(batch)

    async def _move_batch(self, slots: list[int]) -> None:
        """Open slots, move their keys, and hand over each as soon as it is empty."""
        try:
            await require_target(self.source, self.target, len(slots), acknowledge=self.limits.acknowledge)
            if self.limits.acknowledge:  # also before the first key moves: a replica may hang since it was last seen
                await acknowledgement.await_replica(self.target)
        except (TargetFull, TargetNotReplicating) as error:
            self.halted = error
            return
        await self.journal.open(self.source.id, self.target.id, Slots.of(*slots), self._closed)
        keys = await self._open(slots)
        empty = [slot for slot, some in keys.items() if not some]
        await self._hand_over(empty, acknowledge=False)
        await self._empty({slot: some for slot, some in keys.items() if some})
        await self._confirm()
        self._closed |= Slots.of(*self.moved)
        if left := Slots.of(*(keys.keys() - self.moved)):  # slots of which no key has moved need not stay open
            self._closed |= left - await close((self.source, self.target), left)

    async def _open(self, slots: list[int]) -> dict[int, list[bytes]]:
        """Return the slots that are open at both ends now, each with the first of its keys."""
        taking = [slot for slot in slots if self.states[slot] in (SlotState.OWNED, SlotState.MIGRATING)]
        # A node that imports a slot ignores claims of other nodes to it: with a failed owner it reports the cluster as
        # down.
        inherited = [slot for slot in taking if slot in self.target.report.me.importing]
        await self.target.server.pipe([(*_SETSLOT, slot, "NODE", self.source.id) for slot in inherited])
        if inherited or not self._are_claims_current:  # the source becomes the owner of inherited slots here
            await claim_renewal.renew_claims(self.source, self.target, patience=2 * self.block_limit + 1)
            self._are_claims_current = True
        self._advance(taking, SlotEvent.IMPORT)
        commands: list[Command] = [(*_SETSLOT, slot, "IMPORTING", self.source.id) for slot in taking]
        for slot, answer in zip(taking, await self.target.server.pipe(commands), strict=True):
            self._record_failure(slot, answer)
        slots = [slot for slot in slots if slot not in self.stuck]
        giving = [slot for slot in slots if self.states[slot] is SlotState.IMPORTING]
        self._advance(giving, SlotEvent.MIGRATE)
        commands = [(*_SETSLOT, slot, "MIGRATING", self.target.id) for slot in giving]
        replies = await self.source.server.pipe(commands + [self._list_command(slot) for slot in slots])
        for slot, answer in zip(giving, replies, strict=False):
            self._record_failure(slot, answer)
        listed = zip(slots, replies[len(giving) :], strict=True)
        return {slot: _keys(reply) for slot, reply in listed if slot not in self.stuck}

    async def _empty(self, rest: dict[int, list[bytes]]) -> None:
        """Move keys until time is up, and hand over the slots without keys.

        Args:
            rest: listed keys of each slot.
        """
        await self._carry_large(rest)
        while rest and not self._is_expired and not self.halted:
            batch = self._next_batch(rest)
            listed = await self._migrate(batch, rest)
            for slot, keys in listed.items():
                rest[slot] = [key for key in keys if key not in self.conflicts.get(slot, ())]
                if keys and not rest[slot]:
                    self._give_up(slot, self._conflict(slot))
            await self._hand_over(
                [slot for slot, keys in listed.items() if not keys], acknowledge=self.limits.acknowledge
            )
            await self._carry_large({slot: rest[slot] for slot in listed if rest[slot]})
            for slot in listed:
                if slot in self.stuck or slot in self.moved:
                    del rest[slot]

    def _next_batch(self, rest: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
        """Return the next keys to move; a key in doubt is moved alone."""
        batch: dict[int, list[bytes]] = {}
        left, slots = self.throttle.next_size()
        for slot, keys in islice(rest.items(), slots):
            doubts = self.doubts.get(slot, {})
            if any(key in doubts for key in keys):
                return {slot: [next(key for key in keys if key in doubts)]}
            if left:
                batch[slot] = keys[: min(left, self.limits.keys)]
                left -= len(batch[slot])
        return batch

    async def _migrate(self, batch: dict[int, list[bytes]], rest: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
        """Move these keys, and return the slots of which all listed keys were tried, with their next keys."""
        wait = max(1, int(self.block_limit * 1000 / len(batch)))
        for slot, keys in batch.items():
            tried = set(keys)
            rest[slot] = [key for key in rest[slot] if key not in tried]
        moving = {slot: keys for slot, keys in batch.items() if keys}
        done = [slot for slot in batch if not rest[slot]]
        confirmed = self._confirmations()
        migrations = [
            command
            for slot, keys in moving.items()
            for command in (self._migrate_command(keys, wait), duplicates.list_remaining(slot, keys))
        ]
        clock = asyncio.get_running_loop().time
        began = clock()
        replies = await self._send(confirmed, migrations, moving)
        self.throttle.judge(clock() - began, sum(map(len, moving.values())), len(moving))
        empty = {slot for slot, remaining in zip(moving, replies[1::2], strict=True) if remaining == []}
        listed: dict[int, list[bytes]] = {slot: [] for slot in done if slot in empty}
        if left := [slot for slot in done if slot not in empty]:
            keys_left = await self.source.server.pipe([*map(self._list_command, left)])
            listed |= {slot: _keys(reply) for slot, reply in zip(left, keys_left, strict=True)}
        for (slot, keys), reply in zip(moving.items(), replies[::2], strict=True):
            if not await self._judge(slot, keys, reply, listed.get(slot)):
                (listed[slot],) = map(_keys, await self.source.server.pipe([self._list_command(slot)]))
        return listed

    async def _send(
        self, confirmed: Sequence[Command], migrations: Sequence[Command], moving: Mapping[int, Sequence[bytes]]
    ) -> list[Any]:
        """Send each MIGRATE with its list of remaining keys, and record the keys in doubt.

        If the reconcile is stopped, it waits for this, and the Lease lasts as long: nothing but the replies shows which
        keys are in doubt. A server that prolongs them is left as in a crash (`_settle_doubts`).
        """

        async def send() -> list[Any]:
            replies = (await self.source.server.pipe([*confirmed, *migrations]))[len(confirmed) :]
            answers = zip(moving.items(), replies[::2], replies[1::2], strict=True)
            failed = {
                slot: duplicates.parse_remaining(keys, sure(remaining))
                for (slot, keys), reply, remaining in answers
                if isinstance(reply, Refused) and reply.code == "IOERR"
            }
            if failed:
                await self._record_doubts(failed)
            return replies

        sending = asyncio.ensure_future(send())
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            with suppress(DatabaseError, KubeError, TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await sending
            raise

    async def _record_doubts(self, sent: Mapping[int, Mapping[bytes, str]]) -> None:
        """Record keys of a failed MIGRATE that the source still has, by slot, with the SHA-1 of their values."""
        for slot, values in sent.items():
            self.doubts.setdefault(slot, {}).update(values)
        recorded = frozenset(Doubt.of(slot, key, value) for slot in sent for key, value in self.doubts[slot].items())
        await self.journal.set_doubts(self.source.id, self.target.id, Slots.of(*sent), recorded)

    async def _judge(self, slot: int, keys: list[bytes], reply: Any, left: list[bytes] | None) -> bool:
        """Evaluate the reply of MIGRATE, and return whether all keys have moved.

        Args:
            left: next keys of the slot, if they are listed.
        """
        if not isinstance(reply, Refused):
            if reply == "OK":
                for key in keys:
                    self.doubts.get(slot, {}).pop(key, None)
            if left is not None:
                self._failures[slot] = self._failures[slot] + 1 if {*keys} & {*left} else 0
            if self._failures[slot] >= MAX_TRIES:
                self._give_up(
                    slot, f"Keys of slot {slot} stay at {self.source.name}, although MIGRATE returned {reply}."
                )
            return True
        self._failures[slot] += 1
        if self._failures[slot] < MAX_TRIES and "BUSYKEY" in str(reply):
            keep = self._is_promoted(slot)
            conflicts, count = await duplicates.resolve(self.source, self.target, keys, keep=keep)
            self.conflicts.setdefault(slot, set()).update(conflicts)
            self._failures[slot] = 0 if count else self._failures[slot]
        elif reply.code == "IOERR":
            self.throttle.restart()  # the target may be slow: allow each MIGRATE more time
            await self._remove_late(slot)
            if self._failures[slot] >= MAX_TRIES:
                self._halt(slot, reply)
        else:
            self._halt(slot, reply)
        return False

    def _is_promoted(self, slot: int) -> bool:
        """Return whether the source took over from the node from which the slot was moving."""
        return slot in self.limits.promoted or (
            self.target.report.me.importing.get(slot, self.source.id) != self.source.id
        )

    async def _remove_late(self, slot: int) -> None:
        """Remove copies that a failed MIGRATE may have left at the target.

        The record ends before these keys move again: then a copy at the target is the only one.
        """
        await self._record_doubts({slot: {}})
        await duplicates.remove_late(self.source, self.target, self.doubts[slot], patience=4 * self.block_limit)
        await self.journal.set_doubts(self.source.id, self.target.id, Slots.of(slot), frozenset())

    async def _settle_doubts(self) -> None:
        """End transfers of an earlier process of the operator, or of a former source, and remove their copies."""
        doubts = self.journal.doubts(self.source.id, self.target.id, self.slots)
        await duplicates.remove_recorded(self.source, self.target, doubts)
        await self.journal.set_doubts(self.source.id, self.target.id, self.slots, frozenset())

    def _halt(self, slot: int, reply: Refused) -> None:
        """Move no further slot, because the target or the source rejects a command."""
        if any(word in str(reply) for word in _LATER):
            self.halted = Loading(f"{self.target.name} accepts no keys at the moment: {reply}.", reply.code)
        elif "OOM" in str(reply):
            message = f"{self.target.name} has no memory for slot {slot}. Raise maxmemory, or add primaries."
            self.halted = TargetFull(message, "OOM")
        else:
            self.halted = SlotStuck(
                f"Keys of slot {slot} cannot be moved from {self.source.name} to {self.target.name}: {reply}."
            )

    async def _carry_large(self, listed: dict[int, list[bytes]]) -> None:
        """Move the large ones of newly listed keys, each alone."""
        if self.source.report.memory <= big_keys.BIG_KEY_BYTES:
            return
        slot_of = {key: slot for slot, keys in listed.items() for key in keys}
        for key, size in (await big_keys.sizes(self.source, list(slot_of))).items():
            slot = slot_of[key]
            async with (
                self.others() as others,
                big_keys.extended_timeouts((self.source, self.target, *others), self.target, size) as seconds,
            ):
                reply = await self._carry(slot, key, seconds)
            if isinstance(reply, Refused):
                self._halt(slot, reply)
                return
            listed[slot].remove(key)

    async def _carry(self, slot: int, key: bytes, seconds: float) -> Any:
        """Move a large key, and return the reply of MIGRATE."""
        command = self._migrate_command([key], int(seconds * 1000))
        (reply,) = await self.source.server.pipe([command])
        if isinstance(reply, Refused) and reply.code == "IOERR":
            await duplicates.remove_late(self.source, self.target, {}, patience=seconds)
            await duplicates.remove_large(self.source, self.target, key)
        elif isinstance(reply, Refused) and "BUSYKEY" in str(reply):
            if self._is_promoted(slot):
                self.conflicts.setdefault(slot, set()).add(key)
                return None
            await duplicates.remove_large(self.source, self.target, key)
            (reply,) = await self.source.server.pipe([command])
        return reply

    async def _hand_over(self, slots: list[int], *, acknowledge: bool) -> None:
        """Let the target own slots of which the source has no key; wait until a replica has the keys."""
        for slot in slots:
            if self.doubts.get(slot):
                await self._remove_late(slot)
        self._advance(slots, SlotEvent.MOVE_LAST_KEY)
        self._advance(slots, SlotEvent.ASSIGN_AT_TARGET)
        # Not in one pipeline: a server that continues after WAIT responds before it has saved nodes.conf. If it ended
        # then, it would have forgotten a slot that the source has given up.
        acknowledged = await self._await_replica() if acknowledge else None
        commands: list[Command] = [(*_SETSLOT, slot, "NODE", self.target.id) for slot in slots]
        if slots:  # before the response, which may be lost
            claim_renewal.note_arrival(self.target)
        for slot, answer in zip(slots, await self.target.server.pipe(commands), strict=True):
            self._record_failure(slot, answer)
        owned = [slot for slot in slots if slot not in self.stuck]
        self.moved.update(owned)
        self._unconfirmed += owned
        self.halted = acknowledged or self.halted

    async def _await_replica(self) -> Refused | None:
        """Wait for replicas of both ends; return the error if none of the target has the keys in time."""
        await acknowledgement.await_deletion(self.source)
        try:
            await acknowledgement.await_replica(self.target)
        except (TargetFull, TargetNotReplicating) as error:
            return error
        return None

    def _confirmations(self) -> list[Command]:
        """Return the commands that inform the source of slots that the target owns."""
        slots, self._unconfirmed = self._unconfirmed, []
        self._advance(slots, SlotEvent.ASSIGN_AT_SOURCE)
        return [(*_SETSLOT, slot, "NODE", self.target.id) for slot in slots]

    async def _confirm(self) -> None:
        for answer in await self.source.server.pipe(self._confirmations()):
            sure(answer)

    def _advance(self, slots: Iterable[int], event: SlotEvent) -> None:
        """Take the transition of slots before its commands are sent; an illegal one raises."""
        for slot in slots:
            self.states[slot] = SLOT.after(self.states[slot], event)

    def _record_failure(self, slot: int, answer: Any) -> None:
        if isinstance(answer, Refused):
            self._give_up(slot, f"{answer}.")

    def _give_up(self, slot: int, message: str) -> None:
        self.stuck[slot] = SlotStuck(message)

    def _all_stuck(self) -> SlotStuck:
        """Return the failure of the first slot that is stuck; it names the others."""
        first, *others = self.stuck
        also = f" Also stuck: {brief(Slots.of(*others))}." if others else ""
        return SlotStuck(f"{self.stuck[first]}{also}")

    def _conflict(self, slot: int) -> str:
        keys = sorted(self.conflicts[slot])
        named = ", ".join(repr(key.decode(errors="backslashreplace")) for key in keys[:MAX_LISTED_ITEMS])
        more = f" and {len(keys) - MAX_LISTED_ITEMS} more" if len(keys) > MAX_LISTED_ITEMS else ""
        source, target = self.source.name, self.target.name
        return (
            f"Slot {slot} cannot leave {source}: {named}{more} exist there and at {target} with different values, "
            f"because a replica took over during the migration. All other keys have moved. Compare the values and "
            f'delete one of the two: at {source} with "DEL", or at {target} with "ASKING" and then "DEL".'
        )

    def _list_command(self, slot: int) -> Command:
        return ("CLUSTER", "GETKEYSINSLOT", slot, LISTED_KEYS + len(self.conflicts.get(slot, ())))

    def _migrate_command(self, keys: Sequence[bytes], wait: int) -> Command:
        endpoint = self.target.endpoint
        password = self.target.access.password
        return (
            *("MIGRATE", endpoint.address, endpoint.port, "", 0, wait),
            *(("AUTH", password) if password else ()),
            *("KEYS", *keys),
        )


def _keys(reply: Any) -> list[bytes]:
    """Return the keys in a reply to CLUSTER GETKEYSINSLOT.

    Raises:
        RedisError: the reply is an error, or not one of a node.
    """
    keys = sure(reply)
    if not isinstance(keys, list) or not all(isinstance(key, bytes) for key in keys):
        raise no_node(TypeError("CLUSTER GETKEYSINSLOT returned no list of keys"))
    return keys


def slot_state(slot: int, source: NodeReport, target: NodeReport) -> SlotState:
    """Return the state of a slot from the reports of both ends, which do not include the keys at the source."""
    if slot in target.me.slots:
        return SlotState.HANDED_OVER if slot in source.me.slots else SlotState.OWNED
    importing, migrating = slot in target.me.importing, source.me.migrating.get(slot) == target.id
    if importing and target.me.importing[slot] != source.id:
        return SlotState.MIGRATING if migrating else SlotState.INHERITED
    if importing:
        return SlotState.OPEN if migrating else SlotState.IMPORTING
    return SlotState.MIGRATING if migrating else SlotState.OWNED
