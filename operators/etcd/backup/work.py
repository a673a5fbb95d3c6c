"""Work on snapshots: take one, fetch one, seal restored data, and prune old ones.

Nothing is final before the whole snapshot is verified, and each piece of work can be repeated after an interruption.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from operators.etcd.backup import bolt
from operators.etcd.backup.snapshot import RECORD, Checksum, Record, beyond_retention, directory, due_of
from operators.etcd.backup.store import (
    BLOCK_BYTES,
    DataInTheWay,
    ForeignCluster,
    NotASnapshot,
    SnapshotCorrupt,
    SnapshotMissing,
    SnapshotStore,
    SnapshotTooNew,
    StoreFull,
    blocks_of,
)
from operators.etcd.backup.volume import Volume, sync_directory
from operators.etcd.client.server import EndpointStatus, Server
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.encoding import decode

log = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 10.0
"""Interval of log lines about the progress."""

ELECTION_SECONDS, POLL_SECONDS = 60.0, 1.0
"""Time for the election of a leader before a snapshot is taken without one, and the interval of checks for it."""


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """Parameters of a snapshot.

    Attributes:
        file: name in the store.
        member: name of the member that provides it.
        cluster_id: id of the cluster that the member must belong to, 16 hexadecimal digits; empty for any.
        namespace, cluster, cluster_uid: namespace, name and UID of the EtcdCluster.
        backup: name of the EtcdBackup.
        scheduled: whether it belongs to the cluster's schedule.
        keep: number of scheduled snapshots to keep; 0 for all.
    """

    file: str
    member: str
    cluster_id: str
    namespace: str
    cluster: str
    cluster_uid: str
    backup: str
    scheduled: bool = False
    keep: int = 0


async def take(server: Server, store: SnapshotStore, order: SnapshotOrder) -> Record:
    """Take a snapshot of a member's database, and store it with its record.

    Raises:
        BackupError: nothing was kept; the message has the reason.
        EtcdError: the member did not answer, or stopped answering.
    """
    status, is_current = await _caught_up(server)
    cluster_id = f"{status.cluster_id:016x}"
    if order.cluster_id and cluster_id != order.cluster_id:
        raise ForeignCluster(
            f"{order.member} belongs to cluster {cluster_id}, not to {order.cluster_id}; nothing was kept. Check "
            "whether the address belongs to another cluster."
        )
    taken, checksum = datetime.now(UTC), Checksum()
    async with store.draft(order.file) as draft:
        async with contextlib.aclosing(_ahead(_joined(server.snapshot()))) as blocks:
            async for block in _logged(_checked(blocks, checksum), status.db_size):
                await draft.write(block)
        digest = checksum.verify()
        await draft.keep()
    found = await _contents(store, order.file)
    record = Record(
        file=order.file,
        size=checksum.passed,
        sha256=digest,
        revision=found.revision,
        version=found.version,
        cluster_id=cluster_id,
        member=order.member,
        taken=rfc3339(taken),
        cluster=f"{order.namespace}/{order.cluster}",
        cluster_uid=order.cluster_uid,
        backup=order.backup,
        scheduled=order.scheduled,
        current=is_current,
    )
    async with store.draft(order.file + RECORD) as draft:
        await draft.write(record.to_json().encode())
        await draft.keep()
    log.info("%s: stored in %s: revision %d, %d bytes.", order.file, store, record.revision, record.size)
    return record


async def _caught_up(server: Server) -> tuple[EndpointStatus, bool]:
    """Return a member's status, and whether it has all acknowledged writes: a linearizable read makes it catch up."""
    until = time.monotonic() + ELECTION_SECONDS
    while not (status := await server.status()).leader:
        if time.monotonic() >= until:
            return status, False
        await asyncio.sleep(POLL_SECONDS)
    await server.members()
    return status, True


async def prune(store: SnapshotStore, order: SnapshotOrder) -> list[str]:
    """Keep the newest scheduled snapshots of the cluster, and delete the others.

    A file is deleted only if its record belongs to this cluster's schedule, and enough newer snapshots are complete
    (`beyond_retention`). The record is deleted last, so that the next run finds what a crash left behind.

    Returns:
        Names of the deleted files.
    """
    names = [name for name in await store.names(directory(order.cluster, order.cluster_uid)) if name.endswith(RECORD)]
    records = [(name, record) for name in names if (record := await _record(store, name))]
    own = [record for name, record in records if _is_of_schedule(record, name, order)]
    removed = []
    for record in beyond_retention([(record, await _is_complete(store, record)) for record in own], order.keep):
        await store.remove(record.file)
        await store.remove(record.file + RECORD)
        removed.append(record.file)
        log.info("%s: deleted from %s: beyond the retention of scheduled snapshots.", record.file, store)
    return removed


