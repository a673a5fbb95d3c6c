"""Contents of a cluster's Raft log, and whether the next version can read it. Pure.

A member that starts reads its log from its last Raft snapshot on. 3.7 does not know the entries about versions and
members that 3.5 and earlier wrote, and exits: observed with 3.5.35 → 3.6.16 → 3.7.3. A member writes a snapshot after a
number of entries. So when that many entries have followed since all members run 3.6, each member has a snapshot of 3.6.

Source: shouldSnapshotToDisk in server/etcdserver/server.go, and server/etcdserver/bootstrap.go.
"""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import SUPPORTED, Version
from operators.etcd.objects.command_line import SNAPSHOT_COUNT, number_given
from operators.etcd.observe import Instance, Observed
from shared.kubernetes.kinds import Obj

READS_NOTHING_BEFORE = {(3, 7): (3, 6)}
"""Series that must have written a member's last snapshot before another series can read the log that follows."""

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
    if leader is None or cluster_id is None or not seen.cluster_version:
        return before or None
    version = Version.parse(seen.cluster_version)
    if version.series not in SUPPORTED:  # a new cluster agrees on its version shortly
        return before or None
    series = f"{version.major}.{version.minor}"
    if before.get("series") == series:
        return before
    found: Obj = {"clusterID": cluster_id, "series": series, "sinceIndex": leader.raft_index}
    return found | ({"after": before["series"]} if before else {})


def unreadable(resource: EtcdCluster, seen: Observed) -> str:
    """Return why members cannot be changed to the version of the spec yet, because of their log; empty if they can."""
    known: Obj = resource.reported.get("runsAs") or {}
    needed = READS_NOTHING_BEFORE.get(resource.version.series)
    if needed is None or "after" not in known or known["series"] != f"{needed[0]}.{needed[1]}":
        return ""
    waiting = [
        (instance, left) for instance in seen.instances if (left := _left(instance, known["sinceIndex"], needed)) > 0
    ]
    if not waiting:
        return ""
    instance, left = max(waiting, key=lambda found: found[1])
    return (
        f"{resource.version} cannot read log entries that {known['after']} wrote, and a member reads Raft's log "
        f"from its last snapshot on. {instance.name} writes its next snapshot after {left} more changes; the "
        "upgrade continues automatically then. To speed this up, set spec.snapshotCount temporarily, for example "
        "to 100."
    )


def _left(instance: Instance, since: int, series: tuple[int, int]) -> int:
    """Return the entries until a member has written a snapshot; 0 or less if it has, or runs another series."""
    status = instance.status
    if status is None or instance.member is None or Version.parse(status.version).series != series:
        return 0
    return since + (number_given(instance.pod_obj, SNAPSHOT_COUNT) or ENTRIES_PER_SNAPSHOT) + 1 - status.raft_applied
