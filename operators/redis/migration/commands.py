"""The calls of a plan that move slots between primaries; see client/commands.py for the rules of every call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from operators.redis.client.command_base import RedisCall
from operators.redis.client.errors import SlotStuck
from operators.redis.client.server import Connect, Endpoint
from operators.redis.migration.coordinator import BUDGET_SECONDS, move
from operators.redis.migration.journal import Journal
from operators.redis.migration.slot_assignment import assign_slots
from operators.redis.migration.slot_closing import close_slots
from operators.redis.migration.slot_reopening import reopen_slots
from operators.redis.migration.throttle import MAX_KEYS_PER_COMMAND
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, RecordedJob, RecordedMove
from shared.runtime.plan import Record, unrecorded


@dataclass(frozen=True, slots=True)
class MoveSlots(RedisCall):
    """Move slots for a limited time; the next call continues.

    Attributes:
        nodes: endpoints of the primaries, by node id.
        keys: maximum number of keys of a slot in one command; ignored by server-side migrations.
        budget: time after which no further batch is started, in seconds.
        promoted: slots whose recorded source is no longer their owner, because a replica of it took over: there, a
            key that exists at both ends is never replaced at the target.
        acknowledge: whether each batch waits until a replica of the target has it, if the target has a replica.
        recorded: recorded slots that are open, or may be, between their present ends.
        written: moves as the status has them.
        jobs: jobs of the servers that the operator started.
    """

    moves: tuple[Move, ...]
    nodes: Mapping[str, Endpoint]
    keys: int = MAX_KEYS_PER_COMMAND
    budget: float = BUDGET_SECONDS
    promoted: Slots = field(default_factory=Slots)
    acknowledge: bool = True
    recorded: tuple[RecordedMove, ...] = ()
    written: tuple[RecordedMove, ...] = ()
    jobs: frozenset[RecordedJob] = frozenset()

    async def carry_out(self, connect: Connect, /) -> None:
        await self.carry_out_recorded(connect, unrecorded)

    async def carry_out_recorded(self, connect: Connect, record: Record, /) -> None:
        await move(
            *(connect, self.access, self.nodes, self.moves),
            keys=self.keys,
            budget=self.budget,
            promoted=self.promoted,
            acknowledge=self.acknowledge,
            journal=Journal(record, self.recorded, self.written, self.jobs),
        )

    def __str__(self) -> str:
        moves = (
            f"{len(each.slots)} from {self._name(each.source)} to {self._name(each.target)}" for each in self.moves
        )
        return f"move slots: {', '.join(moves)}"

    def _name(self, node_id: str) -> str:
        endpoint = self.nodes.get(node_id)
        return endpoint.name if endpoint else node_id


@dataclass(frozen=True, slots=True)
class _OpenSlots(RedisCall):
    """A call on open slots.

    Attributes:
        source, target: node ids of the ends.
        nodes: endpoints of the primaries, by node id; an end that is missing here is not changed.
    """

    source: str
    target: str
    slots: Slots
    nodes: Mapping[str, Endpoint]


@dataclass(frozen=True, slots=True)
class CloseSlots(_OpenSlots):
    """Close open slots; only if nodes that do not own them have none of their keys."""

    async def carry_out(self, connect: Connect, /) -> None:
        await close_slots(connect, self.access, self.nodes, (self.source, self.target), self.slots)

    def __str__(self) -> str:
        return f"close slots {self.slots}"


@dataclass(frozen=True, slots=True)
class ReleaseSlots(_OpenSlots):
    """Close slots that another client left open at one end; those of which the other end has keys stay as they are."""

    lasting: ClassVar[bool] = True  # slots that stay open are not tried again at once

    async def carry_out(self, connect: Connect, /) -> None:
        with suppress(SlotStuck):  # reported by a condition (foreign_slots.py)
            await close_slots(connect, self.access, self.nodes, (self.source, self.target), self.slots)

    def __str__(self) -> str:
        return f"close slots {self.slots} that another client left open"


@dataclass(frozen=True, slots=True)
class ReopenSlots(_OpenSlots):
    """Open slots again at the end that lost its marks in a failover (SETSLOT MIGRATING, IMPORTING)."""

    lasting: ClassVar[bool] = True  # gossip may have to spread before a node accepts it

    async def carry_out(self, connect: Connect, /) -> None:
        await reopen_slots(connect, self.access, self.nodes, (self.source, self.target), self.slots)

    def __str__(self) -> str:
        return f"open slots {self.slots} again"


@dataclass(frozen=True, slots=True)
class AssignSlots(RedisCall):
    """Let a primary own slots that no node owns, although each node takes another one for their owner.

    Attributes:
        owner: node id of the primary that has the keys.
        nodes: endpoints of all primaries, by node id.
        is_empty: whether no node has keys of the slots, instead.
    """

    owner: str
    slots: Slots
    nodes: Mapping[str, Endpoint]
    is_empty: bool = False

    async def carry_out(self, connect: Connect, /) -> None:
        await assign_slots(connect, self.access, self.nodes, self.owner, self.slots, is_empty=self.is_empty)

    def __str__(self) -> str:
        return f"assign slots {self.slots} to {self.nodes[self.owner].name}"
