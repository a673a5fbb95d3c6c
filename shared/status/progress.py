"""Progress of unfinished work, in numbers: how much is done, of how much, and for how much longer. Pure.

The numbers are for people and dashboards; no step depends on them. `shared.status.verdict` has the progress as a state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from shared.kubernetes.kinds import Obj

FIELD = "progress"


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of work that a resource needs until it matches its spec.

    Attributes:
        what: the counted things, such as Pods.
        done: number of those that are complete.
        total: number of all.
        since: time at which none was complete; None if no estimate is possible.
    """

    what: str
    done: int
    total: int
    since: datetime | None = None


def report(before: Obj, work: Iterable[Work], now: datetime) -> Obj:
    """Return the field of the status; empty if nothing is left to do.

    An entry changes only when its numbers do, so that an estimate causes no write of its own.

    Args:
        before: the present status.
    """
    known = {entry["what"]: entry for entry in before.get(FIELD) or ()}
    entries = [_entry(known.get(each.what) or {}, each, now) for each in work if each.done < each.total]
    return {FIELD: entries} if entries else {}


def _entry(before: Obj, work: Work, now: datetime) -> Obj:
    found: Obj = {"what": work.what, "done": work.done, "total": work.total}
    if all(before.get(key) == value for key, value in found.items()):
        return before
    if work.since is not None and work.done > 0:
        elapsed = max((now - work.since).total_seconds(), 0.0)
        found["remainingSeconds"] = round(elapsed / work.done * (work.total - work.done))
    return found
