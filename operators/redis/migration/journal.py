"""Records opened slots in the status of the RedisCluster, before the first command on them.

A mark on a server does not show which client set it (topology/provenance.py). So the operator continues only the
migration of slots that it recorded, and it records a slot right before it opens it: one that is merely planned may get
marks of another origin.

The same holds for the jobs of servers that migrate slots by themselves.

Nor does a copy of a key show whether it is outdated (duplicates.py). So keys in doubt are recorded before anything else
follows from them, and until no copy can arrive any more.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from operators.redis.api.status import job_entries, move_entries
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Doubt, RecordedJob, RecordedMove
from shared.runtime.plan import Record, unrecorded


@dataclass
class Journal:
    """The record of one call, which moves slots on several paths in parallel.

    Attributes:
        record: writes fields of the status.
        moves: slots that are open, or may be.
        written: moves that the status has.
        jobs: migration jobs of the servers that the operator started.
    """

    record: Record = unrecorded
    moves: Sequence[RecordedMove] = ()
    written: Sequence[RecordedMove] = ()
    jobs: frozenset[RecordedJob] = frozenset()
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
        kept = (move.within(move.slots - new - (closed - slots)) for move in self.moves)
        self.moves = [*(move for move in kept if move.slots), *([RecordedMove(*ends, new)] if new else [])]
        await self._write()

    def doubts(self, source: str, target: str, slots: Slots) -> frozenset[Doubt]:
        """Return the keys in doubt of slots that move between two primaries."""
        ends = source, target
        found = (move.within(slots).doubts for move in self.moves if (move.source, move.target) == ends)
        return frozenset().union(*found)

    async def set_doubts(self, source: str, target: str, slots: Slots, doubts: frozenset[Doubt]) -> None:
        """Record which keys of recorded slots are in doubt: before they matter, and when they do not any more.

        Raises:
            KubeError: the record was not written.
        """
        ends = source, target
        self.moves = [
            dataclasses.replace(
                move,
                doubts=move.within(move.slots - slots).doubts | {doubt for doubt in doubts if doubt.slot in move.slots},
            )
            if (move.source, move.target) == ends
            else move
            for move in self.moves
        ]
        await self._write()

    def owns(self, node: str, name: str) -> bool:
        """Return whether the operator started a job that a node runs, or has run."""
        return RecordedJob(node, name) in self.jobs

    async def set_jobs(self, node: str, names: Iterable[str]) -> None:
        """Record the jobs of a node that the operator started: all others are of other clients.

        Raises:
            KubeError: the record was not written.
        """
        jobs = {job for job in self.jobs if job.node != node} | {RecordedJob(node, name) for name in names}
        if jobs != self.jobs:
            self.jobs = frozenset(jobs)
            async with self._turn:
                await self.record({"jobs": job_entries(self.jobs)})

    async def _write(self) -> None:
        async with self._turn:
            moves = list(self.moves)
            if not _covers(self.written, moves):
                await self.record({"moves": move_entries(moves)})
                self.written = moves


def _covers(written: Sequence[RecordedMove], moves: Sequence[RecordedMove]) -> bool:
    """Return whether a record has all slots of moves, between the same ends, and the same keys in doubt."""
    if {doubt for move in written for doubt in move.doubts} != {doubt for move in moves for doubt in move.doubts}:
        return False
    recorded: dict[tuple[str, str, bool], Slots] = {}
    for move in written:
        kind = move.source, move.target, move.promoted
        recorded[kind] = recorded.get(kind, Slots()) | move.slots
    return not any(move.slots - recorded.get((move.source, move.target, move.promoted), Slots()) for move in moves)
