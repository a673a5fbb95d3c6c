"""Atomic slot migration of `FakeRedis`, as in Valkey 9: copy the keys in the background, then switch all slots at once.

Source: cluster_migrateslots.c of Valkey 9.0; CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS and CANCELSLOTMIGRATIONS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from operators.redis.client.errors import Refused
from operators.redis.slots.hash_slots import Slots
from tests.unit.redis.simulation import data
from tests.unit.redis.simulation.node import bits, slot_of
from tests.unit.redis.simulation.process import Migration, Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis

Words = Sequence[bytes]

DURATION_SECONDS = 0.5
"""Seconds until a migration ends without being polled."""

POLLS = 2
"""Polls after which a migration ends; polling does not advance the time of the world."""


def migrate_slots(redis: FakeRedis, process: Process, words: Words) -> str:
    """MIGRATESLOTS SLOTSRANGE first last [first last …] NODE id [SLOTSRANGE …]."""
    if process.engine != "valkey" or int(process.version.partition(".")[0]) < 9:
        raise Refused("ERR unknown subcommand 'MIGRATESLOTS'. Try CLUSTER HELP.")
    node, jobs = process.node, []
    left = [word.decode() for word in words]
    while left:
        at = left.index("NODE")
        numbers = [int(word) for word in left[1:at]]
        slots = sum((1 << (last + 1)) - (1 << first) for first, last in zip(numbers[::2], numbers[1::2], strict=True))
        jobs.append((slots, left[at + 1]))
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
        process.migrations.append(Migration(node.unique("job"), slots, target, begun=redis.now))
    return "OK"


def migrations(redis: FakeRedis, process: Process, _: Words) -> list[list[Any]]:
    """Return the migrations as RESP2 encodes maps: names and values in turn."""
    node = process.node
    for job in process.migrations:
        job.polls += 1
        if job.state == "migrating" and job.polls > POLLS:
            _finish(redis, process, job)
    found = []
    for job in reversed(process.migrations):
        pairs: dict[str, Any] = {
            "name": job.name,
            "operation": "EXPORT",
            "slot_ranges": str(Slots(job.slots)),
            "source_node": node.id,
            "target_node": job.target,
            "last_update_time": int(job.updated or job.begun),
            "state": {"migrating": "snapshotting"}.get(job.state, job.state),
            "message": job.message,
        }
        found.append([part for pair in pairs.items() for part in pair])
    return found


def cancel(redis: FakeRedis, process: Process, __: Words) -> str:
    for job in process.migrations:
        if job.state == "migrating":
            job.state, job.updated = "cancelled", redis.now
    return "OK"


def proceed(redis: FakeRedis, process: Process) -> None:
    """Finish the migrations whose time has passed, with success or failure."""
    for job in process.migrations:
        if job.state == "migrating" and redis.now - job.begun >= DURATION_SECONDS:
            _finish(redis, process, job)


def _finish(redis: FakeRedis, process: Process, job: Migration) -> None:
    node = process.node
    known = node.known.get(job.target)
    target = redis.reached(process, known.address, known.port) if known else None
    job.state, job.updated = "failed", redis.now
    if known is None or target is None or target.node.id != job.target or target.node.me.primary:
        job.message = "Connection lost to target"
    elif node.me.primary or job.slots & ~node.me.slots:
        job.message = "Slots are no longer owned by myself"
    elif not target.admits(process):
        job.message = "Received error during handshake to target: -WRONGPASS"
    elif target.pod in redis.full:
        job.message = "Target node is out of memory"
    else:
        job.state = "success"
        moved = {key: value for key, value in node.keys.items() if job.slots >> slot_of(key) & 1}
        target.node.keys |= moved
        node.drop(job.slots)
        for each in (node, target.node):
            for slot in bits(job.slots):
                each.give(slot, each.known[job.target])
        other = target.node
        other.epoch = max(node.epoch, other.epoch, *(known.epoch for known in other.known.values())) + 1
        other.me.epoch = other.epoch
        known.epoch = node.epoch = other.epoch
        target.broadcast_pending = process.broadcast_pending = True
        redis.done["slots moved"] += job.slots.bit_count()
        for server in (target, process):
            data.wrote(server)
        redis.settle(f"slots of {process.pod} move to {target.pod}")
