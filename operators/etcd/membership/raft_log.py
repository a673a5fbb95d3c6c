"""Contents of a cluster's Raft log, and whether the next version can read it. Pure.

A member that starts reads its log from its last Raft snapshot on. Until 3.5, members write their attributes and the
cluster version in a former format (`pb.Request`). 3.6 reads both formats, and writes only the new one. 3.7 panics on
the former one at each start: measured with 3.5.35 → 3.6.16 → 3.7.3. A member writes a snapshot after a number of
entries. So when that many entries have followed since all members run 3.6, each member has a snapshot of 3.6. A new
member begins with a snapshot of the leader.

The status records the evidence: since which entry the cluster runs as a series (`runsAs`), and which members have
written a snapshot since (`snapshottedAs`). A record that is missing is unknown, and does not permit an upgrade.

Source: applyEntryNormal and shouldSnapshotToDisk in server/etcdserver/server.go of 3.6, publish and
updateClusterVersionV2 of 3.5, and Apply in server/etcdserver/apply/apply.go of 3.7.
"""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import SUPPORTED, Version
from operators.etcd.membership.evidence import GOOD, Finding, bad, unknown
from operators.etcd.objects import bootstrap
from operators.etcd.objects.command_line import SNAPSHOT_COUNT, number_given
from operators.etcd.state.observed import Instance, Observed
from shared.api.catalogue import dotted
from shared.kubernetes.kinds import Obj

WRITES_SINCE = {(3, 7): (3, 6)}
"""Oldest series whose log entries another series can read."""

UNKNOWN_SERIES = "unknown"
"""Value of status.runsAs.after if an earlier series may have written the log: the status was lost, or is older."""

ENTRIES_PER_SNAPSHOT = 10_000
"""Default number of entries after which 3.6 writes a snapshot (DefaultSnapshotCount in embed/config.go)."""


def runs_as(resource: EtcdCluster, seen: Observed, cluster_id: str | None) -> Obj | None:
    """Return status.runsAs: the series that the cluster runs as, since which entry, and the one before.

    Args:
        cluster_id: cluster id of the new status; another one than before has a log of its own.
    """
    before: Obj = resource.reported.get("runsAs") or {}
    if before.get("clusterID") != cluster_id:
        before = {}
    leader = seen.leader.status if seen.leader else None
    if cluster_id is None or leader is None:
        return before or None
    starts_here = not before and _begins(resource, seen)
    version = Version.parse(leader.version if starts_here else seen.cluster_version or "0.0.0")
    if version.series not in SUPPORTED:  # a new cluster agrees on its version shortly
        return before or None
    series = dotted(version.series)
    if before.get("series") == series:
        return before
    found: Obj = {"clusterID": cluster_id, "series": series, "sinceIndex": leader.raft_index}
    return found if starts_here else found | {"after": before.get("series", UNKNOWN_SERIES)}


def _begins(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether the log begins with the member that runs now, by what was recorded before it started.

    That is a seed whose pod still has the permission to bootstrap, a restored snapshot that has no cluster id yet, or
    the new cluster of a recovery.
    """
    if seen.cluster_id and seen.cluster_id == bootstrap.successor(resource):
        return True
    if resource.recorded_cluster_id or len(seen.members or ()) != 1:
        return False
    seed = seen.instance(bootstrap.SEED)
    may_bootstrap = seed is not None and seed.pod_obj is not None and bootstrap.of(seed.pod_obj)[0] == "new"
    return may_bootstrap or resource.is_restored


def readable(resource: EtcdCluster, instance: Instance, target: tuple[int, int]) -> Finding:
    """Return what is known about whether a member could start with another series on its log.

    Args:
        target: series to start.
    """
    needed = WRITES_SINCE.get(target)
    if needed is None:
        return GOOD
    known: Obj = resource.reported.get("runsAs") or {}
    if known.get("series") == dotted(target):  # every member has read its log as that series
        return GOOD
    if known.get("series") == dotted(needed) and not _is_older(known.get("after"), needed):
        return GOOD
    if entry(resource, instance).get("snapshottedAs") == dotted(needed):
        return GOOD
    status = instance.status
    if status is None:
        return unknown("does not answer the operator, and its log may have such entries")
    if Version.parse(status.version).series >= target:
        return GOOD
    if known.get("series") != dotted(needed):
        return unknown("may have such entries: it is not recorded since when the cluster runs as " + dotted(needed))
    left = _entries_until_snapshot(resource, instance)
    return bad(f"writes its next snapshot after {left} more changes") if left > 0 else GOOD


def ran_later(resource: EtcdCluster, series: tuple[int, int]) -> bool:
    """Whether the cluster ran as a later series before the one that the status records."""
    after: str | None = (resource.reported.get("runsAs") or {}).get("after")
    return after in [dotted(known) for known in SUPPORTED if known > series]


def snapshotted_as(resource: EtcdCluster, instance: Instance, log: Obj | None) -> str | None:
    """Return status.members[].snapshottedAs: the series as which the cluster ran when the member wrote a snapshot.

    It is recorded only for a log that the next series may not be able to read.

    Args:
        log: `runs_as` of the new status; a change of the series invalidates what was recorded before.
    """
    before: Obj | None = resource.reported.get("runsAs")
    if log is None or log != before or not _holds_unreadable_entries(log):
        return None
    if recorded := entry(resource, instance).get("snapshottedAs"):
        return str(recorded)
    runs = instance.status is not None and dotted(Version.parse(instance.status.version).series) == log["series"]
    return str(log["series"]) if runs and _entries_until_snapshot(resource, instance) <= 0 else None


def _holds_unreadable_entries(log: Obj) -> bool:
    """Whether a log may have entries that the next series cannot read."""
    return any(
        log["series"] == dotted(needed) and _is_older(log.get("after"), needed) for needed in WRITES_SINCE.values()
    )


def entry(resource: EtcdCluster, instance: Instance) -> Obj:
    """Return the entry of status.members for exactly this member, or without one for the name; empty if none exists."""
    found: Obj = next((each for each in resource.reported.get("members") or () if each["name"] == instance.name), {})
    same = instance.member is None or found.get("id") == f"{instance.member.id:016x}"
    return found if same else {}


def _is_older(series: str | None, needed: tuple[int, int]) -> bool:
    """Whether a series that wrote to the log is older than needed, or unknown; None if no other one wrote to it."""
    if series is None:
        return False
    return series == UNKNOWN_SERIES or tuple(map(int, series.split("."))) < needed


def _entries_until_snapshot(resource: EtcdCluster, instance: Instance) -> int:
    """Return the entries until a member has written a snapshot as the present series; 0 or less if it has."""
    assert instance.status is not None
    since: int = resource.reported["runsAs"]["sinceIndex"]
    entries = number_given(instance.pod_obj, SNAPSHOT_COUNT) or ENTRIES_PER_SNAPSHOT
    return since + entries + 1 - instance.status.raft_applied
