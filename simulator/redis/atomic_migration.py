"""Atomic slot migration of `SimulatedRedis`: copy the keys in the background, then switch all slots at once.

In Valkey 9 the source runs the jobs, in Redis 8.4 the target. Redis retries a failed job until it is cancelled, and a
node takes part in one at a time. A source with Redis counts the moved keys in INFO until it has deleted them.

Source: cluster_migrateslots.c of Valkey 9.0; CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS and CANCELSLOTMIGRATIONS.
cluster_asm.c of Redis 8.4; CLUSTER MIGRATION.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from operators.redis.client.errors import Refused
from operators.redis.slots.hash_slots import Slots
from simulator.redis import data
from simulator.redis.node import bits, slot_of
from simulator.redis.process import Migration, Process

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis

Words = Sequence[bytes]

DURATION_SECONDS = 0.5
"""Seconds until a migration ends without being polled."""

TRIM_SECONDS = 3.0
"""Time for which a source with Redis deletes keys that have moved, in seconds."""

POLLS = 2
"""Polls after which a migration ends; polling does not advance the time of the world."""


def migrate_slots(redis: SimulatedRedis, process: Process, words: Words) -> str:
    """MIGRATESLOTS SLOTSRANGE first last [first last …] NODE id [SLOTSRANGE …]."""
    if process.engine != "valkey" or int(process.version.partition(".")[0]) < 9:
        raise Refused("ERR unknown subcommand 'MIGRATESLOTS'. Try CLUSTER HELP.")
    node, jobs = process.node, []
    left = [word.decode() for word in words]
    while left:
        at = left.index("NODE")
        numbers = [int(word) for word in left[1:at]]
        jobs.append((_ranged(numbers), left[at + 1]))
        left = left[at + 2 :]
    for slots, target in jobs:
        known = node.known.get(target)
        if known is None or known.in_handshake:
            raise Refused(f"ERR Unknown node {target}")
        if known.primary:
            raise Refused(f"ERR Target node {target} is not a primary")
        if slots & ~node.me.slots:
            raise Refused("ERR Slots are not served by myself")
        if any(job.slots & slots for job in process.migrations if job.state == "migrating"):
            raise Refused("ERR I am already migrating a slot of these")
    for slots, target in jobs:
        process.migrations.append(Migration(node.unique("job"), node.id, slots, target, begun=redis.now))
    return "OK"


def _ranged(numbers: Sequence[int]) -> int:
    """Return the mask of slots that are listed as the first and last of each range."""
    return sum((1 << (last + 1)) - (1 << first) for first, last in zip(numbers[::2], numbers[1::2], strict=True))


def migrations(redis: SimulatedRedis, process: Process, _: Words) -> list[list[Any]]:
    """Return the migrations as RESP2 encodes maps: names and values in turn."""
    return [
        [
            *("name", job.name, "operation", "EXPORT", "slot_ranges", str(Slots(job.slots))),
            *("source_node", job.source, "target_node", job.target),
            *("last_update_time", int(job.updated or job.begun)),
            *("state", {"migrating": "snapshotting"}.get(job.state, job.state), "message", job.message),
        ]
        for job in _polled(redis, process)
    ]


def _polled(redis: SimulatedRedis, process: Process) -> list[Migration]:
    """Return the jobs of a server, the newest first; those that were polled often enough end."""
    for job in process.migrations:
        job.polls += 1
        if job.state == "migrating" and job.polls > POLLS:
            _finish(redis, process, job)
    return process.migrations[::-1]


def cancel(redis: SimulatedRedis, process: Process, __: Words) -> str:
    _cancel(redis, process)
    return "OK"


def _cancel(redis: SimulatedRedis, process: Process, name: str = "") -> int:
    """Cancel one or all jobs of a server, and return how many."""
    found = [job for job in process.migrations if _is_active(process, job) and name in ("", job.name)]
    for job in found:
        job.state, job.updated = "cancelled", redis.now
    return len(found)


def _is_active(process: Process, job: Migration) -> bool:
    """Whether a server is not done with a job: Redis retries one that failed."""
    return job.state == "migrating" or (job.state == "failed" and process.imports_slots)


def import_slots(redis: SimulatedRedis, process: Process, words: Words) -> str:
    """MIGRATION IMPORT first last [first last …]."""
    _require_imports(process)
    node, slots = process.node, _ranged([int(word) for word in words[1:]])
    owners = {known.id for known in node.known.values() if known.slots & slots}
    if node.me.primary:
        raise Refused("ERR slot migration not allowed on replica.")
    if node.migrating or node.importing:
        raise Refused("ERR all slot states must be STABLE to start a slot migration task.")
    if slots & ~node.assigned or len(owners) != 1:
        raise Refused("ERR slots belong to different source nodes")
    if node.id in owners:
        raise Refused("ERR this node is already the owner of the slot range")
    if _takes_part(redis, process):
        raise Refused("ERR another ASM task is already in progress")
    _cancel(redis, process)
    process.migrations.append(Migration(node.unique("job"), owners.pop(), slots, node.id, begun=redis.now))
    return process.migrations[-1].name


def tasks(redis: SimulatedRedis, process: Process, _: Words) -> list[list[Any]]:
    """MIGRATION STATUS ALL: of the imports, as RESP2 encodes maps."""
    _require_imports(process)
    names = {"migrating": "streaming-buffer", "success": "completed", "cancelled": "canceled"}
    return [
        [
            *("id", job.name, "slots", str(Slots(job.slots)), "source", job.source, "dest", job.target),
            *("operation", "import", "state", names.get(job.state, job.state), "last_error", job.message),
            *("retries", job.retries, "create_time", int(job.begun * 1000), "start_time", int(job.begun * 1000)),
            *("end_time", int(job.updated * 1000), "write_pause_ms", 0),
        ]
        for job in _polled(redis, process)
    ]


def cancel_tasks(redis: SimulatedRedis, process: Process, words: Words) -> int:
    """MIGRATION CANCEL ALL, or ID name."""
    _require_imports(process)
    return _cancel(redis, process, "".join(word.decode() for word in words[2:]))


def _require_imports(process: Process) -> None:
    if not process.imports_slots:
        raise Refused("ERR unknown subcommand 'MIGRATION'. Try CLUSTER HELP.")


def _takes_part(redis: SimulatedRedis, process: Process, but: Migration | None = None) -> bool:
    """Whether a Redis node is one end of a running job, other than a given one."""
    jobs = [job for other in redis.running for job in other.migrations if job.state == "migrating" and job is not but]
    return any(process.node.id in (job.source, job.target) for job in jobs)


def proceed(redis: SimulatedRedis, process: Process) -> None:
    """Finish the migrations whose time has passed, with success or failure."""
    for job in process.migrations:
        if not _is_active(process, job):
            continue
        if process.imports_slots and process.node.me.primary:
            job.state, job.updated = "cancelled", redis.now
        elif redis.now - max(job.begun, job.updated) >= DURATION_SECONDS:
            job.retries += job.state == "failed"
            _finish(redis, process, job)


def _finish(redis: SimulatedRedis, process: Process, job: Migration) -> None:
    node = process.node
    peer_id = job.source if process.imports_slots else job.target
    known = node.known.get(peer_id)
    peer = redis.reached(process, known.address, known.port) if known else None
    job.state, job.updated = "failed", redis.now
    if peer is None or peer.node.id != peer_id:
        job.message = "Connection lost"
        return
    source, target = (peer, process) if process.imports_slots else (process, peer)
    if target.node.me.primary or target.node.id not in source.node.known:
        job.message = "Connection lost to target"
    elif source.node.me.primary or job.slots & ~source.node.me.slots:
        job.message = "Slots are no longer owned by the source"
    elif process.imports_slots and (source.node.migrating or _takes_part(redis, source, job)):
        job.message = "The source takes part in another migration"
    elif not peer.admits(process):
        job.message = "Received error during handshake: -WRONGPASS"
    elif target.pod in redis.full:
        job.message = "Target node is out of memory"
    else:
        job.state = "success"
        _switch(redis, source, target, job.slots)


def _switch(redis: SimulatedRedis, source: Process, target: Process, slots: int) -> None:
    """Give all slots to the target, with their keys."""
    node, other = source.node, target.node
    moved = {key: value for key, value in node.keys.items() if slots >> slot_of(key) & 1}
    other.keys |= moved
    node.drop(slots)
    if source.imports_slots:
        source.trimmed = len(moved), redis.now + TRIM_SECONDS
    for each in (node, other):
        for slot in bits(slots):
            each.give(slot, each.known[other.id])
    other.epoch = max(node.epoch, other.epoch, *(known.epoch for known in other.known.values())) + 1
    other.me.epoch = other.epoch
    node.known[other.id].epoch = node.epoch = other.epoch
    target.broadcast_pending = source.broadcast_pending = True
    redis.done["slots moved"] += slots.bit_count()
    for server in (target, source):
        data.wrote(server)
    redis.settle(f"slots of {source.pod} move to {target.pod}")
