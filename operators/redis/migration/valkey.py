"""Slot migration of Valkey 9.0 and later: CLUSTER MIGRATESLOTS, sent to the source.

Source: https://valkey.io/topics/atomic-slot-migration/, https://valkey.io/commands/cluster-getslotmigrations/
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from operators.redis.client.errors import Refused, reads_replies
from operators.redis.client.responses import mapping
from operators.redis.migration.participants import End
from operators.redis.migration.server_side import Job, MigrationPath
from operators.redis.slots.hash_slots import Slots

_ENDED = frozenset({"success", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class ValkeyMigrateSlots:
    """A node that gives slots away."""

    end: End
    cancels_one: ClassVar[bool] = False

    @reads_replies
    async def jobs(self) -> Sequence[Job]:
        answer = await self.end.server.execute("CLUSTER", "GETSLOTMIGRATIONS")
        return [
            Job(
                each["name"],
                each["source_node"],
                each["target_node"],
                Slots.parse(each["slot_ranges"]),
                each["state"],
                each["message"] or "",
                each["state"] in _ENDED,
                ended_at=float(each["last_update_time"]),
            )
            for each in map(mapping, answer)
            if each["operation"] == "EXPORT"
        ]

    async def begin(self, path: MigrationPath) -> None:
        ranges = [bound for run in path.slots.ranges for bound in (run[0], run[-1])]
        await self.end.server.execute("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", path.target.id)

    async def cancel(self, _: Job) -> None:
        """Cancel all migrations of this node, also those of other clients: Valkey cannot cancel a single one."""
        with suppress(Refused):  # it has ended
            await self.end.server.execute("CLUSTER", "CANCELSLOTMIGRATIONS")
