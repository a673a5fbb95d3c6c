"""What the plan of an EtcdCluster asks about snapshots: those of its schedule, and the one that it is to begin with."""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.api.backup import API, COMPLETE, SCHEDULED, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.backup import locations
from operators.etcd.reasons import BACKUP_FAILED, BACKUP_INVALID, BACKUP_MISSING, BACKUP_UNFINISHED
from shared.api.spec import InvalidSpec
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import Key, Obj
from shared.pki.secret_checks import SecretProblem
from shared.runtime.cache import Cache
from shared.status.reasons import INVALID_SPEC


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is kept somewhere."""

    store: VolumeStore | S3
    file: str

    @property
    def location(self) -> str:
        return locations.location(self.store, self.file)


@dataclass(frozen=True, slots=True)
class BackupView:
    """What there is of a cluster's snapshots.

    Attributes:
        scheduled: EtcdBackups that this cluster's schedule asked for.
        snapshot: what spec.restore names; None where it is not asked for (any more), or cannot be had.
        problem: why it cannot.
    """

    scheduled: tuple[Obj, ...] = ()
    snapshot: Snapshot | None = None
    problem: SecretProblem | None = None


async def observe(resource: EtcdCluster, cache: Cache, kube: Kube) -> BackupView:
    """What there is; live only while a cluster waits for the data that it begins with."""
    key = Key(resource.namespace, resource.name)
    scheduled = tuple(
        obj
        for obj in cache.owned(API.kind, key)
        if (obj["metadata"].get("labels") or {}).get(SCHEDULED) == resource.uid
    )
    if not resource.is_to_be_restored:
        return BackupView(scheduled)
    found = await _snapshot(resource, kube)
    problem = found if isinstance(found, SecretProblem) else None
    snapshot = found if isinstance(found, Snapshot) else None
    if snapshot is not None:
        problem = await locations.problem(kube, resource.namespace, "spec.restore.from", snapshot.store)
    return BackupView(scheduled, None if problem else snapshot, problem)


async def _snapshot(resource: EtcdCluster, kube: Kube) -> Snapshot | SecretProblem:
    """The snapshot that spec.restore names."""
    assert resource.spec.restore is not None, "asked for only where one is"
    source = resource.spec.restore.from_
    if source.backup is None:
        store = locations.store_of(source)
        if store is None or source.file is None:
            return SecretProblem(INVALID_SPEC, "spec.restore.from: names no snapshot; give backup, volume or s3.")
        return Snapshot(store, source.file)
    at, name = "spec.restore.from.backup", source.backup
    try:
        backup = EtcdBackup.parse(await kube.get(API.kind, resource.namespace, name))
    except NotFound:
        message = f"there is no EtcdBackup {name} in this namespace. Name one, or the volume or s3 that the file is in."
        return SecretProblem(BACKUP_MISSING, f"{at}: {message}")
    except InvalidSpec as wrong:
        return SecretProblem(BACKUP_INVALID, f"{at}: EtcdBackup {name} cannot be understood: {wrong}")
    store = locations.store_of(backup.spec.destination)
    if backup.over and backup.phase == COMPLETE and store is not None and backup.reported.get("file"):
        return Snapshot(store, str(backup.reported["file"]))
    if backup.over:
        return SecretProblem(BACKUP_FAILED, f"{at}: EtcdBackup {name} failed: it has no snapshot. Name another.")
    return SecretProblem(BACKUP_UNFINISHED, f"{at}: EtcdBackup {name} is not complete yet: it is waited for.")
