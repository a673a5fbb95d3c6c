"""Checks that a node has memory for the slots that it is to receive."""

from __future__ import annotations

from operators.redis.client import responses
from operators.redis.client.errors import TargetFull
from operators.redis.migration.participants import End


async def require_memory(source: End, target: End, slots: int) -> None:
    """Check the memory of the target before slots are opened; a node that evicts keys is never full.

    Args:
        slots: number of slots.

    Raises:
        TargetFull: the slots would not fit, estimated from the average slot of the source.
    """
    most, report = target.report.max_memory, source.report
    if not most or target.report.evicts:
        return
    used = responses.parse_facts(await target.server.execute("INFO")).memory
    needed = report.memory * slots // max(1, len(report.me.slots))
    if used + needed > most:
        raise TargetFull(
            f"{target.name} uses {used} of {most} bytes (maxmemory), and {slots} slots of {source.name} are estimated "
            f"at {needed} bytes. Raise maxmemory, or add primaries.",
            "OOM",
        )
