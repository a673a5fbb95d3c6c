"""Where snapshots are kept: a volume (volume.py) or an object store (s3.py), each file under a name.

A file appears whole or not at all: what is written is a draft until it is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

BLOCK_BYTES = 8 << 20
"""Bytes that are written, and read, at once. S3 takes 10,000 parts of at least 5 MiB: this is enough for 78 GiB."""


class BackupError(Exception):
    """Why there is no snapshot, or no data from one; its class is the reason, its text a sentence with what mends it.

    BackupError
    ├── StoreError
    │   ├── StoreUnreachable   no answer from the object store: address, network, TLS
    │   ├── AccessDenied       credentials, or rights on files
    │   ├── BucketMissing      there is no such bucket, or it is another region's
    │   ├── StoreFull          no space, or a quota is used up
    │   ├── SnapshotMissing    there is no such file
    │   └── StoreRefused       anything else that it says no to
    ├── SnapshotCorrupt        its bytes are not those that etcd gave out
    ├── NotASnapshot           it is no snapshot of etcd, or one without a checksum
    ├── SnapshotTooNew         a newer etcd wrote it than is to read it
    ├── ForeignCluster         the member asked is another cluster's
    └── DataInTheWay           the volume to restore into holds other data already
    """


class StoreError(BackupError):
    """The store did not do as told."""


class StoreUnreachable(StoreError): ...


class AccessDenied(StoreError): ...


class BucketMissing(StoreError): ...


class StoreFull(StoreError): ...


class SnapshotMissing(StoreError): ...


class StoreRefused(StoreError): ...


class SnapshotCorrupt(BackupError): ...


class NotASnapshot(BackupError): ...


class SnapshotTooNew(BackupError): ...


class ForeignCluster(BackupError): ...


class DataInTheWay(BackupError): ...


class Draft(Protocol):
    """A file that nobody sees yet."""

    async def write(self, block: bytes) -> None:
        """Add a block: all but the last are of BLOCK bytes."""

    async def keep(self) -> None:
        """Let it take its name, in place of what had that before; from here on it outlasts a crash."""


class SnapshotStore(Protocol):
    """Keeps files under names such as `demo-1a2b3c4d/nightly.db`. Every method raises StoreError.

    `str` says where it is, for people.
    """

    def draft(self, name: str) -> AbstractAsyncContextManager[Draft]:
        """Begin a file. Left without `keep`, it is gone, and so is what an earlier process left of it."""

    def blocks(self, name: str) -> AsyncIterator[bytes]:
        """A file from its beginning, block by block."""

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of a file; shorter only at its end."""

    async def names(self, directory: str) -> list[str]:
        """Names of the files directly in a directory, in order; none if it does not exist."""

    async def remove(self, name: str) -> None:
        """Delete a file; one that is gone already is no error."""

    async def aclose(self) -> None: ...
