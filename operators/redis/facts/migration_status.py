"""The parts of the status about slots that move: status.migration and assigned. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.facts.assessment import Assessment
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj


def assigned(seen: Assessment) -> list[Obj]:
    """Return status.assigned: slots that new primaries still have to receive by manual assignment."""
    left = seen.slot_plan.assignments if seen.resource.formed else ()
    return [{"from": move.source, "to": move.target, "slots": str(move.slots)} for move in left]


def progress(seen: Assessment) -> Obj | None:
    """Return status.migration: moved slots of the total; None if no slot has to move."""
    planned = seen.slot_plan.moves if seen.resource.formed else ()
    if not planned:
        return None
    left, before = sum(len(move.slots) for move in planned), seen.resource.reported.get("migration") or {}
    total = before.get("slots", 0)
    if left > total - before.get("moved", 0):  # more slots than before: this is another plan
        before, total = {}, left
    sources = {seen.name_of(move.source) for move in planned} | _names(before, "from")
    targets = {seen.name_of(move.target) for move in planned} | _names(before, "to")
    keys = sum(instance.report.keys for instance in seen.instances if instance.report and instance.name in targets)
    status = {"from": ",".join(sorted(sources)), "to": ",".join(sorted(targets)), "slots": total, "moved": total - left}
    begun = {"since": rfc3339(seen.now), "keys": keys, "primaries": len(seen.view.primaries)}
    status |= {key: before.get(key, value) for key, value in begun.items()}
    pace = before.get("keysPerSecond")
    if total - left != before.get("moved", 0):
        seconds = max((seen.now - datetime.fromisoformat(status["since"])).total_seconds(), 1.0)
        pace = max(int((keys - status["keys"]) / seconds), 0)
    return status if pace is None else status | {"keysPerSecond": pace}


def _names(before: Obj, end: str) -> set[str]:
    return set(filter(None, before.get(end, "").split(",")))
