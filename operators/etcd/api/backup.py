"""The EtcdBackup resource: one snapshot of an EtcdCluster, taken once."""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import Field

from operators.etcd.api.snapshot_stores import EtcdBackupSpec
from shared.api.crd import PrinterColumn, Resource
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
from shared.kubernetes.kinds import Kind, Obj

PENDING, RUNNING, COMPLETE, FAILED = "Pending", "Running", "Complete", "Failed"
"""Phases."""

SCHEDULED = "etcd.ydzs.io/scheduled"
"""Label of EtcdBackups that a cluster's schedule asked for: the UID of that EtcdCluster."""

_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class EtcdBackupStatus(Status):
    """What became of it; the phase is Pending, Running, Complete or Failed."""

    location: str | None = Field(
        None,
        description="Where it is: s3://BUCKET/KEY, or volume://CLAIM/PATH; whole only where phase is Complete.",
    )
    file: str | None = Field(None, description="Its name there, as spec.restore.from.file takes it.")
    member: str | None = Field(None, description="Name of the member that it was taken of.")
    revision: int | None = Field(None, description="etcd's revision that it holds.", json_schema_extra=INT64)
    size_bytes: int | None = Field(None, description="Bytes of its file.", json_schema_extra=INT64)
    size: str | None = Field(None, description="The same for people, such as 1.2Gi.")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="SHA-256 of its file, as sha256sum tells it."
    )
    etcd_version: str | None = Field(
        None, description="The version of etcd that it was taken of: an older one cannot restore it."
    )
    started_at: Time | None = Field(None, description="When the last attempt began.")
    completed_at: Time | None = Field(None, description="When it was complete, or given up.")
    duration_seconds: float | None = Field(None, description="Seconds that the last attempt took.")
    attempts: int | None = Field(None, description="How often it was tried.", json_schema_extra=INT32)


API = Resource(
    kind=Kind("etcd.ydzs.io", "v1alpha1", "EtcdBackup", "etcdbackups"),
    spec=EtcdBackupSpec,
    status=EtcdBackupStatus,
    description="One snapshot of an EtcdCluster, its hash verified. Its file stays when this resource is deleted.",
    short_names=("etcdbk",),
    categories=("platform",),
    columns=(
        PrinterColumn("Cluster", ".spec.clusterName", "string", "The EtcdCluster that it is of."),
        PrinterColumn("Phase", ".status.phase", "string", "What became of it."),
        PrinterColumn("Revision", ".status.revision", "integer", "etcd's revision that it holds."),
        PrinterColumn("Size", ".status.size", "string", "Size of its file."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        PrinterColumn("Location", ".status.location", "string", "Where it is.", wide=True),
        PrinterColumn(
            "Message", ".status.conditions[?(@.type=='Ready')].message", "string", "Why it is as it is.", wide=True
        ),
    ),
    rules=(
        Rule(
            f"self.metadata.name.matches({json.dumps(_NAME)})",
            lambda resource: re.fullmatch(_NAME, resource.name) is not None,
            "metadata.name stands in a label, too: at most 63 lower-case letters, digits and '-', starting and ending "
            "with a letter or digit. Rename it.",
        ),
    ),
)


class EtcdBackup(CustomResource[EtcdBackupSpec]):
    """One EtcdBackup, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> EtcdBackup:
        """The resource as a model.

        Raises:
            InvalidSpec: a field is wrong; the message says which and what to give.
        """
        return cls(obj, parse(EtcdBackupSpec, obj.get("spec") or {}, at="spec"))

    @property
    def over(self) -> bool:
        """Whether it is complete, or given up: what were taken later would be another one."""
        return bool(self.reported.get("completedAt"))


def default(obj: Obj) -> Obj:
    """Nothing depends on anything: the schema has every default."""
    return obj


def validate(resource: EtcdBackup, before: EtcdBackup | None = None) -> list[str]:
    """The CEL rules once more, for a resource that came past them (an older CRD, a restored backup)."""
    return contradictions(resource, API.rules, before)


def review(new: Obj, old: Obj | None) -> Review:
    """What makes a resource, or a change to it, impossible."""
    try:
        resource = EtcdBackup.parse(new)
        before = EtcdBackup.parse(old) if old else None
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    return Review(errors=tuple(validate(resource, before)))


ADMISSION = Admission(API.kind, default, review)
