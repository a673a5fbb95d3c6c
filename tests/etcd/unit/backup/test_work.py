"""Taking, fetching, sealing and pruning snapshots in both kinds of stores; each can be interrupted and repeated."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections import namedtuple
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from operators.etcd.backup import bolt, work
from operators.etcd.backup.bolt import Contents
from operators.etcd.backup.snapshot import Record
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
from operators.etcd.backup.volume import Volume
from operators.etcd.backup.work import SnapshotOrder
from operators.etcd.client.errors import NoLeader, Unreachable
from operators.etcd.client.server import EndpointStatus
from tests.etcd.unit.backup.states import names_in
from tests.etcd.unit.backup.test_snapshot import sealed

DATABASE = b"a database of etcd" + bytes(BLOCK_BYTES + 1024 - 18)
SNAPSHOT = sealed(DATABASE)
ORDER = SnapshotOrder("demo-1/a.db", "demo-0", "00000000000000c1", "default", "demo", "u-1", "a")
STATUS = EndpointStatus(0xC1, 1, 1, "3.6.8", 7, 1, 10, 10, len(DATABASE), len(DATABASE))


@pytest.fixture(autouse=True)
def _any_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the parser of bbolt databases: these snapshots are plain bytes. tests/etcd/containers read real ones."""

    async def contents(read: Any) -> Contents:
        return Contents(7, (await read(0, 64)).partition(b"version ")[2].partition(b";")[0].decode() or "3.6.0")

    monkeypatch.setattr(bolt, "contents", contents)


class Member:
    """Fake member that streams a snapshot and may stop early."""

    def __init__(self, snapshot: bytes = SNAPSHOT, *, ends: int | None = None, status: EndpointStatus = STATUS) -> None:
        self._snapshot = snapshot
        self._ends = ends
        self._status = status
        self.caught_up = False

    async def status(self) -> EndpointStatus:
        return self._status

    async def members(self) -> None:
        self.caught_up = True

    async def snapshot(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._snapshot), 32768):
            if self._ends is not None and at >= self._ends:
                raise Unreachable("demo-0 ended its snapshot")
            yield self._snapshot[at : at + 32768]


async def take(store: SnapshotStore, member: Member | None = None, **changes: Any) -> Record:
    return await work.take(member or Member(), store, dataclasses.replace(ORDER, **changes))  # type: ignore[arg-type]


async def keep(store: SnapshotStore, name: str, content: bytes) -> None:
    async with store.draft(name) as draft:
        for at in range(0, len(content), BLOCK_BYTES):
            await draft.write(content[at : at + BLOCK_BYTES])
        await draft.keep()


async def test_snapshot_is_stored_with_its_record(store: SnapshotStore) -> None:
    record = await take(store)
    assert await store.names("demo-1") == ["demo-1/a.db", "demo-1/a.db.json"]
    assert b"".join([block async for block in blocks_of(store, "demo-1/a.db")]) == SNAPSHOT
    assert Record.from_json(await store.read("demo-1/a.db.json", 0, BLOCK_BYTES)) == record
    assert (record.size, record.sha256) == (len(SNAPSHOT), hashlib.sha256(SNAPSHOT).hexdigest())
    assert (record.revision, record.version, record.cluster_id) == (7, "3.6.0", "00000000000000c1")
    assert (record.cluster, record.member, record.scheduled) == ("default/demo", "demo-0", False)


