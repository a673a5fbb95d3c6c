"""Slot migration of Redis 8.4 and later: CLUSTER MIGRATION IMPORT, sent to the destination.

A node takes part in one task at a time, as either end. A failed task is retried by the server until it is cancelled.

Source: https://redis.io/docs/latest/commands/cluster-migration/; src/cluster_asm.c of Redis 8.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from operators.redis.client.errors import reads_replies
from operators.redis.client.responses import mapping
from operators.redis.migration.participants import End
from operators.redis.migration.server_side import Job, MigrationPath
from operators.redis.slots.hash_slots import Slots


@dataclass(frozen=True, slots=True)
class RedisImport:
    """A node that receives slots."""

    end: End
    cancels_one: ClassVar[bool] = True

    @reads_replies
    async def jobs(self) -> Sequence[Job]:
        answer = await self.end.server.execute("CLUSTER", "MIGRATION", "STATUS", "ALL")
        return [
            Job(
                each["id"],
                each["source"],
                each["dest"],
                Slots.parse(each["slots"]),
                each["state"],
                each["last_error"] or "",
                each["state"] in ("completed", "canceled"),
                int(each["retries"]),
                int(each["end_time"]) / 1000,
            )
            for each in map(mapping, answer)
            if each["operation"] == "import"
        ]

    async def begin(self, path: MigrationPath) -> None:
        ranges = [bound for run in path.slots.ranges for bound in (run[0], run[-1])]
        await self.end.server.execute("CLUSTER", "MIGRATION", "IMPORT", *ranges)

    async def cancel(self, job: Job) -> None:
        await self.end.server.execute("CLUSTER", "MIGRATION", "CANCEL", "ID", job.id)
