"""Contract of a snapshot store, for a volume and a bucket alike, and the errors of each."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from operators.etcd.backup import s3
from operators.etcd.backup.store import (
    BLOCK_BYTES,
    AccessDenied,
    BucketMissing,
    SnapshotMissing,
    SnapshotStore,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnreachable,
    blocks_of,
)
from operators.etcd.backup.volume import ABANDONED_SECONDS, Volume
from tests.etcd.unit.backup.conftest import bucket_of
from tests.etcd.unit.backup.states import names_in
from tests.support.object_store import ObjectStore

LONG = os.urandom(2 * BLOCK_BYTES + 4711)


def split(content: bytes) -> list[bytes]:
    return [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]


async def keep(store: SnapshotStore, name: str, content: bytes) -> None:
    async with store.draft(name) as draft:
        for block in split(content):
            await draft.write(block)
        await draft.keep()


async def content_of(store: SnapshotStore, name: str) -> bytes:
    return b"".join([block async for block in blocks_of(store, name)])


@pytest.mark.parametrize("content", [b"", b"short", LONG, LONG[:BLOCK_BYTES], LONG[: 2 * BLOCK_BYTES]])
async def test_stored_file_can_be_read(store: SnapshotStore, content: bytes) -> None:
    await keep(store, "demo-1/a.db", content)
    assert await content_of(store, "demo-1/a.db") == content
    assert await store.names("demo-1") == ["demo-1/a.db"]


async def test_range_of_a_file_can_be_read(store: SnapshotStore) -> None:
    await keep(store, "a.db", LONG)
    assert await store.read("a.db", BLOCK_BYTES - 3, 10) == LONG[BLOCK_BYTES - 3 : BLOCK_BYTES + 7]
    assert await store.read("a.db", len(LONG) - 5, 100) == LONG[-5:]
    assert await store.read("a.db", len(LONG), 100) == b""


async def test_abandoned_draft_leaves_no_file(store: SnapshotStore) -> None:

    async def give_up() -> None:
        async with store.draft("demo-1/a.db") as draft:
            for block in split(LONG):
                await draft.write(block)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await give_up()
    assert await store.names("demo-1") == []
    with pytest.raises(SnapshotMissing):
        await content_of(store, "demo-1/a.db")


async def test_draft_replaces_the_former_file_only_when_it_is_kept(store: SnapshotStore) -> None:
    await keep(store, "a.db", b"former")
    async with store.draft("a.db") as draft:
        await draft.write(b"new")
        assert await content_of(store, "a.db") == b"former"
        await draft.keep()
    assert await content_of(store, "a.db") == b"new"


async def test_only_direct_files_of_a_directory_are_listed(store: SnapshotStore) -> None:
    for name in ("demo-1/b.db", "demo-1/a.db", "demo-1/deeper/c.db", "demo-11/d.db", "e.db"):
        await keep(store, name, b"x")
    assert await store.names("demo-1") == ["demo-1/a.db", "demo-1/b.db"]
    assert await store.names("nowhere") == []


async def test_removing_a_file_twice_is_no_error(store: SnapshotStore) -> None:
    await keep(store, "a.db", b"x")
    await store.remove("a.db")
    await store.remove("a.db")
    with pytest.raises(SnapshotMissing):
        await store.read("a.db", 0, 1)


async def test_interrupted_draft_leaves_no_multipart_upload(objects: ObjectStore) -> None:
    name = objects.bucket()
    async with bucket_of(objects, name) as store:

        async def upload() -> None:
            async with store.draft("a.db") as draft:
                for block in split(LONG):
                    await draft.write(block)
                await asyncio.sleep(60)

        task = asyncio.create_task(upload())
        while not objects.uploads(name):  # noqa: ASYNC110 - the store offers no event
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    assert (objects.uploads(name), objects.keys(name)) == ([], [])


async def test_draft_cancelled_while_its_upload_starts_leaves_no_multipart_upload(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, begun, request = objects.bucket(), asyncio.Event(), s3.Bucket.request

    async def slow(self: s3.Bucket, operation: str, **given: object) -> object:
        answer = await request(self, operation, **given)
        if operation == "create_multipart_upload":
            begun.set()
            await asyncio.sleep(0.05)  # the response is in flight
        return answer

    monkeypatch.setattr(s3.Bucket, "request", slow)
    async with bucket_of(objects, name) as store:
        task = asyncio.create_task(keep(store, "a.db", LONG))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    assert (objects.uploads(name), objects.keys(name)) == ([], [])


async def test_multipart_upload_of_a_killed_process_is_aborted_by_the_next_attempt(objects: ObjectStore) -> None:
    name = objects.bucket()
    left = objects.client.create_multipart_upload(Bucket=name, Key="a.db")
    objects.client.upload_part(Bucket=name, Key="a.db", UploadId=left["UploadId"], PartNumber=1, Body=b"x")
    objects.client.create_multipart_upload(Bucket=name, Key="a.db.other")
    async with bucket_of(objects, name) as store:
        await keep(store, "a.db", b"whole")
    assert objects.uploads(name) == ["a.db.other"], "uploads of other files are not aborted"
    assert objects.keys(name) == ["a.db"]


@pytest.mark.parametrize("code", ["AccessDenied", "NotImplemented"])
async def test_store_that_cannot_list_uploads_still_accepts_files(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    name = objects.bucket()
    async with bucket_of(objects, name) as store:

        async def refuse(**_: object) -> None:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "ListMultipartUploads")

        monkeypatch.setattr(store._s3, "list_multipart_uploads", refuse)
        await keep(store, "a.db", b"whole")
    assert objects.keys(name) == ["a.db"]


async def test_failed_part_aborts_the_draft(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    name, request = objects.bucket(), s3.Bucket.request

    async def failing(self: s3.Bucket, operation: str, **given: object) -> object:
        if operation == "upload_part" and given["PartNumber"] == 2:
            raise StoreUnreachable("cut off")
        return await request(self, operation, **given)

    monkeypatch.setattr(s3.Bucket, "request", failing)
    async with bucket_of(objects, name) as store:
        with pytest.raises(StoreUnreachable):
            await keep(store, "a.db", LONG)
    assert (objects.uploads(name), objects.keys(name)) == ([], [])


async def test_attempts_that_store_the_same_file_at_once_do_not_mix(store: SnapshotStore) -> None:
    """The process of an attempt whose pod was deleted by force may still run on its node."""
    async with store.draft("demo-1/a.db") as former:
        await former.write(b"former" * 100)
        async with store.draft("demo-1/a.db") as latter:
            await latter.write(b"latter")
            await former.write(b"former" * 100)
            await latter.keep()
            assert await content_of(store, "demo-1/a.db") == b"latter"
    assert await content_of(store, "demo-1/a.db") == b"latter"
    assert await store.names("demo-1") == ["demo-1/a.db"]


# Remains of killed attempts on a volume.


def remains(directory: Path, name: str, *, seconds: float) -> Path:
    """Leave a file that was last written some seconds ago, by the clock of the volume."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_bytes(b"of an earlier attempt" * 100)
    os.utime(directory)
    at = directory.stat().st_mtime - seconds
    os.utime(path, (at, at))
    return path


