"""Replication of both ends: MIGRATE deletes the source's copy, so a replica of the target must have the keys too.

A replica of the source that has not deleted them yet would keep them if the source failed right after the slot moved:
it takes over, does not own the slot, and holds keys that nothing removes (the condition ForeignKeys).

WAIT covers the writes of its own connection only: of any command up to Redis 7.0, and of the last write since 7.2. The
keys arrive on the source's connection, so WAIT alone would return at once. Therefore it follows a write that changes
nothing: restoring an empty dump of functions (since 7.0), which every server since then replicates. WAIT counts every
client that replicates the server: INFO shows which of them are replicas of the cluster.

Source: https://redis.io/docs/latest/commands/wait/; `woff` in server.c of Redis 7.0 and 7.2.
"""

from __future__ import annotations

from operators.redis.client.errors import Refused, TargetFull, TargetNotReplicating, reads_replies, sure
from operators.redis.client.responses import Facts, own_followers, parse_followers
from operators.redis.client.server import Command
from operators.redis.migration.participants import End

MAX_LAG_BYTES = 32 * 2**20
"""Maximum difference between the replication offsets of a target and of its best replica, in bytes.

Replicas acknowledge their offset once per second, so a busy primary always shows some difference.
"""

WAIT_MILLISECONDS = 2000
"""Time allowed for a replica to acknowledge a batch, in milliseconds."""

DELETION_MILLISECONDS = 200
"""Time allowed for a replica of the source to delete the keys of a batch, in milliseconds. Nothing is lost without."""

_NO_FUNCTIONS = bytes.fromhex("0a005d9b5c400f7fa2da")
"""An empty FUNCTION DUMP: version 10 of RDB, which every later server reads."""

_INFO: Command = ("INFO", "replication")

_WRITE: tuple[Command, ...] = (("FUNCTION", "RESTORE", _NO_FUNCTIONS, "APPEND"), _INFO)
"""A write, and the replication offset after it: a follower that acknowledges it has all present keys."""


def is_expected(end: End) -> bool:
    """Return whether an end has replicas, running or not."""
    return any(node.primary == end.id for node in end.report.nodes)


def require_replica(target: End, facts: Facts) -> None:
    """Check that a replica of the target follows it closely.

    Args:
        facts: current INFO of the target.

    Raises:
        TargetNotReplicating: all replicas are offline or far behind.
    """
    followers = own_followers(target.report, facts.replicas)
    lags = [facts.offset - replica.offset for replica in followers if replica.online]
    if lags and min(lags) <= MAX_LAG_BYTES:
        return
    why = f"its best replica is {min(lags):,} bytes behind" if lags else "none of its replicas is online"
    raise TargetNotReplicating(
        f"No slot moves to {target.name}: {why}. Moved keys would exist on {target.name} alone. The migration "
        "continues when a replica has caught up. For a cache that may lose keys, set "
        "spec.updateStrategy.waitForReplicas to false."
    )


@reads_replies
async def await_replica(target: End) -> None:
    """Wait until a replica of the target has all its present keys; return at once if the target has no replica.

    Raises:
        TargetFull: the target has no memory for any write.
        TargetNotReplicating: no replica acknowledged them in time.
        Refused: the target refused the write, so that WAIT would wait for nothing.
    """
    if not is_expected(target):
        return
    written, information, *replies = await target.server.pipe([*_WRITE, *_waiting(1)])
    if isinstance(written, Refused) and written.code == "OOM":
        raise TargetFull(f"{target.name} has no memory for further keys. Raise maxmemory, or add primaries.", "OOM")
    sure(written)
    needed, _ = parse_followers(sure(information))
    awaited = 1
    while not _is_acknowledged(target, sure(replies[1]), needed):
        if not isinstance(replies[0], int) or replies[0] < awaited:
            raise _not_acknowledged(target)
        awaited = replies[0] + 1  # other clients were faster
        replies = await target.server.pipe(_waiting(awaited))


def _waiting(count: int) -> list[Command]:
    return [("WAIT", count, WAIT_MILLISECONDS), _INFO]


def _is_acknowledged(target: End, information: str, needed: int) -> bool:
    """Return whether a replica of the target has acknowledged a replication offset."""
    _, followers = parse_followers(information)
    return any(each.offset >= needed for each in own_followers(target.report, followers))


async def await_deletion(source: End) -> None:
    """Wait for a while until a replica of the source has deleted the moved keys, on the connection that moved them."""
    if is_expected(source):
        await source.server.pipe([("WAIT", 1, DELETION_MILLISECONDS)])


def _not_acknowledged(target: End) -> TargetNotReplicating:
    return TargetNotReplicating(
        f"Migration to {target.name} paused: no replica of it acknowledged the last keys within "
        f"{WAIT_MILLISECONDS / 1000:g} s. The migration continues when a replica has caught up. For a cache that may "
        "lose keys, set spec.updateStrategy.waitForReplicas to false."
    )