async def _is_complete(store: SnapshotStore, record: Record) -> bool:
    """Whether the file of a record exists with its whole size; an unreachable store is an error, not an answer."""
    try:
        return len(await store.read(record.file, max(0, record.size - 1), 2)) == 1
    except SnapshotMissing:
        return False


def _is_of_schedule(record: Record, name: str, order: SnapshotOrder) -> bool:
    """Whether a record is of the cluster's schedule, and of the file next to it: copies of records are ignored."""
    is_named = record.file + RECORD == name and due_of(order.cluster, record.backup) is not None
    return is_named and record.scheduled and record.cluster_uid == order.cluster_uid


RESERVED_BYTES = 192 << 20
"""Space that a restored member needs in addition to its database: three segments of its log, of 64 MiB each.

etcdutl writes the first segment, and etcd allocates the next ones when it starts (wal/file_pipeline.go).
"""

SCRATCH, DATA = "scratch", "data"
SNAPSHOT = "snapshot.db"
MARK = Path("member/restored.json")
"""File with the source of restored data, in etcd's data directory. etcd ignores it, and it appears with the data."""


async def fetch(store: SnapshotStore, name: str, home: Path, newest: str) -> Record | None:
    """Fetch and verify a snapshot into `scratch/snapshot.db`, where etcdutl reads it.

    Args:
        home: directory where the member's volume is mounted.
        newest: newest series that can read the data, such as 3.6; empty for any.

    Returns:
        Record of the snapshot; None without one.

    Raises:
        BackupError: the snapshot is not available, or must not be used.
    """
    scratch = await asyncio.to_thread(_empty_scratch, home)
    record = await _record(store, name + RECORD)
    checksum = Checksum()
    async with Volume(scratch).draft(SNAPSHOT) as draft:
        async with contextlib.aclosing(_ahead(blocks_of(store, name))) as blocks:
            async for block in _logged(_checked(blocks, checksum), record.size if record else 0):
                await draft.write(block)
        try:
            digest = checksum.verify()
        except (NotASnapshot, SnapshotCorrupt) as error:
            raise type(error)(f"{name} in {store}: {error} Nothing was restored. Name another snapshot.") from None
        if record and record.sha256 != digest:
            raise SnapshotCorrupt(
                f"{name} in {store} has SHA-256 {digest}, but its record has {record.sha256}: the file was "
                "replaced. Nothing was restored. Name another snapshot."
            )
        await draft.keep()
    found = await _contents(Volume(scratch), SNAPSHOT)
    if newest and _minor(found.version) > _minor(newest):
        raise SnapshotTooNew(
            f"{name} in {store} was written by etcd {found.version}, which {newest} cannot read. Nothing was "
            f"restored. Set the version of the cluster to {found.version} or later, or name an older snapshot."
        )
    log.info("%s: fetched from %s: revision %d, %d bytes.", name, store, found.revision, checksum.passed)
    return record


async def salvage(home: Path, token: str) -> None:
    """Link the database of the volume itself as `scratch/snapshot.db`, where etcdutl reads it: nothing is copied.

    Args:
        token: token of the recovery, by which the remains of an interrupted attempt are found.

    Raises:
        SnapshotMissing: the volume has no database.
        NotASnapshot: the file is not a database of etcd.
        StoreFull: the volume has no space for the second copy that etcdutl writes; nothing was changed.
    """
    scratch = await asyncio.to_thread(_empty_scratch, home)
    former = _former(home, token)
    database = (former if former.is_dir() else home / DATA) / "member/snap/db"
    if not database.is_file():
        raise SnapshotMissing(f"The volume has no {database.relative_to(home)}: there is no data to recover.")
    _require_space(home, database.stat().st_size + RESERVED_BYTES)
    (scratch / SNAPSHOT).hardlink_to(database)
    found = await _contents(Volume(scratch), SNAPSHOT)
    log.info("%s: revision %d.", database, found.revision)


def _require_space(home: Path, needed: int) -> None:
    """Require free space on the volume, before etcdutl fills it up.

    Raises:
        StoreFull: there is less free space.
    """
    usage = shutil.disk_usage(home)
    if usage.free < needed:
        least = -(-(usage.total + needed - usage.free) >> 20)
        raise StoreFull(
            f"The volume has {usage.free >> 20} MiB free, and the recovery needs {needed >> 20} MiB for a second copy "
            f"of the data. Set spec.storage.size to {least}Mi or more: the volume is expanded, and the recovery "
            "continues."
        )


