"""Stores of snapshots: parts of the specs of EtcdCluster and EtcdBackup."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from shared.api.spec import Name, Rule, SpecModel, Transition

_PART = r"[0-9A-Za-z_+=@-][0-9A-Za-z_.+=@-]*"
_PATH = rf"{_PART}(/{_PART})*"
"""Directories and a file. No part begins with a dot, so that `..` is impossible."""


class S3(SpecModel):
    """A bucket of an object store with the S3 API."""

    endpoint: Annotated[str, Field(max_length=512, pattern=r"^https?://[^\s/]+/?$")] | None = Field(
        None, description="URL of the object store, such as https://minio.storage:9000. Default: Amazon S3 in region."
    )
    region: Annotated[str, Field(min_length=1, max_length=64)] = Field("us-east-1", description="Region of the bucket.")
    bucket: Annotated[str, Field(min_length=3, max_length=63)] = Field(
        description="Name of the bucket, which must exist."
    )
    prefix: Annotated[str, Field(max_length=512, pattern=r"^([^/\s][^\s]*)?$")] = Field(
        "", description="Prefix of all object keys, used as a directory: a '/' is added after it. Default: none."
    )
    credentials_secret: Name = Field(
        description="Name of a Secret in the same namespace with the keys accessKeyID and secretAccessKey, and "
        "optionally ca.crt with the certificates to trust.",
    )


class VolumeStore(SpecModel):
    """A volume for snapshots."""

    claim_name: Name = Field(description="Name of a PersistentVolumeClaim in the same namespace.")
    path: Annotated[str, Field(max_length=512, pattern=rf"^({_PATH})?$")] = Field(
        "", description="Directory in the volume, such as etcd/orders. Default: the top directory."
    )


class Destination(SpecModel):
    """Store of snapshots: either volume or s3."""

    volume: VolumeStore | None = Field(None, description="Volume for the snapshots.")
    s3: S3 | None = Field(None, description="Object store for the snapshots.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.volume) != has(self.s3)",
            lambda given: (given.volume is None) != (given.s3 is None),
            "exactly one destination is required. Set either volume or s3.",
        ),
    )


class RestoreSource(SpecModel):
    """A snapshot: an EtcdBackup in the same namespace, or a file in a volume or an object store."""

    backup: Name | None = Field(
        None, description="Name of an EtcdBackup in the same namespace; it provides the location of the file."
    )
    volume: VolumeStore | None = Field(None, description="Volume with the snapshot file.")
    s3: S3 | None = Field(None, description="Object store with the snapshot file.")
    file: Annotated[str, Field(max_length=512, pattern=rf"^{_PATH}$")] | None = Field(
        None,
        description="Path of the snapshot file below volume.path or s3.prefix, such as "
        "demo-1a2b3c4d/nightly-5e6f7a8b.db.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.backup), has(self.volume), has(self.s3)].filter(given, given).size() == 1",
            lambda given: sum(one is not None for one in (given.backup, given.volume, given.s3)) == 1,
            "exactly one source is required. Set one of backup, volume and s3.",
        ),
        Rule(
            "has(self.backup) || has(self.file)",
            lambda given: given.backup is not None or given.file is not None,
            "is missing: a volume or bucket may have many snapshots. Set the name of the file.",
            at="file",
        ),
        Rule(
            "!has(self.backup) || !has(self.file)",
            lambda given: given.backup is None or given.file is None,
            "must not be set with backup, which provides the file. Remove file, or set volume or s3 instead of backup.",
            at="file",
        ),
    )


class EtcdBackupSpec(SpecModel):
    """Desired snapshot."""

    cluster_name: Name = Field(
        description="Name of the EtcdCluster in the same namespace that the snapshot is taken of."
    )
    destination: Destination = Field(
        description="Store for the snapshot. The file is kept when this resource is deleted."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Transition(
            "self == oldSelf",
            lambda spec, before: spec == before,
            "the spec of an EtcdBackup cannot be changed, because the snapshot is taken once. Create another "
            "EtcdBackup.",
        ),
    )
