"""Snapshots as the plan of an EtcdCluster needs them: those of the schedule, and the one to restore."""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.api.backup import API, COMPLETE, SCHEDULED, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.backup import locations
from operators.etcd.backup.pods import restore_pod_name
from operators.etcd.reasons import BACKUP_FAILED, BACKUP_INVALID, BACKUP_MISSING, BACKUP_UNFINISHED
from shared.api.spec import InvalidSpec
from shared.kubernetes.accessors import label
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import POD, Key, Obj
from shared.kubernetes.ownership import controller_of
from shared.pki.secret_checks import SecretProblem
from shared.runtime.cache import Cache
from shared.status.reasons import INVALID_SPEC


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stored snapshot."""

    store: VolumeStore | S3
    file: str

    @property
    def location(self) -> str:
        return locations.location(self.store, self.file)


@dataclass(frozen=True, slots=True)
class BackupView:
    """Observed snapshots of a cluster.

    Attributes:
        scheduled: EtcdBackups of this cluster's schedule. It makes them without a controller: one that another object
            controls is not counted, and not deleted.
        snapshot: snapshot of spec.restore; None if it is not needed (any more) or not available.
        problem: reason why it is not available.
        destination_problem: missing Secret or claim of spec.backup.destination; None if nothing is missing.
    """

    scheduled: tuple[Obj, ...] = ()
    snapshot: Snapshot | None = None
    problem: SecretProblem | None = None
    destination_problem: SecretProblem | None = None


async def observe(resource: EtcdCluster, cache: Cache, kube: Kube) -> BackupView:
    """Observe the snapshots; only clusters with a schedule, and those that wait for initial data, need requests."""
    key = Key(resource.namespace, resource.name)
    scheduled = tuple(
        obj
        for obj in cache.owned(API.kind, key)
        if label(obj, SCHEDULED) == resource.uid and controller_of(obj) is None
    )
    lacking = await _destination_problem(resource, kube)
    if not resource.is_to_be_restored:
        return BackupView(scheduled, destination_problem=lacking)
    found = await _snapshot(resource, kube)
    problem = found if isinstance(found, SecretProblem) else None
    snapshot = found if isinstance(found, Snapshot) else None
    if snapshot is not None and cache.get(POD, key.namespace, restore_pod_name(resource)) is None:
        problem = await locations.problem(kube, resource.namespace, "spec.restore.from", snapshot.store)
    return BackupView(scheduled, None if problem else snapshot, problem, lacking)


async def _destination_problem(resource: EtcdCluster, kube: Kube) -> SecretProblem | None:
    """Return the missing Secret or claim of the schedule, long before the first snapshot is due.

    A claim is read with each observation: a user owns it, so that no watch of the operator has it.
    """
    schedule = resource.spec.backup
    store = locations.store_of(schedule.destination) if schedule else None
    return await locations.problem(kube, resource.namespace, "spec.backup.destination", store) if store else None


async def _snapshot(resource: EtcdCluster, kube: Kube) -> Snapshot | SecretProblem:
    """Return the snapshot of spec.restore."""
    assert resource.spec.restore is not None, "called only with spec.restore"
    source = resource.spec.restore.from_
    if source.backup is None:
        store = locations.store_of(source)
        if store is None or source.file is None:
            return SecretProblem(INVALID_SPEC, "spec.restore.from: no snapshot is set. Set backup, volume or s3.")
        return Snapshot(store, source.file)
    at, name = "spec.restore.from.backup", source.backup
    try:
        backup = EtcdBackup.parse(await kube.get(API.kind, resource.namespace, name))
    except NotFound:
        message = (
            f"EtcdBackup {name} does not exist in this namespace. Name an existing one, or set the volume or s3 "
            "with the file."
        )
        return SecretProblem(BACKUP_MISSING, f"{at}: {message}")
    except InvalidSpec as wrong:
        return SecretProblem(BACKUP_INVALID, f"{at}: EtcdBackup {name} is invalid: {wrong}")
    store = locations.store_of(backup.spec.destination)
    if backup.over and backup.phase == COMPLETE and store is not None and backup.reported.get("file"):
        return Snapshot(store, str(backup.reported["file"]))
    if backup.over:
        return SecretProblem(BACKUP_FAILED, f"{at}: EtcdBackup {name} failed and has no snapshot. Name another one.")
    return SecretProblem(BACKUP_UNFINISHED, f"{at}: waiting until EtcdBackup {name} is complete.")