async def seal(home: Path, token: str, *, replace: bool) -> bolt.Contents:
    """Turn the data that etcdutl restored into `scratch/data` into the member's data, by one rename.

    Args:
        token: token of this restore or recovery, which is recorded in the data.
        replace: whether existing data is kept as `data.before-TOKEN`; otherwise existing data is an error.

    Returns:
        Contents of the data.

    Raises:
        DataInTheWay: there is other data, and `replace` is false.
    """
    data, made = home / DATA, home / SCRATCH / DATA
    if _mark(data) != token:
        if not (made / MARK.parent).is_dir():
            raise SnapshotMissing(f"{made} does not exist: etcdutl restored nothing.")
        if data.is_dir() and any(data.iterdir()):
            if not replace:
                raise DataInTheWay(
                    "The volume already has data. Nothing was restored, and the data was not changed. To restore "
                    "nevertheless, delete the volume claim (and that data), or give the cluster another name."
                )
            data.rename(_former(home, token))
        await asyncio.to_thread(_finish, made, token)
        made.rename(data)
        sync_directory(home)
        log.info("%s: sealed.", data)
    await asyncio.to_thread(shutil.rmtree, home / SCRATCH, ignore_errors=True)
    return await _contents(Volume(data), "member/snap/db")


async def clean(home: Path, token: str) -> int:
    """Delete the former data directory that a recovery set aside; return the bytes that it used."""
    former = _former(home, token)
    used = sum(path.stat().st_size for path in former.rglob("*") if path.is_file())
    if former.is_dir():
        await asyncio.to_thread(shutil.rmtree, former)
        sync_directory(home)
        log.info("%s: deleted, %d bytes.", former, used)
    return used


def _finish(made: Path, token: str) -> None:
    """Mark the data, and make it survive a crash of the machine."""
    (made / MARK).write_text(json.dumps({"token": token}))
    for path in (made, *made.rglob("*")):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _mark(data: Path) -> str:
    """Return the token of the restore that created the data; empty if there is none."""
    try:
        return str(decode((data / MARK).read_text())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _former(home: Path, token: str) -> Path:
    return home / f"{DATA}.before-{token}"


def _empty_scratch(home: Path) -> Path:
    """Return an empty directory on the member's volume, without remains of an earlier attempt."""
    scratch = home / SCRATCH
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch)
    scratch.mkdir(mode=0o700)
    return scratch


async def _record(store: SnapshotStore, name: str) -> Record | None:
    """Return a record; None if it does not exist or cannot be read."""
    try:
        return Record.from_json(await store.read(name, 0, BLOCK_BYTES))
    except (SnapshotMissing, ValueError):
        return None


async def _contents(store: SnapshotStore, name: str) -> bolt.Contents:
    """Return the contents of a stored snapshot, read from the store."""
    try:
        return await bolt.contents(partial(store.read, name))
    except bolt.NotADatabase as wrong:
        raise NotASnapshot(f"{name} in {store} is not a database of etcd: {wrong}.") from None


async def _joined(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in blocks of BLOCK_BYTES, except for the last."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        while len(block) >= BLOCK_BYTES:
            yield bytes(memoryview(block)[:BLOCK_BYTES])
            del block[:BLOCK_BYTES]
    if block:
        yield bytes(block)


async def _ahead(blocks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the same blocks, and read the next one while one is written."""

    async def following() -> bytes | None:
        return await anext(blocks, None)

    coming = asyncio.create_task(following())
    try:
        while (block := await coming) is not None:
            coming = asyncio.create_task(following())
            yield block
    finally:
        coming.cancel()
        await asyncio.wait([coming])


async def _checked(blocks: AsyncIterator[bytes], checksum: Checksum) -> AsyncIterator[bytes]:
    """Yield the same blocks, and add each to the checksum."""
    async for block in blocks:
        await asyncio.to_thread(checksum.add, block)
        yield block


async def _logged(blocks: AsyncIterator[bytes], total: int) -> AsyncIterator[bytes]:
    """Yield the same blocks, and log the progress at intervals.

    Args:
        total: expected number of bytes; 0 if unknown.
    """
    begun = logged_at = time.monotonic()
    passed = 0
    async for block in blocks:
        yield block
        passed += len(block)
        now = time.monotonic()
        if now - logged_at >= LOG_INTERVAL_SECONDS:
            logged_at = now
            share = f" of about {total >> 20} MiB ({min(99, 100 * passed // total)} %)" if total else ""
            log.info("%d MiB%s, %.1f MiB/s.", passed >> 20, share, passed / (now - begun) / (1 << 20))


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
