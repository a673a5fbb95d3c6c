"""Where snapshots are kept and come from: parts of both resources' specs."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from shared.api.spec import Name, Rule, SpecModel, Transition

_PART = r"[0-9A-Za-z_+=@-][0-9A-Za-z_.+=@-]*"
_PATH = rf"{_PART}(/{_PART})*"
"""Directories and a file, none of which begins with a dot: so none is `..`."""


class S3(SpecModel):
    """A bucket of an object store with S3's API."""

    endpoint: Annotated[str, Field(max_length=512, pattern=r"^https?://[^\s/]+/?$")] | None = Field(
        None,
        description="The store's address, such as https://minio.storage:9000; if not given, Amazon's of the region.",
    )
    region: Annotated[str, Field(min_length=1, max_length=64)] = Field("us-east-1", description="The bucket's region.")
    bucket: Annotated[str, Field(min_length=3, max_length=63)] = Field(description="The bucket; it must exist.")
    prefix: Annotated[str, Field(max_length=512, pattern=r"^([^/\s][^\s]*)?$")] = Field(
        "", description="What keys begin with, as a directory: its '/' is added."
    )
    credentials_secret: Name = Field(
        description="Secret in the same namespace with the keys accessKeyID and secretAccessKey."
    )


class VolumeStore(SpecModel):
    """A volume that snapshots are written to."""

    claim_name: Name = Field(description="PersistentVolumeClaim in the same namespace.")
    path: Annotated[str, Field(max_length=512, pattern=rf"^({_PATH})?$")] = Field(
        "", description="Directory in it, such as etcd/orders; if not given, the top."
    )


class Destination(SpecModel):
    """Where snapshots are kept: one of the two."""

    volume: VolumeStore | None = Field(None, description="A volume.")
    s3: S3 | None = Field(None, description="An object store.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.volume) != has(self.s3)",
            lambda given: (given.volume is None) != (given.s3 is None),
            "snapshots go to one place; give either volume or s3.",
        ),
    )


class RestoreSource(SpecModel):
    """A snapshot: an EtcdBackup of this namespace, or a file in a volume or an object store."""

    backup: Name | None = Field(None, description="An EtcdBackup in the same namespace: it knows where its file is.")
    volume: VolumeStore | None = Field(None, description="A volume that the file is in.")
    s3: S3 | None = Field(None, description="An object store that it is in.")
    file: Annotated[str, Field(max_length=512, pattern=rf"^{_PATH}$")] | None = Field(
        None, description="Its name under volume.path or s3.prefix."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.backup), has(self.volume), has(self.s3)].filter(given, given).size() == 1",
            lambda given: sum(one is not None for one in (given.backup, given.volume, given.s3)) == 1,
            "a snapshot comes from one place; give one of backup, volume and s3.",
        ),
        Rule(
            "has(self.backup) || has(self.file)",
            lambda given: given.backup is not None or given.file is not None,
            "is missing: a volume or a bucket holds many; give the file's name.",
            at="file",
        ),
        Rule(
            "!has(self.backup) || !has(self.file)",
            lambda given: given.backup is None or given.file is None,
            "an EtcdBackup knows its file; remove file, or name the volume or s3 that it is in.",
            at="file",
        ),
    )


class EtcdBackupSpec(SpecModel):
    """One snapshot."""

    cluster_name: Name = Field(description="The EtcdCluster, in the same namespace, that it is taken of.")
    destination: Destination = Field(description="Where it is kept. It stays there when this resource is deleted.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Transition(
            "self == oldSelf",
            lambda spec, before: spec == before,
            "a snapshot is taken once, of one cluster, to one place; make another EtcdBackup.",
        ),
    )
