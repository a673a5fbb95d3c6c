"""Fixtures for both kinds of snapshot stores: a volume and an S3 bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from operators.etcd.backup.s3 import Bucket, BucketLocation, opened
from operators.etcd.backup.store import SnapshotStore
from operators.etcd.backup.volume import Volume
from tests.support.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore, object_store


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectStore]:
    """S3-compatible object store."""
    with object_store() as store:
        yield store


@asynccontextmanager
async def bucket_of(objects: ObjectStore, bucket: str, **location: str) -> AsyncIterator[Bucket]:
    """Open a bucket with the operator's S3 client."""
    given = {"endpoint": objects.url, "region": REGION, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY} | location
    async with opened(BucketLocation(bucket, **given)) as store:
        yield store


@pytest.fixture(params=["volume", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, objects: ObjectStore) -> AsyncIterator[SnapshotStore]:
    """Snapshot store; each test runs with both kinds."""
    if request.param == "volume":
        yield Volume(tmp_path, "etcd/orders")
        return
    async with bucket_of(objects, objects.bucket(), prefix="etcd/orders") as bucket:
        yield bucket