OTHER, RECORD_OF_OTHER = ".b-0a1b2c3d.db.0123456789abcdef.partial", ".b-0a1b2c3d.db.json.0123456789abcdef.partial"
EARLIER_VERSION = ".b-0a1b2c3d.db.partial"
LONG_AGO = ABANDONED_SECONDS + 1


@pytest.mark.parametrize("name", [OTHER, RECORD_OF_OTHER, EARLIER_VERSION])
async def test_partial_file_of_a_killed_attempt_is_removed(tmp_path: Path, name: str) -> None:
    remains(tmp_path / "demo-1", name, seconds=LONG_AGO)
    await keep(Volume(tmp_path), "demo-1/a.db", b"whole")
    assert names_in(tmp_path / "demo-1") == ["a.db"]


@pytest.mark.parametrize("name", [".a.db.partial", ".a.db.0123456789abcdef.partial"])
async def test_partial_file_of_an_earlier_attempt_is_removed_at_once(tmp_path: Path, name: str) -> None:
    """An EtcdBackup has one attempt at a time."""
    remains(tmp_path, name, seconds=0)
    await keep(Volume(tmp_path), "a.db", b"whole")
    assert names_in(tmp_path) == ["a.db"]
    assert (tmp_path / "a.db").read_bytes() == b"whole"


async def test_partial_file_that_was_just_written_stays(tmp_path: Path) -> None:
    """Some network file systems show locks only to processes on the same node."""
    remains(tmp_path, OTHER, seconds=ABANDONED_SECONDS - 60)
    await keep(Volume(tmp_path), "a.db", b"whole")
    assert names_in(tmp_path) == [OTHER, "a.db"]


async def test_clock_of_the_node_does_not_decide_which_partial_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    remains(tmp_path, OTHER, seconds=LONG_AGO)
    await keep(Volume(tmp_path), "a.db", b"whole")
    assert names_in(tmp_path) == ["a.db"]
    monkeypatch.setattr("time.time", lambda: 4e9)
    remains(tmp_path, OTHER, seconds=0)
    await keep(Volume(tmp_path), "a.db", b"whole")
    assert names_in(tmp_path) == [OTHER, "a.db"]


async def test_partial_file_of_another_snapshot_that_is_being_written_stays(tmp_path: Path) -> None:
    """Writing may hang for an hour, as on a server of NFS that restarts."""
    store = Volume(tmp_path)
    async with store.draft("b.db") as slow:
        await slow.write(b"slow ")
        [partial] = names_in(tmp_path)
        os.utime(tmp_path / partial, (0, 0))
        await keep(store, "a.db", b"whole")
        assert names_in(tmp_path) == [partial, "a.db"]
        await slow.write(b"but whole")
        await slow.keep()
    assert await content_of(store, "b.db") == b"slow but whole"


