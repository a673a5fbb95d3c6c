"""What the status says about slots that are to move: status.migration and status.assigned. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.assessment import Assessment
from shared.kubernetes.kinds import Obj


def assigned(seen: Assessment) -> list[Obj]:
    """Return status.assigned: what new primaries have yet to receive by hand."""
    moves = seen.slot_plan.assignments if seen.resource.formed else ()
    return [{"from": move.source, "to": move.target, "slots": str(move.slots)} for move in moves]


def progress(seen: Assessment, now: datetime) -> Obj | None:
    """Return status.migration: how many slots have moved of those that had to at its start; None if none has to."""
    moves = seen.slot_plan.moves if seen.resource.formed else ()
    if not moves:
        return None
    left, before = sum(len(move.slots) for move in moves), seen.resource.reported.get("migration") or {}
    total = before.get("slots", 0)
    if left > total - before.get("moved", 0):  # more than were left: this is another plan
        before, total = {}, left
    givers = {seen.name_of(move.source) for move in moves} | _names(before, "from")
    takers = {seen.name_of(move.target) for move in moves} | _names(before, "to")
    held = sum(instance.report.keys for instance in seen.instances if instance.report and instance.name in takers)
    status = {"from": ",".join(sorted(givers)), "to": ",".join(sorted(takers)), "slots": total, "moved": total - left}
    begun = {"since": f"{now:%Y-%m-%dT%H:%M:%SZ}", "keys": held}
    status |= {key: before.get(key, value) for key, value in begun.items()}
    pace = before.get("keysPerSecond")
    if total - left != before.get("moved", 0):
        seconds = max((now - datetime.fromisoformat(status["since"])).total_seconds(), 1.0)
        pace = max(int((held - status["keys"]) / seconds), 0)
    return status if pace is None else status | {"keysPerSecond": pace}


def _names(before: Obj, end: str) -> set[str]:
    return set(filter(None, before.get(end, "").split(",")))
