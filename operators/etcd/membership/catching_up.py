"""Progress of a learner, and how long it may take to make some. Pure.

A new member first receives the whole database as one snapshot, and then the rest of the log. Measured with 3.5 to 3.7:
until the snapshot is applied, the learner answers no client, and its applied index is 0. Only its metrics answer. They
count snapshots that are being received, but no bytes before the end. So the time for the snapshot follows from the size
of the database, and after that the applied index shows progress.
"""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.raft_log import entry
from operators.etcd.state.observed import Instance, Observed
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj

SLOWEST_COPY_BYTES_PER_SECOND = 10**6
"""Speed that a snapshot is expected to reach at least, over a slow network or to a slow disk."""

RECORD_SECONDS = 30.0
"""Minimum time between two records of a learner's progress in the status."""


def applied_index(instance: Instance) -> int | None:
    """Return the index of Raft's log up to which a learner has applied it; None if it is unknown."""
    if instance.status is not None:
        return instance.status.raft_applied
    return instance.progress.applied if instance.progress is not None else None


def progress(instance: Instance, before: Obj | None, now: datetime) -> Obj:
    """Return the progress of a learner for the status: the last index, and since when.

    Args:
        before: the progress in the status; None if there is none.
    """
    index = applied_index(instance) or 0
    if before is not None:
        elapsed = (now - datetime.fromisoformat(before["since"])).total_seconds()
        if index <= before["index"] or elapsed < RECORD_SECONDS:
            return before
    return {"index": index, "since": rfc3339(now)}


def stalled_since(resource: EtcdCluster, instance: Instance) -> datetime | None:
    """Return since when a learner has made no progress; None if it makes some, or nothing is recorded yet.

    The time before its pod or volume was created does not count. If neither is ever created, all time counts: a quota
    or an admission webhook may refuse the pod permanently.
    """
    recorded = entry(resource, instance).get("progress") if instance.member else None
    made = [obj["metadata"].get("creationTimestamp") for obj in (instance.pod_obj, instance.volume) if obj]
    index = applied_index(instance)
    if recorded is None or (index is not None and index > recorded["index"]):
        return None
    return max(datetime.fromisoformat(time) for time in (recorded["since"], *made) if time)


def allowed_seconds(seen: Observed, instance: Instance, patience: float) -> float:
    """Return how long a learner may make no progress.

    A learner that receives the snapshot gets the time for a copy of the database in addition. So does one that runs and
    does not answer at all, because that is not known of it.

    Args:
        patience: seconds that any learner may take.
    """
    if not instance.runs or instance.status is not None:
        return patience
    if instance.progress is not None and not instance.progress.receiving:
        return patience
    size = seen.leader.db_size if seen.leader else max((each.db_size for each in seen.instances), default=0)
    return patience + size / SLOWEST_COPY_BYTES_PER_SECOND