@pytest.mark.parametrize(
    ("member", "error"),
    [
        (Member(SNAPSHOT[:-1] + bytes([SNAPSHOT[-1] ^ 1])), SnapshotCorrupt),
        (Member(b"!" + SNAPSHOT[1:]), SnapshotCorrupt),
        (Member(SNAPSHOT[:-512]), SnapshotCorrupt),
        (Member(DATABASE), NotASnapshot),
        (Member(b""), NotASnapshot),
        (Member(ends=0), Unreachable),
        (Member(ends=BLOCK_BYTES), Unreachable),
        (Member(ends=BLOCK_BYTES - 32768), Unreachable),
        (Member(status=dataclasses.replace(STATUS, cluster_id=0xBAD)), ForeignCluster),
        (Member(status=dataclasses.replace(STATUS, cluster_id=0)), ForeignCluster),
    ],
)
async def test_invalid_or_incomplete_snapshot_is_not_stored(
    store: SnapshotStore, member: Member, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await take(store, member)
    assert await store.names("demo-1") == []


async def test_member_catches_up_before_its_snapshot(store: SnapshotStore) -> None:
    """A snapshot contains every write acknowledged before its request, even if the member lags."""
    member = Member()
    record = await take(store, member)
    assert member.caught_up
    assert record.current


LEADERLESS = dataclasses.replace(STATUS, leader=0)


async def test_member_without_a_quorum_does_not_catch_up(store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a quorum, a linearizable read would fail."""
    monkeypatch.setattr(work, "ELECTION_SECONDS", 0)
    member = Member(status=LEADERLESS)
    record = await take(store, member)
    assert not member.caught_up
    assert not record.current


async def test_member_that_elects_a_leader_meanwhile_catches_up(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "POLL_SECONDS", 0)
    found = iter([LEADERLESS, LEADERLESS, STATUS])
    member = Member()
    monkeypatch.setattr(member, "status", lambda: _answer(next(found)))
    record = await take(store, member)
    assert member.caught_up
    assert record.current


async def _answer(status: EndpointStatus) -> EndpointStatus:
    return status


async def test_snapshot_of_a_member_that_loses_its_leader_meanwhile_is_not_stored(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def members() -> None:
        raise NoLeader("demo-0 has no leader.")

    member = Member()
    monkeypatch.setattr(member, "members", members)
    with pytest.raises(NoLeader):
        await take(store, member)
    assert await store.names("demo-1") == []


async def test_failed_attempt_keeps_the_former_file_of_the_backup(store: SnapshotStore) -> None:
    await take(store)
    with pytest.raises(SnapshotCorrupt):
        await take(store, Member(b"!" + SNAPSHOT[1:]))
    assert b"".join([block async for block in blocks_of(store, "demo-1/a.db")]) == SNAPSHOT


# Retention.


def nightly(day: int, **changes: Any) -> dict[str, Any]:
    backup = f"demo-2601{day:02}0300"
    return {"file": f"demo-u-1/{backup}-b{day}.db", "backup": backup, "scheduled": True, **changes}


async def test_only_the_newest_scheduled_snapshots_are_kept(store: SnapshotStore) -> None:
    for day in (3, 1, 4, 2):
        await take(store, **nightly(day))
    removed = await work.prune(store, dataclasses.replace(ORDER, scheduled=True, keep=2))
    assert removed == ["demo-u-1/demo-2601020300-b2.db", "demo-u-1/demo-2601010300-b1.db"]
    left = [f"demo-u-1/demo-26010{day}0300-b{day}.db{kind}" for day in (3, 4) for kind in ("", ".json")]
    assert await store.names("demo-u-1") == left


async def test_only_scheduled_snapshots_of_the_cluster_are_removed(store: SnapshotStore) -> None:
    """Keep manual snapshots, those of other clusters, copies, files without a record and invalid records."""
    await take(store, **nightly(9))
    await take(store, **nightly(1, scheduled=False))
    await take(store, **nightly(2, cluster_uid="u-2"))
    await take(store, **nightly(3, backup="before-upgrade"))
    await take(store, **nightly(4))
    record = await store.read("demo-u-1/demo-2601040300-b4.db.json", 0, BLOCK_BYTES)
    await store.remove("demo-u-1/demo-2601040300-b4.db.json")  # the copy below names this file
    await keep(store, "demo-u-1/copy.db.json", record)
    await keep(store, "demo-u-1/broken.db.json", b"{")
    await take(store, **nightly(5, file="elsewhere/demo-2601050300-b5.db"))
    before = await store.names("demo-u-1") + await store.names("elsewhere")
    assert await work.prune(store, dataclasses.replace(ORDER, scheduled=True, keep=1)) == []
    assert await store.names("demo-u-1") + await store.names("elsewhere") == before


async def test_interrupted_pruning_is_completed(store: SnapshotStore) -> None:
    for day in (1, 2):
        await take(store, **nightly(day))
    await store.remove("demo-u-1/demo-2601010300-b1.db")  # killed before the record was removed
    await work.prune(store, dataclasses.replace(ORDER, scheduled=True, keep=1))
    assert await store.names("demo-u-1") == [f"demo-u-1/demo-2601020300-b2.db{kind}" for kind in ("", ".json")]


async def test_record_whose_file_is_not_complete_does_not_count(store: SnapshotStore) -> None:
    """A lifecycle rule of a bucket deletes files; a full volume or a copy by hand truncates them."""
    for day in (1, 2, 3, 4, 5):
        await take(store, **nightly(day))
    await store.remove("demo-u-1/demo-2601040300-b4.db")
    await keep(store, "demo-u-1/demo-2601050300-b5.db", SNAPSHOT[:512])
    await keep(store, "demo-u-1/demo-2601030300-b3.db", SNAPSHOT + b"!")
    removed = await work.prune(store, dataclasses.replace(ORDER, scheduled=True, keep=2))
    assert removed == [], "the only complete snapshots are kept"
    removed = await work.prune(store, dataclasses.replace(ORDER, scheduled=True, keep=1))
    assert removed == ["demo-u-1/demo-2601010300-b1.db"]
    await store.remove("demo-u-1/demo-2601020300-b2.db")
    before = await store.names("demo-u-1")
    assert await work.prune(store, dataclasses.replace(ORDER, scheduled=True, keep=1)) == []
    assert await store.names("demo-u-1") == before, "no complete one is left: everything else may be needed"


# Fetching.


async def fetch(store: SnapshotStore, home: Path, name: str = "demo-1/a.db", newest: str = "3.6") -> None:
    await work.fetch(store, name, home, newest)


async def test_fetched_snapshot_equals_the_stored_one(store: SnapshotStore, tmp_path: Path) -> None:
    await take(store)
    home = tmp_path / "home"
    (home / "scratch" / "data").mkdir(parents=True)  # left by an interrupted attempt: etcdutl would refuse it
    await fetch(store, home)
    assert [path.name for path in (home / "scratch").iterdir()] == ["snapshot.db"]
    assert (home / "scratch" / "snapshot.db").read_bytes() == SNAPSHOT


async def test_snapshot_without_a_record_is_fetched(store: SnapshotStore, tmp_path: Path) -> None:
    """Files of `etcdctl snapshot save` have no record."""
    await keep(store, "saved.db", SNAPSHOT)
    await fetch(store, tmp_path, "saved.db")
    assert (tmp_path / "scratch" / "snapshot.db").read_bytes() == SNAPSHOT


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (
            b"!" + SNAPSHOT[1:],
            SnapshotCorrupt,
            r"saved.db in .*: its checksum is [0-9a-f]{64}, but that of its \d+ bytes",
        ),
        (SNAPSHOT[:-512], SnapshotCorrupt, "Nothing was restored. Name another snapshot."),
        (SNAPSHOT[:-40], NotASnapshot, "the file is truncated, or was copied"),
        (b"", NotASnapshot, "0 bytes are not a snapshot"),
        (sealed(b"version 3.7.0;" + bytes(498)), SnapshotTooNew, "was written by etcd 3.7.0, which 3.6 cannot read"),
    ],
)
async def test_unusable_snapshot_is_refused(
    store: SnapshotStore, tmp_path: Path, content: bytes, error: type[Exception], words: str
) -> None:
    await keep(store, "saved.db", content)
    with pytest.raises(error, match=words):
        await fetch(store, tmp_path, "saved.db")


async def test_snapshot_that_does_not_match_its_record_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    """The file is a valid snapshot, but not the one that its record describes."""
    await take(store)
    await keep(store, "demo-1/a.db", sealed(bytes(512)))
    with pytest.raises(SnapshotCorrupt, match="but its record has"):
        await fetch(store, tmp_path)
    assert not (tmp_path / "scratch" / "snapshot.db").exists()


async def test_missing_snapshot_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    with pytest.raises(SnapshotMissing):
        await fetch(store, tmp_path)


async def test_full_volume_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Volume(tmp_path / "store")
    await take(store)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreFull):
        await fetch(store, tmp_path)


# Sealing.


def restored(home: Path, content: str = "new") -> None:
    """Create the files that etcdutl leaves."""
    made = home / "scratch" / "data" / "member" / "snap"
    made.mkdir(parents=True)
    (made / "db").write_text(content)
    (home / "scratch" / "snapshot.db").write_text("snapshot")


def holds(home: Path, directory: str = "data") -> str:
    return (home / directory / "member" / "snap" / "db").read_text()


async def seal(home: Path, token: str = "t1", *, replace: bool = False) -> Contents:
    return await work.seal(home, token, replace=replace)


async def test_restored_data_becomes_the_data_directory(tmp_path: Path) -> None:
    restored(tmp_path)
    assert (await seal(tmp_path)).revision == 7
    assert names_in(tmp_path) == ["data"]
    assert holds(tmp_path) == "new"


async def test_sealing_twice_changes_nothing(tmp_path: Path) -> None:
    """The operator was killed before it recorded that the pod had run."""
    restored(tmp_path)
    await seal(tmp_path)
    restored(tmp_path, "again")
    await seal(tmp_path)
    assert holds(tmp_path) == "new"
    assert not (tmp_path / "scratch").exists()


async def test_restore_never_replaces_other_data(tmp_path: Path) -> None:
    restored(tmp_path)
    await seal(tmp_path, "other")
    restored(tmp_path, "again")
    with pytest.raises(DataInTheWay, match="Nothing was restored"):
        await seal(tmp_path)
    assert holds(tmp_path) == "new"


async def test_sealing_without_restored_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SnapshotMissing, match="etcdutl restored nothing"):
        await seal(tmp_path)


def survived(home: Path) -> None:
    """Create the data directory that etcd leaves."""
    (home / "data" / "member" / "snap").mkdir(parents=True)
    (home / "data" / "member" / "snap" / "db").write_text("former")


async def recover(home: Path, token: str = "t1") -> None:
    """Do the work of all three containers of a recovery pod."""
    await work.salvage(home, token)
    made = home / "scratch" / "data" / "member" / "snap"
    made.mkdir(parents=True)
    (made / "db").write_text(f"{(home / 'scratch' / 'snapshot.db').read_text()}, recovered")
    await seal(home, token, replace=True)


async def test_recovery_keeps_the_former_data_next_to_the_new_data(tmp_path: Path) -> None:
    survived(tmp_path)
    await recover(tmp_path)
    assert holds(tmp_path) == "former, recovered"
    assert holds(tmp_path, "data.before-t1") == "former"


async def test_recovery_interrupted_between_its_renames_continues(tmp_path: Path) -> None:
    survived(tmp_path)
    (tmp_path / "data").rename(tmp_path / "data.before-t1")
    await recover(tmp_path)
    assert holds(tmp_path) == "former, recovered"
    assert holds(tmp_path, "data.before-t1") == "former"


async def test_completed_recovery_changes_nothing(tmp_path: Path) -> None:
    survived(tmp_path)
    await recover(tmp_path)
    await recover(tmp_path)
    assert holds(tmp_path) == "former, recovered"


async def test_second_recovery_keeps_the_result_of_the_first(tmp_path: Path) -> None:
    survived(tmp_path)
    await recover(tmp_path)
    await recover(tmp_path, "t2")
    assert holds(tmp_path) == "former, recovered, recovered"
    assert holds(tmp_path, "data.before-t2") == "former, recovered"


async def test_volume_without_space_for_a_second_copy_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survived(tmp_path)
    needed = len("former") + work.RESERVED_BYTES
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(300 << 20, 0, needed - 1))
    with pytest.raises(StoreFull, match=r"has 192 MiB free, .* Set spec.storage.size to 301Mi or more"):
        await work.salvage(tmp_path, "t1")
    assert holds(tmp_path) == "former"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(300 << 20, 0, needed))
    await work.salvage(tmp_path, "t1")


async def test_former_data_of_one_recovery_is_deleted(tmp_path: Path) -> None:
    survived(tmp_path)
    await recover(tmp_path)
    await recover(tmp_path, "t2")
    assert await work.clean(tmp_path, "t2") > 0
    assert not (tmp_path / "data.before-t2").exists()
    assert holds(tmp_path, "data.before-t1") == "former"
    assert holds(tmp_path) == "former, recovered, recovered"
    assert await work.clean(tmp_path, "t2") == 0, "it can be repeated"


async def test_volume_without_a_database_is_not_recovered(tmp_path: Path) -> None:
    with pytest.raises(SnapshotMissing, match="there is no data to recover"):
        await work.salvage(tmp_path, "t1")


def test_mark_contains_only_the_token(tmp_path: Path) -> None:
    (tmp_path / "member").mkdir()
    work._finish(tmp_path, "t1")
    assert json.loads((tmp_path / work.MARK).read_text()) == {"token": "t1"}