async def test_process_of_an_abandoned_attempt_does_not_replace_the_file_of_a_later_one(tmp_path: Path) -> None:
    """E4: the API server no longer had its pod. It replaced the snapshot whose revision and digest the status has."""
    store = Volume(tmp_path)
    async with store.draft("a.db") as former:
        await former.write(b"older")
        await keep(store, "a.db", b"whole")
        await former.write(b" data")
        with pytest.raises(SnapshotMissing):
            await former.keep()
    assert await content_of(store, "a.db") == b"whole"
    assert names_in(tmp_path) == ["a.db"]


FOREIGN = (
    ".b.db.partial.bak",
    "b.db.partial",
    ".notes.partial",
    ".b.db.0123.swp",
    ".B.DB.partial",
    "b.db",
    "b.db.json",
)


async def test_no_other_file_is_removed(tmp_path: Path) -> None:
    for name in FOREIGN:
        remains(tmp_path, name, seconds=LONG_AGO)
    (tmp_path / ".c.db.partial").mkdir()
    (tmp_path / ".d.db.partial").symlink_to(tmp_path / "b.db")
    remains(tmp_path / "deeper", OTHER, seconds=LONG_AGO)
    remains(tmp_path / "x", OTHER, seconds=LONG_AGO)
    before = names_in(tmp_path)
    await keep(Volume(tmp_path), "x/a.db", b"whole")
    await keep(Volume(tmp_path), "a.db", b"whole")
    assert names_in(tmp_path) == sorted([*before, "a.db"])
    assert (names_in(tmp_path / "deeper"), names_in(tmp_path / "x")) == ([OTHER], ["a.db"])


async def test_partial_file_that_cannot_be_removed_does_not_fail_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remains(tmp_path, OTHER, seconds=LONG_AGO)

    def utime(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", utime)
    await keep(Volume(tmp_path), "a.db", b"whole")
    assert names_in(tmp_path) == [OTHER, "a.db"]


async def test_partial_file_is_not_listed(tmp_path: Path) -> None:
    """Retention counts what is listed."""
    for name in (OTHER, RECORD_OF_OTHER, EARLIER_VERSION):
        remains(tmp_path / "demo-1", name, seconds=0)
    assert await Volume(tmp_path).names("demo-1") == []


@pytest.mark.parametrize("name", ["../a.db", "x/../../a.db", "/etc/passwd", "link/a.db"])
async def test_name_outside_the_volume_is_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "volume"
    inside.mkdir()
    (tmp_path / "a.db").write_bytes(b"secret")
    (inside / "link").symlink_to(tmp_path)
    store = Volume(inside)
    for attempt in (content_of(store, name), store.remove(name), keep(store, name, b"x")):
        with pytest.raises(AccessDenied, match="leads out of the volume"):
            await attempt
    assert (tmp_path / "a.db").read_bytes() == b"secret"


# Errors.


async def error_message(objects: ObjectStore, error: type[StoreError], bucket: str, **location: str) -> str:
    """Return the message of the error that storing a file raises."""
    async with bucket_of(objects, bucket, **location) as store:
        with pytest.raises(error) as caught:
            await keep(store, "a.db", b"x")
    return str(caught.value)


async def test_missing_bucket_is_reported(objects: ObjectStore) -> None:
    message = await error_message(objects, BucketMissing, "no-such-bucket")
    assert message == f"Bucket no-such-bucket does not exist at {objects.url}. Create it, or name another one."


async def test_unreachable_store_is_reported(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_MAX_ATTEMPTS", 1)
    message = await error_message(objects, StoreUnreachable, "bucket", endpoint="http://127.0.0.1:9")
    assert message.startswith("http://127.0.0.1:9 does not answer: ")


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("AccessDenied", AccessDenied, "must allow this key to list, get, put and delete objects"),
        ("InvalidAccessKeyId", AccessDenied, "correct the key in the Secret with the credentials"),
        ("AuthorizationHeaderMalformed", BucketMissing, "not in region us-east-1: correct region or endpoint"),
        ("QuotaExceeded", StoreFull, "Free space in bucket"),
        ("InvalidRequest", StoreRefused, "returned InvalidRequest: no."),
    ],
)
async def test_error_code_of_the_store_is_explained(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, code: str, error: type[StoreError], words: str
) -> None:
    name = objects.bucket()
    async with bucket_of(objects, name) as store:

        async def refuse(**_: object) -> None:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "PutObject")

        monkeypatch.setattr(store._s3, "put_object", refuse)
        with pytest.raises(error, match=words):
            await keep(store, "a.db", b"x")


@pytest.mark.parametrize(
    ("number", "error"), [(28, "StoreFull"), (122, "StoreFull"), (30, "AccessDenied"), (5, "StoreRefused")]
)
async def test_error_of_the_file_system_is_classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: str
) -> None:
    def write(descriptor: int, block: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StoreError) as caught:
        await keep(Volume(tmp_path), "a.db", b"x")
    assert type(caught.value).__name__ == error
    assert names_in(tmp_path) == [], "no partial file is left"
