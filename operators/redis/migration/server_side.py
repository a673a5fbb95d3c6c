"""Migration jobs of the servers: started one after the other, awaited, and cancelled if they are not in the plan.

A job forks, sends a snapshot of its slots and then the writes since, blocks writes for a moment, and hands over all
slots at once: no slot is ever open, and a failed job leaves everything unchanged. Jobs run in the servers: if the
operator stops, they continue, and it finds them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from operators.redis.client.errors import SlotStuck
from operators.redis.client.node_inspection import inspect_node
from operators.redis.migration.acknowledgement import await_replica
from operators.redis.migration.participants import End, Limits
from operators.redis.migration.target_check import require_target
from operators.redis.slots.hash_slots import Slots

JOB_BYTES = 256 * 2**20
"""Maximum size of a job in bytes, as estimated: it limits the cost of a failure, and the memory on both ends."""

POLL_INTERVAL_SECONDS = 0.01
"""Interval at which a job is inspected."""

MAX_TRIES = 3
"""Number of failures after which slots are moved key by key: each try forks the source. Also that of a server's own
retries of one job."""


@dataclass(frozen=True, slots=True)
class Job:
    """A migration job.

    Attributes:
        source, target: node ids.
        state: state as the server names it.
        message: error of the job, if any.
        ended: whether the server is done with it.
        retries: number of retries, for servers that retry.
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
        """Whether the target owns the slots now."""
        return self.state in ("success", "completed")

    @property
    def failed(self) -> bool:
        """Whether it failed: by itself, or because the operator cancelled it after too many retries."""
        return self.state == "failed" or (self.ended and self.retries >= MAX_TRIES)


@dataclass(frozen=True, slots=True)
class MigrationPath:
    """Slots that are to move from one node to another."""

    source: End
    target: End
    slots: Slots


class Mover(Protocol):
    """A server that runs migration jobs."""

    async def jobs(self) -> Sequence[Job]:
        """Return its running and ended jobs, the newest first."""

    async def begin(self, path: MigrationPath) -> None:
        """Start a job."""

    async def cancel(self, job: Job, /) -> None:
        """Cancel a job; harmless if it has ended."""


async def move(mover: Mover, path: MigrationPath, paths: Sequence[MigrationPath], limits: Limits) -> Job | None:
    """Move the slots of a path until time is up; a running job continues by itself.

    Args:
        paths: all planned paths: jobs of no path are cancelled, and other jobs of the mover awaited.

    Returns:
        The last failed job, if jobs of this path failed too often and none is started any more; None otherwise.

    Raises:
        SlotStuck: a job failed; the message contains its error.
        TargetNotReplicating: no replica of the target has the moved keys, or is close enough to receive more.
        RedisError: a server is unreachable.
    """
    clock = asyncio.get_running_loop().time
    observed: set[str] = set()  # jobs that ended earlier do not count
    while True:
        jobs = await mover.jobs()
        running = [job for job in jobs if not job.ended]
        observed |= {job.id for job in running}
        await _cancel_unplanned(mover, running, paths)
        for job in jobs:
            if job.id in observed and job.ended and not job.done and any(_belongs(job, each) for each in paths):
                raise _stuck(job, paths, len(failures(jobs, path)))
        if clock() >= limits.until:
            return None
        if not running:
            if len(failed := failures(jobs, path)) >= MAX_TRIES:
                return failed[0]
            begun = await _begin_next(mover, path, jobs, acknowledge=limits.acknowledge)
            if begun is None:
                return None
            observed |= begun
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _cancel_unplanned(mover: Mover, running: Sequence[Job], paths: Sequence[MigrationPath]) -> None:
    """Cancel jobs that belong to no planned path, and those that the server retried too often.

    Raises:
        SlotStuck: the server retried one too often.
    """
    for job in running:
        if not any(_belongs(job, each) for each in paths):
            await mover.cancel(job)
        elif job.retries >= MAX_TRIES:
            await mover.cancel(job)
            raise _stuck(job, paths, MAX_TRIES)


def failures(jobs: Sequence[Job], path: MigrationPath) -> list[Job]:
    """Return the failed jobs since the last one that moved slots of a path, the newest first; each retry counts."""
    found: list[Job] = []
    for job in jobs:
        if (job.source, job.target) != (path.source.id, path.target.id) or not job.slots & path.slots:
            continue
        if job.done:
            break
        found += [job] * max(1, job.retries) if job.failed else []
    return found


async def _begin_next(
    mover: Mover, path: MigrationPath, before: Sequence[Job], *, acknowledge: bool
) -> set[str] | None:
    """Start the next job, and return the ids of new jobs; None if nothing is left to move."""
    share = await _next(path)
    if share is not None:
        await require_target(path.source, path.target, len(share.slots), acknowledge=acknowledge)
    if acknowledge:  # also of the keys of the previous job
        await await_replica(path.target)
    if share is None:
        return None
    await mover.begin(share)
    return {job.id for job in await mover.jobs()} - {job.id for job in before}


async def _next(path: MigrationPath) -> MigrationPath | None:
    """Return the next slots to move that the source still owns; None if there are none."""
    report = await inspect_node(path.source.server)
    if not (left := path.slots & report.me.slots):
        return None
    a_slot = max(1, report.memory // len(report.me.slots))
    return MigrationPath(path.source, path.target, left.first(max(1, JOB_BYTES // a_slot)))


def _belongs(job: Job, path: MigrationPath) -> bool:
    return (job.source, job.target) == (path.source.id, path.target.id) and not job.slots - path.slots


def _stuck(job: Job, paths: Sequence[MigrationPath], tries: int) -> SlotStuck:
    names = {end.id: end.name for path in paths for end in (path.source, path.target)}
    return SlotStuck(
        f"Slots {job.slots} cannot be moved from {names.get(job.source, job.source)} to "
        f"{names.get(job.target, job.target)} ({job.state}): "
        f"{job.message.strip().rstrip('.') or 'the server reports no error'}. This was attempt {tries} of {MAX_TRIES}; "
        "after the last one these slots are moved key by key. See the logs of both pods.",
        "ERR",
    )
