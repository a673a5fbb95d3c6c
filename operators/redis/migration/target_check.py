"""Checks before slots are opened: the target is still the same process, has memory, and is replicated."""

from __future__ import annotations

from operators.redis.client import responses
from operators.redis.client.errors import SlotStuck, TargetFull, Unreachable, reads_replies
from operators.redis.client.key_counts import DATABASES, count_databases
from operators.redis.client.responses import Facts
from operators.redis.migration import acknowledgement
from operators.redis.migration.participants import End


async def require_one_database(*ends: End) -> None:
    """Check that nodes have one database, as key by key only the keys of database 0 move.

    Raises:
        SlotStuck: a node has several.
        RedisError: a node is unreachable, or does not report how many.
    """
    several = {end.name: number for end in ends if (number := await count_databases(end.server)) > 1}
    if several:
        run = "run" if len(several) > 1 else "runs"
        raise SlotStuck(
            f"{' and '.join(several)} {run} with {DATABASES} {max(several.values())}, and only keys of database 0 move "
            "key by key. No key was moved. Servers move all databases (CLUSTER MIGRATESLOTS): see their logs for why "
            f"they failed, and restart {ends[0].name} for another attempt. Or move all keys to database 0, and set "
            f"{DATABASES} to 1."
        )


@reads_replies
async def require_target(source: End, target: End, slots: int, *, acknowledge: bool) -> None:
    """Check that a target can receive slots now.

    Args:
        slots: number of slots of the source.
        acknowledge: whether a replica of the target must have the keys too, if the target has replicas.

    Raises:
        TargetFull: the slots would not fit into its memory.
        TargetNotReplicating: no replica of it is online and close behind.
        Unreachable: the target restarted since its report.
    """
    facts = responses.parse_facts(await target.server.execute("INFO"))
    if facts.run_id != target.report.run_id:
        raise Unreachable(f"{target.name} restarted during the migration, which continues with its new state.")
    require_memory(source, target, slots, facts)
    if acknowledge and acknowledgement.is_expected(target):
        acknowledgement.require_replica(target, facts)


def require_memory(source: End, target: End, slots: int, facts: Facts) -> None:
    """Check the memory of the target; a node that evicts keys is never full.

    Raises:
        TargetFull: the slots would not fit, estimated from the average slot of the source.
    """
    most, report = facts.max_memory, source.report
    if not most or facts.evicts:
        return
    needed = report.memory * slots // max(1, len(report.me.slots))
    if facts.memory + needed > most:
        raise TargetFull(
            f"{target.name} uses {facts.memory} of {most} bytes (maxmemory), and {slots} slots of {source.name} are "
            f"estimated at {needed} bytes. Raise maxmemory, or add primaries.",
            "OOM",
        )
