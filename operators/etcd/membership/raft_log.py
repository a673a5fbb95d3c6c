"""What stands in Raft's log of a cluster, and whether the next version can read it. Pure.

A member that starts reads its log from its last Raft snapshot on. 3.7 does not know what 3.5 and earlier wrote there of
versions and members, and ends at it: seen with 3.5.35 → 3.6.16 → 3.7.3. A member makes a snapshot whenever so many
entries have followed the last one. So where as many have followed since all run 3.6, each has one of its own.

Source: shouldSnapshotToDisk in server/etcdserver/server.go, and server/etcdserver/bootstrap.go.
"""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import SUPPORTED, Version
from operators.etcd.objects.command_line import SNAPSHOT_COUNT, number_given
from operators.etcd.observe import Instance, Observed
from shared.kubernetes.kinds import Obj

READS_NOTHING_BEFORE = {(3, 7): (3, 6)}
"""Which series must have made a member's last snapshot before another may read the log that follows."""

ENTRIES_PER_SNAPSHOT = 10_000
"""Entries after which 3.6 makes a snapshot if nothing else is said (DefaultSnapshotCount in embed/config.go)."""


def runs_as(resource: EtcdCluster, seen: Observed, cluster_id: str | None) -> Obj | None:
    """What status.runsAs tells: as which series the cluster runs, since which entry, and as which it ran before.

    Args:
        cluster_id: as the status is to have it; another one than before has a log of its own.
    """
    before: Obj = resource.reported.get("runsAs") or {}
    if before.get("clusterID") != cluster_id:
        before = {}
    leader = seen.leader.status if seen.leader else None
    if leader is None or cluster_id is None or not seen.cluster_version:
        return before or None
    version = Version.parse(seen.cluster_version)
    if version.series not in SUPPORTED:  # it has just begun, and agrees on its version in a moment
        return before or None
    series = f"{version.major}.{version.minor}"
    if before.get("series") == series:
        return before
    found: Obj = {"clusterID": cluster_id, "series": series, "sinceIndex": leader.raft_index}
    return found | ({"after": before["series"]} if before else {})


def unreadable(resource: EtcdCluster, seen: Observed) -> str:
    """Why members cannot yet become what the spec says, for the sake of their log; empty if they can."""
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
        f"{resource.version} cannot read what {known['after']} wrote into Raft's log, and a member reads that from its "
        f"last Raft snapshot on: {instance.name} makes its next one after {left} more changes. The upgrade goes on by "
        "itself then; for it to be sooner, give spec.snapshotCount, such as 100, for the meantime."
    )


def _left(instance: Instance, since: int, series: tuple[int, int]) -> int:
    """Entries until a member has made a snapshot since then; not above 0 where it has, or runs another series."""
    status = instance.status
    if status is None or instance.member is None or Version.parse(status.version).series != series:
        return 0
    return since + (number_given(instance.pod_obj, SNAPSHOT_COUNT) or ENTRIES_PER_SNAPSHOT) + 1 - status.raft_applied
