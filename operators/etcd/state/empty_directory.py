"""Starts at which etcd found its data directory empty: the data may be lost, or the disk is not mounted. Pure.

etcd exits at once if its directory is empty and its flags do not allow it to start there. That is also what it finds in
the directory below the mount point of a disk that is not mounted yet, or not any more. So one such start leaves it
unknown whether the data is lost. It counts as lost if the directory was empty at two starts, some minutes apart, and at
each start that the operator observed in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from operators.etcd.objects.bootstrap import REFUSED
from operators.etcd.objects.names import CONTAINER
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import container_status
from shared.steps.confirmed_recovery import LONGEST_GAP

MIN_APART = timedelta(minutes=2)
"""Time between two starts after which an empty directory counts as lost data. The kubelet restarts a container that
exits after 10 s, 20 s, 40 s and so on, up to 5 minutes."""

AWAITING_PROOF = "Check that the disk is mounted: data counts as lost if it is empty at two starts, 2 minutes apart."
"""Advice while it is unknown whether an empty directory is a loss of data."""


@dataclass(frozen=True, slots=True)
class EmptyStarts:
    """Starts in a row at which the directory was empty: the first and the last one."""

    first: datetime
    last: datetime

    @property
    def prove_loss(self) -> bool:
        return self.last - self.first >= MIN_APART

    def __str__(self) -> str:
        if not self.prove_loss:
            return f"its data directory was empty at the start at {self.last:%H:%M:%S} UTC"
        return f"its data directory was empty at the starts at {self.first:%H:%M:%S} and {self.last:%H:%M:%S} UTC"


def observed(pod: Obj | None, before: Obj | None) -> EmptyStarts | None:
    """Return the starts up to the last one; None if that one did not find the directory empty, or has not ended.

    Args:
        before: status.members[].foundEmpty.
    """
    ended = _last_end(pod)
    if REFUSED not in (ended.get("message") or "") or not ended.get("startedAt"):
        return None
    start = datetime.fromisoformat(ended["startedAt"])
    first, last = (datetime.fromisoformat(before[name]) for name in ("first", "last")) if before else (start, start)
    if not first <= start <= last + LONGEST_GAP:  # the directory may have had data in between
        return EmptyStarts(start, start)
    return EmptyStarts(first, max(start, last))


def to_record(pod: Obj | None, found: EmptyStarts | None, before: Obj | None, *, answers: bool) -> Obj | None:
    """Return status.members[].foundEmpty: kept until the member answers, or its server ends for another reason."""
    if found is not None:
        return {"first": rfc3339(found.first), "last": rfc3339(found.last)}
    return None if answers or _last_end(pod) else before


def _last_end(pod: Obj | None) -> Obj:
    """Return how etcd's container last ended; empty while it runs, or before it ended for the first time."""
    state, last = (container_status(pod, CONTAINER).get(key) or {} for key in ("state", "lastState"))
    found: Obj = {} if "running" in state else state.get("terminated") or last.get("terminated") or {}
    return found
