"""Interface of stores of snapshots: a volume (volume.py) or an object store (s3.py), with named files.

A file appears completely or not at all: what is written is a draft until it is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from operators.etcd.reasons import REASONS
from shared.runtime.errors import DatabaseError

BLOCK_BYTES = 8 << 20
"""Bytes that are written and read at once. S3 accepts 10,000 parts of at least 5 MiB: enough for 78 GiB."""


class BackupError(DatabaseError):
    """Failure of a snapshot or a restore; the class has the reason of its name, the message includes the fix.

    BackupError
    ├── StoreError
    │   ├── StoreUnreachable   no answer from the object store: address, network, TLS
    │   ├── AccessDenied       credentials or permissions
    │   ├── BucketMissing      the bucket does not exist, or is in another region
    │   ├── StoreFull          no space, or a quota is used up
    │   ├── SnapshotMissing    the file does not exist
    │   └── StoreRefused       any other error of the store
    ├── SnapshotCorrupt        the bytes are not those that etcd sent
    ├── NotASnapshot           the file is not a snapshot of etcd, or has no checksum
    ├── SnapshotTooNew         a newer etcd wrote it than the one that restores it
    ├── ForeignCluster         the member belongs to another cluster
    └── DataInTheWay           the volume to restore onto already has other data
    """

    reasons = REASONS


class StoreError(BackupError):
    """The store did not fulfil a request."""


class StoreUnreachable(StoreError):
    """No answer from the object store."""


class AccessDenied(StoreError):
    """Credentials or permissions do not suffice."""


class BucketMissing(StoreError):
    """The bucket does not exist, or is in another region."""


class StoreFull(StoreError):
    """The store has no space left."""


class SnapshotMissing(StoreError):
    """The file does not exist."""


class StoreRefused(StoreError):
    """Any other error of the store."""


class SnapshotCorrupt(BackupError):
    """The bytes are not those that etcd sent."""


class NotASnapshot(BackupError):
    """The file is not a snapshot of etcd."""


class SnapshotTooNew(BackupError):
    """A newer etcd wrote the snapshot."""


class ForeignCluster(BackupError):
    """The member belongs to another cluster."""


class DataInTheWay(BackupError):
    """The volume already has other data."""


class Draft(Protocol):
    """A file that is not visible yet."""

    async def write(self, block: bytes) -> None:
        """Add a block: all but the last have BLOCK_BYTES bytes."""

    async def keep(self) -> None:
        """Make the file visible under its name, replacing a former one; from then on it survives a crash."""


class SnapshotStore(Protocol):
    """Stores files under names such as `demo-1a2b3c4d/nightly.db`. Every method raises StoreError.

    `str` returns the location as text.
    """

    def draft(self, name: str) -> AbstractAsyncContextManager[Draft]:
        """Start a file. If it is not kept, it is deleted, including remains of an earlier process."""

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Return a piece of a file; shorter only at its end."""

    async def names(self, directory: str) -> list[str]:
        """Return the sorted names of the files directly in a directory; none if it does not exist."""

    async def remove(self, name: str) -> None:
        """Delete a file; one that does not exist is not an error."""


async def blocks_of(store: SnapshotStore, name: str) -> AsyncIterator[bytes]:
    """Yield a file from its beginning, block by block; its checksum shows if another one replaces it meanwhile."""
    offset = 0
    while block := await store.read(name, offset, BLOCK_BYTES):
        yield block
        offset += len(block)
        if len(block) < BLOCK_BYTES:
            return
