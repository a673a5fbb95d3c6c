"""The EtcdBackup resource: one snapshot of an EtcdCluster, taken once."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Annotated

from pydantic import Field

from operators.etcd.api.snapshot_stores import EtcdBackupSpec
from shared.api.crd import READY_MESSAGE, READY_REASON, PrinterColumn, Resource
from shared.api.spec import (
    INT32,
    INT64,
    Admission,
    CustomResource,
    InvalidSpec,
    Review,
    Rule,
    Status,
    Time,
    contradictions,
    parse,
)
from shared.kubernetes.accessors import annotation, status_of, time_in
from shared.kubernetes.kinds import Kind, Obj

PENDING, RUNNING, COMPLETE, FAILED = "Pending", "Running", "Complete", "Failed"
"""Phases."""

SCHEDULED = "etcd.ydzs.io/scheduled"
"""Label of EtcdBackups that the schedule of a cluster created: the UID of that EtcdCluster."""

RETRY_UNTIL = "etcd.ydzs.io/retry-until"
"""Annotation of scheduled EtcdBackups: the time at which the next one is due. Until then, attempts are repeated."""

_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class EtcdBackupStatus(Status):
    """Observed state of an EtcdBackup. The phase is Pending, Running, Complete or Failed."""

    location: str | None = Field(
        None,
        description="Location of the snapshot: s3://BUCKET/KEY or volume://CLAIM/PATH. The file is complete only if "
        "phase is Complete.",
    )
    file: str | None = Field(None, description="Name of the file in the destination. Use it as spec.restore.from.file.")
    member: str | None = Field(None, description="Name of the member that provided the snapshot.")
    revision: int | None = Field(
        None, description="Revision of the newest change in the snapshot.", json_schema_extra=INT64
    )
    size_bytes: int | None = Field(None, description="Size of the snapshot file, in bytes.", json_schema_extra=INT64)
    size: str | None = Field(None, description="Size of the snapshot file with a unit, such as 1.2Gi.")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="SHA-256 of the snapshot file in hexadecimal, as printed by sha256sum."
    )
    current: bool | None = Field(
        None,
        description="Whether the member had all changes that were acknowledged before, as a linearizable read "
        "confirmed. If false, the snapshot may be older than it seems: it does not count as the last one of the "
        "cluster. Earlier versions of the operator do not report it.",
    )
    etcd_version: str | None = Field(
        None,
        description="Version of etcd that wrote the data. A version of an older series cannot restore the snapshot.",
    )
    started_at: Time | None = Field(None, description="Start time of the last attempt.")
    completed_at: Time | None = Field(
        None, description="Time at which the snapshot was complete, or the last attempt failed."
    )
    duration_seconds: float | None = Field(None, description="Duration of the last attempt, in seconds.")
    attempts: int | None = Field(
        None,
        description="Number of attempts so far: at most 3; for a scheduled snapshot any number until the next one is "
        "due.",
        json_schema_extra=INT32,
    )


def has_current_snapshot(backup: Obj) -> bool:
    """Whether an EtcdBackup is complete, and not known to lack changes; an earlier version did not report that."""
    status = status_of(backup)
    return status.get("phase") == COMPLETE and status.get("current") in (None, True)


API = Resource(
    kind=Kind("etcd.ydzs.io", "v1alpha1", "EtcdBackup", "etcdbackups"),
    spec=EtcdBackupSpec,
    status=EtcdBackupStatus,
    description="One snapshot of an EtcdCluster, verified by its checksum. The snapshot file is kept when this "
    "resource is deleted.",
    short_names=("etcdbk",),
    categories=("platform",),
    columns=(
        PrinterColumn("Cluster", ".spec.clusterName", "string", "EtcdCluster that the snapshot is taken of."),
        PrinterColumn("Phase", ".status.phase", "string", "Pending, Running, Complete or Failed."),
        READY_REASON,
        PrinterColumn("Revision", ".status.revision", "integer", "Revision of the newest change in the snapshot."),
        PrinterColumn("Size", ".status.size", "string", "Size of the snapshot file."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        PrinterColumn("Location", ".status.location", "string", "Location of the snapshot.", wide=True),
        READY_MESSAGE,
    ),
    rules=(
        Rule(
            f"self.metadata.name.matches({json.dumps(_NAME)})",
            lambda resource: re.fullmatch(_NAME, resource.name) is not None,
            "metadata.name is also used as a label value: at most 63 lower-case letters, digits and '-', "
            "starting and ending with a letter or digit. Rename the EtcdBackup.",
        ),
    ),
)


class EtcdBackup(CustomResource[EtcdBackupSpec]):
    """An EtcdBackup, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> EtcdBackup:
        """Parse an EtcdBackup.

        Raises:
            InvalidSpec: a field is invalid; the message names the field and valid values.
        """
        return cls(obj, parse(EtcdBackupSpec, obj.get("spec") or {}, at="spec"))

    @property
    def retry_until(self) -> datetime | None:
        """Time until which attempts are repeated; None for a fixed number of attempts."""
        return time_in(annotation(self.obj, RETRY_UNTIL))

    @property
    def over(self) -> bool:
        """Whether the backup is complete or failed permanently: a later snapshot needs another EtcdBackup."""
        return bool(self.reported.get("completedAt"))


def default(obj: Obj) -> Obj:
    """Return the object unchanged: all defaults are in the schema."""
    return obj


def validate(resource: EtcdBackup, before: EtcdBackup | None = None) -> list[str]:
    """Check the CEL rules again, for resources that bypassed them (an older CRD, a restored backup)."""
    return contradictions(resource, API.rules, before)


def review(new: Obj, old: Obj | None) -> Review:
    """Return the reasons to reject a resource or a change."""
    try:
        resource = EtcdBackup.parse(new)
        before = EtcdBackup.parse(old) if old else None
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    return Review(errors=tuple(validate(resource, before)))


ADMISSION = Admission(API.kind, default, review)
