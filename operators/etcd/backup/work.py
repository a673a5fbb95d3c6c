"""The work on snapshots: take one, fetch one, seal what was made of it, and keep no more than are wanted.

Nothing is final before the whole snapshot was verified, and each piece of work may be begun again after it was cut off.
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
from operators.etcd.backup.snapshot import RECORD, Checksum, Record, directory, due_of
from operators.etcd.backup.store import (
    BLOCK_BYTES,
    DataInTheWay,
    ForeignCluster,
    NotASnapshot,
    SnapshotCorrupt,
    SnapshotMissing,
    SnapshotStore,
    SnapshotTooNew,
)
from operators.etcd.backup.volume import Volume, sync_directory
from operators.etcd.client.server import Server

log = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 10.0
"""Seconds between two lines that tell how far it is."""


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """What snapshot is wanted.

    Attributes:
        file: its name in the store.
        member: name of the member that is asked.
        cluster_id: the cluster that it must be of, 16 hexadecimal digits; empty for any.
        namespace, cluster, cluster_uid: the EtcdCluster.
        backup: name of the EtcdBackup.
        scheduled: whether the cluster's schedule asked for it.
        keep: how many of those are kept; 0 for all.
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
    """Take a snapshot of a member's database, and keep it with its record.

    Raises:
        BackupError: nothing was kept; the text says why.
        EtcdError: the member did not answer, or no more.
    """
    status = await server.status()
    if status.leader:
        await server.members()  # it first hears of all that was agreed on: what was acknowledged before is in there
    cluster_id = f"{status.cluster_id:016x}"
    if order.cluster_id and status.cluster_id and cluster_id != order.cluster_id:
        raise ForeignCluster(
            f"{order.member} is of cluster {cluster_id}, not of {order.cluster_id}: nothing was kept. Is its address "
            "another cluster's?"
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
        cluster_id=cluster_id if status.cluster_id else order.cluster_id,
        member=order.member,
        taken=taken.strftime("%Y-%m-%dT%H:%M:%SZ"),
        cluster=f"{order.namespace}/{order.cluster}",
        cluster_uid=order.cluster_uid,
        backup=order.backup,
        scheduled=order.scheduled,
    )
    async with store.draft(order.file + RECORD) as draft:
        await draft.write(record.to_json().encode())
        await draft.keep()
    log.info("%s: kept in %s: revision %d, %d bytes.", order.file, store, record.revision, record.size)
    return record


async def prune(store: SnapshotStore, order: SnapshotOrder) -> list[str]:
    """Keep the newest of the snapshots that the cluster's schedule asked for, and remove the others.

    A file is touched only if its record says that it is of this very cluster's schedule. The record goes last, so that
    what a crash leaves is found the next time.

    Returns:
        What was removed.
    """
    found = []
    for name in await store.names(directory(order.cluster, order.cluster_uid)):
        if name.endswith(RECORD):
            record = await _record(store, name)
            if (
                record
                and record.scheduled
                and record.cluster_uid == order.cluster_uid
                and _is_named(record, name, order)
            ):
                found.append(record)
    found.sort(key=lambda record: (record.backup, record.taken), reverse=True)  # names of one length, by their time
    removed = []
    for record in found[order.keep :]:
        await store.remove(record.file)
        await store.remove(record.file + RECORD)
        removed.append(record.file)
        log.info("%s: removed from %s, for newer ones are as many as are kept.", record.file, store)
    return removed


def _is_named(record: Record, name: str, order: SnapshotOrder) -> bool:
    """Whether a record is of the file beside which it lies: what was copied elsewhere is somebody else's."""
    return record.file + RECORD == name and due_of(order.cluster, record.backup) is not None


SCRATCH, DATA = "scratch", "data"
SNAPSHOT = "snapshot.db"
MARK = Path("member/restored.json")
"""In etcd's data directory, where etcd looks past it: what it was restored from. It appears together with the data."""


async def fetch(store: SnapshotStore, name: str, home: Path, newest: str) -> Record | None:
    """Fetch a snapshot, verified, to where etcdutl finds it: `scratch/snapshot.db`.

    Args:
        home: where the member's volume is mounted.
        newest: the minor version that is to read it, such as 3.6; empty for any.

    Returns:
        Its record, if it has one.

    Raises:
        BackupError: it cannot be had, or must not be used.
    """
    scratch = await asyncio.to_thread(_empty_scratch, home)
    record = await _record(store, name + RECORD)
    checksum = Checksum()
    async with Volume(scratch).draft(SNAPSHOT) as draft:
        async with contextlib.aclosing(_ahead(store.blocks(name))) as blocks:
            async for block in _logged(_checked(blocks, checksum), record.size if record else 0):
                await draft.write(block)
        try:
            digest = checksum.verify()
        except (NotASnapshot, SnapshotCorrupt) as error:
            raise type(error)(f"{name} in {store}: {error} Nothing was restored. Name a sound one.") from None
        if record and record.sha256 != digest:
            raise SnapshotCorrupt(
                f"{name} in {store} has SHA-256 {digest}, and its record says {record.sha256}: it was replaced. "
                "Nothing was restored. Name a sound one."
            )
        await draft.keep()
    found = await _contents(Volume(scratch), SNAPSHOT)
    if newest and _minor(found.version) > _minor(newest):
        raise SnapshotTooNew(
            f"{name} in {store} is of etcd {found.version}, and {newest} is to read it, which cannot. Nothing was "
            "restored. Give the cluster that version, or name an older snapshot."
        )
    log.info("%s: fetched from %s: revision %d, %d bytes.", name, store, found.revision, checksum.passed)
    return record


