"""Pods that run a task and exit: taking a snapshot, or restoring data from one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from operators.etcd.backup.snapshot import Record, beyond_retention
from operators.etcd.backup.work import RESERVED_BYTES
from operators.etcd.objects.command_line import DATA_DIRECTORY
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity
from simulator.etcd.raft import Cluster, Disk, Users
from simulator.kubelet.kubelet import Exit, ProcessStatus

if TYPE_CHECKING:
    from simulator.etcd.database import SimulatedEtcd

BUMP = 1_000_000_000


class Failed(Exception):
    """A failed task.

    Args:
        container: name of the container that failed.
        reason: CamelCase reason of the failure.
    """

    def __init__(self, container: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.container = container
        self.reason = reason


def run(etcd: SimulatedEtcd, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
    """Run the task of a pod to its end and return the exits of its containers."""
    spec = pod["spec"]
    names = [container["name"] for container in (*spec.get("initContainers", ()), *spec["containers"])]
    try:
        tasks = {"seal": partial(_seal, etcd, pod, claims), "clean": partial(_clean, etcd, pod, claims)}
        result = tasks.get(names[-1], partial(_snapshot, etcd, pod))()
    except Failed as failed:
        before = names[: names.index(failed.container)]
        message = json.dumps({"reason": failed.reason, "message": str(failed)})
        return ProcessStatus(exits={**dict.fromkeys(before, Exit()), failed.container: Exit(1, message)})
    return ProcessStatus(exits={**dict.fromkeys(names, Exit()), names[-1]: Exit(0, json.dumps(result))})


def _snapshot(etcd: SimulatedEtcd, pod: Obj) -> Obj:
    """Take a snapshot of a member."""
    flags = _flags(pod, "snapshot")
    name = (urlsplit(flags["endpoint"]).hostname or "").partition(".")[0]
    found = [process for process in etcd.running if process.pod == name and process.serves and not etcd.hangs(process)]
    if not found:
        raise Failed("snapshot", "MemberUnreachable", f"{name} cannot be reached.")
    disk = etcd.disks[found[0].command.disk]
    cluster = etcd.clusters[disk.cluster]
    is_current = etcd.has_quorum(cluster)
    revision = cluster.revision - (0 if is_current else cluster.index - disk.index)
    etcd.snapshots[flags["file"]] = revision
    (etcd.stale_snapshots.discard if is_current else etcd.stale_snapshots.add)(flags["file"])
    etcd.snapshot_users[flags["file"]] = Users.of(cluster)
    version = found[0].command.version
    record = Record(
        file=flags["file"],
        size=20512,
        sha256="0" * 64,
        revision=revision,
        version=f"{version.major}.{version.minor}.0",
        cluster_id=f"{cluster.id:016x}",
        member=name,
        taken=rfc3339(etcd.clock()),
        cluster=f"{flags['namespace']}/{flags['cluster']}",
        cluster_uid=flags["cluster-uid"],
        backup=flags["backup"],
        scheduled="scheduled" in flags,
        current=is_current,
    )
    etcd.records[record.file] = record
    if record.scheduled and (keep := int(flags["keep"])):
        _prune(etcd, record.cluster_uid, keep)
    return dataclasses.asdict(record)


def _prune(etcd: SimulatedEtcd, cluster_uid: str, keep: int) -> None:
    own = [(each, True) for each in etcd.records.values() if each.scheduled and each.cluster_uid == cluster_uid]
    for record in beyond_retention(own, keep):
        del etcd.records[record.file], etcd.snapshots[record.file]


def _clean(etcd: SimulatedEtcd, pod: Obj, claims: Mapping[str, Obj]) -> Obj:
    """Delete the former data of a recovery."""
    [claim], token = claims.values(), _flags(pod, "clean")["token"]
    disk = etcd.disks[claim["metadata"]["uid"]]
    if token not in etcd.guard.released:
        etcd.guard.fail(f"the former data on {disk.name} is deleted, and no user released it")
    return {"token": token, "bytes": disk.former.pop(token, 0)}


def _seal(etcd: SimulatedEtcd, pod: Obj, claims: Mapping[str, Obj]) -> Obj:
    """Restore data from a snapshot, or from the data on the disk itself."""
    fetch, restore, seal = (_flags(pod, name) for name in ("fetch", "restore", "seal"))
    [claim] = [claims[volume["name"]] for volume in _mounts(pod) if DATA_DIRECTORY.startswith(volume["mountPath"])]
    disk_uid, token = claim["metadata"]["uid"], seal["token"]
    disk = etcd.disks.setdefault(disk_uid, Disk(claim["metadata"]["name"]))
    url = restore["initial-advertise-peer-urls"]
    if "salvage" in fetch:
        if disk.restored != token:
            _require_space(disk, claim)
        return _recovered(etcd, disk, disk_uid, token, url, restore["initial-cluster-token"])
    if fetch["file"] not in etcd.snapshots:
        raise Failed("fetch", "SnapshotMissing", f"{fetch['file']} is not there.")
    if disk.restored != token:
        if disk.member:
            raise Failed("seal", "DataInTheWay", "The volume holds data already: nothing was restored.")
        etcd.guard.may_restore(disk, restore["initial-cluster-token"])
        cluster = etcd.found(url, restore["initial-cluster-token"], disk_uid)
        _restored(etcd, cluster, disk, token, etcd.snapshots[fetch["file"]])
        etcd.snapshot_users.get(fetch["file"], Users()).copy_to(cluster)
    return {"token": token, "revision": etcd.clusters[disk.cluster].revision}


def _require_space(disk: Disk, claim: Obj) -> None:
    """Require that the volume has space for a second copy of the database, as etcdutl writes one."""
    free = int(parse_quantity(claim["status"]["capacity"]["storage"])) - disk.used
    if disk.size + RESERVED_BYTES > free:
        raise Failed("fetch", "StoreFull", f"The volume has {free >> 20} MiB free.")


def _recovered(etcd: SimulatedEtcd, disk: Disk, disk_uid: str, token: str, url: str, cluster_token: str) -> Obj:
    if disk.restored != token:
        if not disk.member:
            raise Failed("fetch", "SnapshotMissing", "The volume has no data/member/snap/db.")
        etcd.guard.may_recover(etcd, disk)
        former = etcd.clusters[disk.cluster]
        former.former, former.recovery = True, token
        disk.corrupt = False
        disk.former[token] = disk.size
        _restored(etcd, etcd.found(url, cluster_token, disk_uid), disk, token, former.revision)
        Users.of(former).copy_to(etcd.clusters[disk.cluster])
    return {"token": token, "revision": etcd.clusters[disk.cluster].revision}


def _restored(etcd: SimulatedEtcd, cluster: Cluster, disk: Disk, token: str, revision: int) -> None:
    cluster.revision, cluster.bumped = revision + BUMP, True
    cluster.compacted = cluster.revision
    disk.restored = token
    etcd.done["restores"] += 1


def _containers(pod: Obj) -> list[Obj]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def _mounts(pod: Obj) -> list[Obj]:
    found: list[Obj] = pod["spec"]["containers"][0]["volumeMounts"]
    return found


def _flags(pod: Obj, name: str) -> dict[str, str]:
    """Return the flags of a container."""
    [container] = [container for container in _containers(pod) if container["name"] == name]
    pairs = (text[2:].partition("=") for text in container["args"] if text.startswith("--"))
    return {flag: value for flag, _, value in pairs}
