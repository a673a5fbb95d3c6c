"""Migration jobs of the servers: started one after the other, awaited, and cancelled if they are not in the plan.

A job forks, sends a snapshot of its slots and then the writes since, blocks writes for a moment, and hands over all
slots at once: no slot is ever open, and a failed job leaves everything unchanged. Jobs run in the servers: if the
operator stops, they continue, and it finds them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, Protocol

from operators.redis.client.errors import SlotStuck, reads_replies
from operators.redis.client.node_inspection import inspect_node
from operators.redis.migration.acknowledgement import await_replica
from operators.redis.migration.claim_renewal import note_arrival
from operators.redis.migration.journal import Journal
from operators.redis.migration.participants import End, Limits
from operators.redis.migration.target_check import require_target
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.view_conflicts import brief

JOB_BYTES = 256 * 2**20
"""Maximum size of a job in bytes, as estimated: it limits the cost of a failure, and the memory on both ends."""

POLL_INTERVAL_SECONDS = 0.01
"""Interval at which a job is inspected."""

MAX_TRIES = 3
"""Number of failures after which slots are moved key by key: each try forks the source. Also that of a server's own
retries of one job."""

OTHERS_SECONDS = 2.0
"""Time for which a job of another client is awaited before it is reported. It may also be one that an earlier process
of the operator could not record any more.
"""

CANCELLED_SECONDS, MAX_CANCELLED_SECONDS = 60.0, 3600.0
"""Time until slots move again after their job was cancelled: at first, and at most."""


@dataclass(frozen=True, slots=True)
class Job:
    """A migration job.

    Attributes:
        source, target: node ids.
        state: state as the server names it.
        message: error of the job, if any.
        ended: whether the server is done with it.
        retries: number of retries, for servers that retry.
        ended_at: time at which it ended, by the clock of the server, in seconds since 1970.
    """

    id: str
    source: str
    target: str
    slots: Slots
    state: str
    message: str
    ended: bool
    retries: int = 0
    ended_at: float = 0.0

    @property
    def done(self) -> bool:
        """Whether the target owns the slots now."""
        return self.state in ("success", "completed")

    @property
    def failed(self) -> bool:
        """Whether it failed: by itself, or because the operator cancelled it after too many retries."""
        return self.state == "failed" or (self.ended and self.retries >= MAX_TRIES)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, by a client or by the server, and did not fail before."""
        return self.ended and not self.done and not self.failed


@dataclass(frozen=True, slots=True)
class MigrationPath:
    """Slots that are to move from one node to another."""

    source: End
    target: End
    slots: Slots


class Mover(Protocol):
    """A server that runs migration jobs.

    Attributes:
        cancels_one: whether a single job can be cancelled.
    """

    cancels_one: ClassVar[bool]

    @property
    def end(self) -> End:
        """The server."""

    async def jobs(self) -> Sequence[Job]:
        """Return its running and ended jobs, the newest first."""

    async def begin(self, path: MigrationPath) -> None:
        """Start a job."""

    async def cancel(self, job: Job, /) -> None:
        """Cancel a job; harmless if it has ended."""


async def move(
    mover: Mover, path: MigrationPath, paths: Sequence[MigrationPath], limits: Limits, journal: Journal
) -> Job | None:
    """Move the slots of a path until time is up; a running job continues by itself.

    Args:
        paths: all planned paths: the operator's jobs of no path are cancelled, and its other jobs of the mover awaited.
        journal: where the operator's jobs are recorded.

    Returns:
        The last failed job, if jobs of this path failed too often and none is started any more; None otherwise.

    Raises:
        SlotStuck: a job failed, or was cancelled not long ago, or another client runs one; the message explains it.
        TargetNotReplicating: no replica of the target has the moved keys, or is close enough to receive more.
        KubeError: the job cannot be recorded.
        RedisError: a server is unreachable.
    """
    clock = asyncio.get_running_loop().time
    patient_until = clock() + OTHERS_SECONDS
    observed: set[str] = set()  # jobs that ended earlier do not count
    while True:
        jobs = await mover.jobs()
        note_arrival(path.target)  # slots of a job arrive together, at any time
        own = [job for job in jobs if journal.owns(mover.end.id, job.id)]
        running = [job for job in own if not job.ended]
        others = [job for job in jobs if not job.ended and job not in own]
        observed |= {job.id for job in running}
        if not others or mover.cancels_one:
            await _cancel_unplanned(mover, running, paths, journal)
        for job in own:
            if job.id in observed and job.ended and not job.done and any(_belongs(job, each) for each in paths):
                raise _stuck(job, paths, len(failures(own, path)))
        if clock() >= limits.until:
            return None
        if others and clock() >= patient_until:
            raise _others(others[0], mover, paths)
        if not running and not others:
            await _require_patience(mover, own, path)
            if len(failed := failures(own, path)) >= MAX_TRIES:
                return failed[0]
            begun = await _begin_next(mover, path, jobs, journal, acknowledge=limits.acknowledge)
            if begun is None:
                return None
            observed |= begun
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _cancel_unplanned(
    mover: Mover, running: Sequence[Job], paths: Sequence[MigrationPath], journal: Journal
) -> None:
    """Cancel jobs of the operator that belong to no planned path, and those that the server retried too often.

    Raises:
        SlotStuck: the server retried one too often.
    """
    for job in running:
        if not any(_belongs(job, each) for each in paths):
            await mover.cancel(job)
            left = {each.name for each in journal.jobs if each.node == mover.end.id} - {job.id}
            await journal.set_jobs(mover.end.id, left)  # its end is no decision of another client
        elif job.retries >= MAX_TRIES:
            await mover.cancel(job)
            raise _stuck(job, paths, MAX_TRIES)


