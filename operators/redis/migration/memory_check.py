"""Whether a node has memory for slots that it is to be given."""

from __future__ import annotations

from operators.redis.client import responses
from operators.redis.client.errors import TargetFull
from operators.redis.migration.participants import End


async def require_memory(source: End, target: End, slots: int) -> None:
    """Look before slots are begun to move; one that makes room by itself is never full.

    Args:
        slots: how many.

    Raises:
        TargetFull: by what a slot takes on the average, they would not fit.
    """
    most, report = target.report.max_memory, source.report
    if not most or target.report.evicts:
        return
    used = responses.parse_facts(await target.server.execute("INFO")).memory
    needed = report.memory * slots // max(1, len(report.me.slots))
    if used + needed > most:
        raise TargetFull(
            f"{target.name} uses {used} of {most} bytes (maxmemory), and {slots} slots of {source.name} are estimated "
            f"at {needed}. Give nodes more memory, or have more masters.",
            "OOM",
        )