async def salvage(home: Path, token: str) -> None:
    """Let etcdutl find the database that the volume itself holds, as `scratch/snapshot.db`: nothing is copied.

    Args:
        token: of the recovery: what it left, if it was cut off, is found by it.

    Raises:
        SnapshotMissing: the volume has none.
        NotASnapshot: it is none.
    """
    scratch = await asyncio.to_thread(_empty_scratch, home)
    former = _former(home, token)
    database = (former if former.is_dir() else home / DATA) / "member/snap/db"
    if not database.is_file():
        raise SnapshotMissing(f"The volume has no {database.relative_to(home)}: there is nothing to recover.")
    (scratch / SNAPSHOT).hardlink_to(database)
    found = await _contents(Volume(scratch), SNAPSHOT)
    log.info("%s: revision %d.", database, found.revision)


async def seal(home: Path, token: str, *, replace: bool) -> bolt.Contents:
    """Make what etcdutl restored into `scratch/data` the member's data: one rename, after which all is done.

    Args:
        token: of this restore or recovery; the data bears it from then on.
        replace: whether data that is there already stays as `data.before-TOKEN`, or refuses all.

    Returns:
        What the data holds.

    Raises:
        DataInTheWay: there is other data, and `replace` does not hold.
    """
    data, made = home / DATA, home / SCRATCH / DATA
    if _mark(data) != token:
        if not (made / MARK.parent).is_dir():
            raise SnapshotMissing(f"There is no {made}: etcdutl restored nothing.")
        if data.is_dir() and any(data.iterdir()):
            if not replace:
                raise DataInTheWay(
                    "The volume holds data already: nothing was restored. It was left as it is; to restore "
                    "all the same, delete the volume claim (and with it that data), or give the cluster another name."
                )
            data.rename(_former(home, token))
        await asyncio.to_thread(_finish, made, token)
        made.rename(data)
        sync_directory(home)
        log.info("%s: sealed.", data)
    await asyncio.to_thread(shutil.rmtree, home / SCRATCH, ignore_errors=True)
    return await _contents(Volume(data), "member/snap/db")


def _finish(made: Path, token: str) -> None:
    """Mark data, and let it outlast a crash of the machine."""
    (made / MARK).write_text(json.dumps({"token": token}))
    for path in (made, *made.rglob("*")):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _mark(data: Path) -> str:
    """The token of the restore that data is from; empty if it is from none."""
    try:
        return str(json.loads((data / MARK).read_text())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _former(home: Path, token: str) -> Path:
    return home / f"{DATA}.before-{token}"


def _empty_scratch(home: Path) -> Path:
    """A directory of its own on the member's volume, without what an earlier try left."""
    scratch = home / SCRATCH
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch)
    scratch.mkdir(mode=0o700)
    return scratch


async def _record(store: SnapshotStore, name: str) -> Record | None:
    """A record; None if there is none, or it cannot be read."""
    try:
        return Record.from_json(await store.read(name, 0, BLOCK_BYTES))
    except (SnapshotMissing, ValueError):
        return None


async def _contents(store: SnapshotStore, name: str) -> bolt.Contents:
    """What a snapshot holds, read back from where it is kept."""
    try:
        return await bolt.contents(partial(store.read, name))
    except bolt.NotADatabase as wrong:
        raise NotASnapshot(f"{name} in {store} is no database of etcd: {wrong}.") from None


async def _joined(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in blocks of BLOCK, but for the last."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        while len(block) >= BLOCK_BYTES:
            yield bytes(memoryview(block)[:BLOCK_BYTES])
            del block[:BLOCK_BYTES]
    if block:
        yield bytes(block)


async def _ahead(blocks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same blocks, of which the next comes while one is written."""

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
    """The same blocks, each added to the checksum."""
    async for block in blocks:
        await asyncio.to_thread(checksum.add, block)
        yield block


async def _logged(blocks: AsyncIterator[bytes], total: int) -> AsyncIterator[bytes]:
    """The same blocks, with a line in the log now and then.

    Args:
        total: bytes that are expected, about; 0 if nobody knows.
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