@reads_replies
async def _require_patience(mover: Mover, own: Sequence[Job], path: MigrationPath) -> None:
    """Check that the last job of a path was not cancelled, or long enough ago.

    Raises:
        SlotStuck: another one would follow too soon.
    """
    since_success = list(takewhile(lambda job: not job.done, (job for job in own if _overlaps(job, path))))
    if not since_success or not since_success[0].cancelled:
        return
    job, times = since_success[0], sum(each.cancelled for each in since_success)
    delay = min(CANCELLED_SECONDS * 2 ** (times - 1), MAX_CANCELLED_SECONDS)
    left = job.ended_at + delay - float((await mover.end.server.execute("TIME"))[0])
    if left > 0:
        raise SlotStuck(
            f"Another client or the server cancelled the migration of {brief(job.slots)} from {path.source.name} to "
            f"{path.target.name}. The operator tries again in {left:.0f} s. To prevent that, set spec.pause, or change "
            "the spec so that these slots need not move.",
            "ERR",
        )


def failures(jobs: Sequence[Job], path: MigrationPath) -> list[Job]:
    """Return the failed jobs since the last one that moved slots of a path, the newest first; each retry counts."""
    found: list[Job] = []
    for job in jobs:
        if not _overlaps(job, path):
            continue
        if job.done:
            break
        found += [job] * max(1, job.retries) if job.failed else []
    return found


async def _begin_next(
    mover: Mover, path: MigrationPath, before: Sequence[Job], journal: Journal, *, acknowledge: bool
) -> set[str] | None:
    """Start the next job, record it, and return the ids of new jobs; None if nothing is left to move."""
    share = await _next(path)
    if share is not None:
        await require_target(path.source, path.target, len(share.slots), acknowledge=acknowledge)
    if acknowledge:  # also of the keys of the previous job
        await await_replica(path.target)
    if share is None:
        return None
    await mover.begin(share)
    jobs, known = await mover.jobs(), {job.id for job in before}
    begun = {job.id for job in jobs if job.id not in known and _belongs(job, share)}
    node = mover.end.id
    # A name that the server does not report any more needs no record, nor one of a job that succeeded.
    kept = {job.id for job in jobs if not job.done and journal.owns(node, job.id)}
    await journal.set_jobs(node, kept | begun)
    return begun


async def _next(path: MigrationPath) -> MigrationPath | None:
    """Return the next slots to move that the source still owns; None if there are none."""
    report = await inspect_node(path.source.server)
    if not (left := path.slots & report.me.slots):
        return None
    a_slot = max(1, report.memory // len(report.me.slots))
    return MigrationPath(path.source, path.target, left.first(max(1, JOB_BYTES // a_slot)))


def _belongs(job: Job, path: MigrationPath) -> bool:
    return (job.source, job.target) == (path.source.id, path.target.id) and not job.slots - path.slots


def _overlaps(job: Job, path: MigrationPath) -> bool:
    return (job.source, job.target) == (path.source.id, path.target.id) and bool(job.slots & path.slots)


def _others(job: Job, mover: Mover, paths: Sequence[MigrationPath]) -> SlotStuck:
    names = {end.id: end.name for path in paths for end in (path.source, path.target)}
    return SlotStuck(
        f"Another client migrates {brief(job.slots)} from {names.get(job.source, job.source)} to "
        f"{names.get(job.target, job.target)} (job {job.id}). The operator does not cancel it, and moves no slots of "
        f"{mover.end.name} until it ends.",
        "ERR",
    )


def _stuck(job: Job, paths: Sequence[MigrationPath], tries: int) -> SlotStuck:
    names = {end.id: end.name for path in paths for end in (path.source, path.target)}
    return SlotStuck(
        f"Slots {job.slots} cannot be moved from {names.get(job.source, job.source)} to "
        f"{names.get(job.target, job.target)} ({job.state}): "
        f"{job.message.strip().rstrip('.') or 'the server reports no error'}. This was attempt {tries} of {MAX_TRIES}; "
        "after the last one these slots are moved key by key. See the logs of both pods.",
        "ERR",
    )
