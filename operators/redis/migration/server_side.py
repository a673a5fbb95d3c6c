"""Slots that servers move by themselves, in jobs: begun one after the other, awaited, ended where they are not wanted.

A job forks, sends a snapshot of its slots and then what was written meanwhile, stops writes for a moment, and hands all
of them over at once: no slot is ever open, and one that fails leaves everything as it was. Jobs live in the servers:
where the operator stops they go on, and it finds them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from operators.redis.client.errors import SlotStuck
from operators.redis.client.node_inspection import inspect_node
from operators.redis.migration.memory_check import require_memory
from operators.redis.migration.participants import End
from operators.redis.slots.hash_slots import Slots

JOB_BYTES = 256 * 2**20
"""Bytes that a job is to move, as estimated: a failure costs no more than that, and its memory on both ends no more."""

POLL_INTERVAL_SECONDS = 0.03
"""Seconds between two looks at a job."""

MAX_TRIES = 3
"""How often a server may begin a job anew by itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """Slots on their way.

    Attributes:
        source, target: node ids.
        state: in the server's words.
        message: what went wrong, if something did.
        ended: whether the server does no more for it.
        retries: how often it was begun anew, where servers do that.
    """

    id: str
    source: str
    target: str
    slots: Slots
    state: str
    message: str
    ended: bool
    retries: int = 0

    @property
    def done(self) -> bool:
        """Whether the slots are the target's now."""
        return self.state in ("success", "completed")


@dataclass(frozen=True, slots=True)
class MigrationPath:
    """Slots that are to go from one node to another."""

    source: End
    target: End
    slots: Slots


class Mover(Protocol):
    """A server that moves slots when it is asked."""

    async def jobs(self) -> Sequence[Job]:
        """What it has to do and has done, the newest first."""

    async def begin(self, path: MigrationPath) -> None:
        """Begin one."""

    async def cancel(self, job: Job, /) -> None:
        """End one; harmless where it has ended."""


async def move(mover: Mover, path: MigrationPath, paths: Sequence[MigrationPath], until: float) -> None:
    """Move slots one way, until time is up; a job that runs then goes on by itself.

    Args:
        ways: all that are wanted: jobs that are of none of them are ended, and the mover's others awaited.
        until: a moment of the loop's clock.

    Raises:
        SlotStuck: a job failed; the message says how.
        RedisError: a server does not answer.
    """
    clock = asyncio.get_running_loop().time
    ours: set[str] = set()  # what failed earlier does not count
    while True:
        jobs = await mover.jobs()
        running = [job for job in jobs if not job.ended]
        ours |= {job.id for job in running}
        await _cancel_unwanted(mover, running, paths)
        for job in jobs:
            if job.id in ours and job.ended and not job.done and any(_belongs(job, each) for each in paths):
                raise _stuck(job, paths)
        if clock() >= until:
            return
        if not running:
            begun = await _begin_next(mover, path, jobs)
            if begun is None:
                return
            ours |= begun
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _cancel_unwanted(mover: Mover, running: Sequence[Job], paths: Sequence[MigrationPath]) -> None:
    """Cancel jobs that are of no wanted path, and those that the server restarted too often.

    Raises:
        SlotStuck: the server restarted one too often.
    """
    for job in running:
        if not any(_belongs(job, each) for each in paths):
            await mover.cancel(job)
        elif job.retries >= MAX_TRIES:
            await mover.cancel(job)
            raise _stuck(job, paths)


async def _begin_next(mover: Mover, path: MigrationPath, before: Sequence[Job]) -> set[str] | None:
    """Begin the next job, and return the ids of new jobs; None if nothing is left to move."""
    if (share := await _next(path)) is None:
        return None
    await require_memory(path.source, path.target, len(share.slots))
    await mover.begin(share)
    return {job.id for job in await mover.jobs()} - {job.id for job in before}


async def _next(path: MigrationPath) -> MigrationPath | None:
    """What is to be moved next, of slots that their source still owns; None if nothing is."""
    report = await inspect_node(path.source.server)
    if not (left := path.slots & report.me.slots):
        return None
    a_slot = max(1, report.memory // len(report.me.slots))
    return MigrationPath(path.source, path.target, left.first(max(1, JOB_BYTES // a_slot)))


def _belongs(job: Job, path: MigrationPath) -> bool:
    return (job.source, job.target) == (path.source.id, path.target.id) and not job.slots - path.slots


def _stuck(job: Job, paths: Sequence[MigrationPath]) -> SlotStuck:
    names = {end.id: end.name for path in paths for end in (path.source, path.target)}
    return SlotStuck(
        f"Slots {job.slots} do not go from {names.get(job.source, job.source)} to {names.get(job.target, job.target)} "
        f"({job.state}): {job.message.strip().rstrip('.') or 'the server says no more'}. Their logs may tell more.",
        "ERR",
    )
