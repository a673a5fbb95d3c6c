"""Records opened slots in the status of the RedisCluster, before the first command on them.

A mark on a server does not show which client set it (topology/provenance.py). So the operator continues only the
migration of slots that it recorded, and it records a slot right before it opens it: one that is merely planned may get
marks of another origin.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from operators.redis.api.status import move_entries
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import RecordedMove
from shared.runtime.plan import Record, unrecorded


@dataclass
class Journal:
    """The record of one call, which moves slots on several paths in parallel.

    Attributes:
        record: writes fields of the status.
        moves: slots that are open, or may be.
        written: moves that the status has; None if it has no such record.
    """

    record: Record = unrecorded
    moves: Sequence[RecordedMove] = ()
    written: Sequence[RecordedMove] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self, source: str, target: str, slots: Slots, closed: Slots) -> None:
        """Record slots that are opened next.

        Args:
            source, target: ids of the primaries between which they move.
            closed: slots that are closed at both ends again.

        Raises:
            KubeError: the record was not written, so that no slot must be opened.
        """
        ends = source, target
        known = [move for move in self.moves if (move.source, move.target) == ends]
        new = slots - Slots.union(move.slots for move in known)
        kept = (dataclasses.replace(move, slots=move.slots - new - (closed - slots)) for move in self.moves)
        self.moves = [*(move for move in kept if move.slots), *([RecordedMove(*ends, new)] if new else [])]
        await self._write()

    async def _write(self) -> None:
        async with self._turn:
            moves = list(self.moves)
            if self.written is None or not _covers(self.written, moves):
                await self.record({"moves": move_entries(moves)})
                self.written = moves


def _covers(written: Sequence[RecordedMove], moves: Sequence[RecordedMove]) -> bool:
    """Return whether a record has all slots of moves, between the same ends."""
    return not any(
        move.slots - Slots.union(each.slots for each in written if dataclasses.replace(each, slots=move.slots) == move)
        for move in moves
    )
