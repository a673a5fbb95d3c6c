"""Integrity checks of snapshots and their records (hard test 14)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.backup.snapshot import Checksum, Record, beyond_retention, due_of, file_name, scheduled_name
from operators.etcd.backup.store import NotASnapshot, SnapshotCorrupt


def sealed(content: bytes) -> bytes:
    """Append the checksum that etcd adds to a snapshot."""
    return content + hashlib.sha256(content).digest()


SNAPSHOT = sealed(os.urandom(8 * 512))


def verify(snapshot: bytes, cuts: tuple[int, ...] = ()) -> str:
    """Verify a snapshot that arrives in pieces, cut at these offsets, and return its checksum."""
    checksum = Checksum()
    for start, end in zip((0, *cuts), (*cuts, len(snapshot)), strict=True):
        checksum.add(snapshot[start:end])
    return checksum.verify()


@given(st.lists(st.integers(0, len(SNAPSHOT)), max_size=30).map(sorted).map(tuple))
def test_complete_snapshot_is_accepted_in_pieces_of_any_size(cuts: tuple[int, ...]) -> None:
    assert verify(SNAPSHOT, cuts) == hashlib.sha256(SNAPSHOT).hexdigest()


@given(st.integers(0, len(SNAPSHOT) - 1), st.integers(1, 255), st.integers(0, len(SNAPSHOT)))
def test_changed_byte_at_any_offset_is_detected(at: int, flip: int, cut: int) -> None:
    flipped = bytearray(SNAPSHOT)
    flipped[at] ^= flip
    with pytest.raises(SnapshotCorrupt, match="its checksum is"):
        verify(bytes(flipped), (cut,))


@given(st.integers(0, len(SNAPSHOT) - 1))
def test_snapshot_truncated_at_any_offset_is_refused(length: int) -> None:
    with pytest.raises((SnapshotCorrupt, NotASnapshot)):
        verify(SNAPSHOT[:length])


@given(st.binary(min_size=1, max_size=600))
def test_snapshot_with_trailing_bytes_is_refused(more: bytes) -> None:
    with pytest.raises((SnapshotCorrupt, NotASnapshot)):
        verify(SNAPSHOT + more)


def test_database_file_of_a_data_directory_is_refused() -> None:
    with pytest.raises(
        NotASnapshot, match=r"4096 bytes are not a snapshot with a checksum .* copied from a data directory"
    ):
        verify(SNAPSHOT[:4096])


RECORD = Record(
    file="demo-1/a.db",
    size=4128,
    sha256="0" * 64,
    revision=7,
    version="3.6.0",
    cluster_id="00000000000000c1",
    member="demo-1",
    taken="2026-01-01T00:00:00Z",
    cluster="default/demo",
    cluster_uid="u-1",
    backup="a",
    scheduled=True,
)


def test_written_record_is_parsed_without_loss() -> None:
    for current in (True, False):
        record = dataclasses.replace(RECORD, current=current)
        assert Record.from_json(record.to_json()) == record


def test_record_of_an_earlier_version_is_parsed() -> None:
    """An earlier version does not record whether the snapshot was current: it counts for the retention."""
    text = json.dumps({key: value for key, value in json.loads(RECORD.to_json()).items() if key != "current"})
    assert Record.from_json(text) == RECORD
    assert RECORD.current, "it made a linearizable read before"


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"file": 1}', "[" * 9_999]
    + [RECORD.to_json().replace("true", value) for value in ('"yes"', DEEP)],
)
def test_invalid_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Record.from_json(text)


def test_file_names_are_unique_across_clusters_and_backups() -> None:
    """A later cluster or EtcdBackup of the same name gets a file of its own."""
    name = file_name("demo", "11111111-a", "nightly", "22222222-b")
    assert name == "demo-11111111/nightly-22222222.db"
    assert name != file_name("demo", "33333333-a", "nightly", "22222222-b")
    assert name != file_name("demo", "11111111-a", "nightly", "44444444-b")


def test_name_of_a_scheduled_backup_encodes_its_due_time() -> None:
    due = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert scheduled_name("demo", due) == "demo-2601020304"
    assert due_of("demo", "demo-2601020304") == due
    for other in ("demo-260102030", "demo-2613020304", "demo-1-2601020304", "demo-nightly", "other-2601020304"):
        assert due_of("demo", other) is None


# Retention.


def nightly(day: int, revision: int | None = None, cluster_id: str = "c1") -> Record:
    name, revision = f"demo-2601{day:02}0300", day if revision is None else revision
    given = f"2026-01-{day:02}T03:00:00Z", "default/demo", "u-1", name
    return Record(f"{name}.db", 4128, "0" * 64, revision, "3.6.0", cluster_id, "demo-1", *given, True)


LAGGED, RECOVERED = [(100, "c1"), (101, "c1"), (102, "c1")], [(1100, "c2"), (1101, "c2"), (1101, "c2")]


@pytest.mark.parametrize(
    ("taken", "removed"),
    [
        ([*LAGGED, (50, "c1"), (50, "c1"), (50, "c1")], [101, 100]),
        ([*LAGGED, (50, "c1"), (50, "c1"), (103, "c1")], [102, 101, 100]),
        ([*LAGGED, *RECOVERED], [101, 100]),
        ([(7, "c1"), (7, "c1"), *RECOVERED], [7]),
    ],
    ids=["member that lags", "quorum that returned", "recovery", "recovery of an idle cluster"],
)
def test_snapshot_with_newer_data_than_all_later_ones_stays(taken: list[tuple[int, str]], removed: list[int]) -> None:
    stored = [(nightly(day, *each), True) for day, each in enumerate(taken, start=1)]
    assert [record.revision for record in beyond_retention(stored, 3)] == removed


@pytest.mark.parametrize(
    ("taken", "removed"),
    [("AB--", []), ("AB---", [3]), ("AB--C", [3, 1]), ("AB--CD", [4, 3, 2, 1]), ("A-B-C-", [4, 2, 1])],
)
def test_snapshot_that_is_not_current_makes_no_current_one_surplus(taken: str, removed: list[int]) -> None:
    """Current ones are letters: the EtcdBackups of the same schedule are deleted by the same rule."""
    stored = [(dataclasses.replace(nightly(day), current=each != "-"), True) for day, each in enumerate(taken, start=1)]
    assert [record.revision for record in beyond_retention(stored, 2)] == removed


@pytest.mark.parametrize(
    ("taken", "removed"),
    [([(5, "c1"), (5, "c1"), (6, "c1"), (6, "c1")], [6, 5]), ([(5, "c1"), (5, "c2")], [])],
    ids=["outages", "another cluster"],
)
def test_snapshot_that_is_not_current_stays_once_for_the_same_data(
    taken: list[tuple[int, str]], removed: list[int]
) -> None:
    records = [dataclasses.replace(nightly(day, *each), current=False) for day, each in enumerate(taken, start=1)]
    assert [record.revision for record in beyond_retention([(each, True) for each in records], 4)] == removed


def test_snapshot_that_is_not_current_is_kept_although_one_of_another_member_has_the_same_revision() -> None:
    """The data of one of them may differ: m0's was right, and m1 had ended because of an inconsistency."""
    taken = [(1, "demo-0"), (2, "demo-1"), (3, "demo-1")]
    records = [dataclasses.replace(nightly(day, 9), member=member, current=False) for day, member in taken]
    assert beyond_retention([(each, True) for each in records[:2]], 3) == []
    assert beyond_retention([(each, True) for each in records], 3) == [records[1]]


@pytest.mark.parametrize("keep", [1, 2])
def test_last_snapshot_of_each_member_stays_until_one_is_current(keep: int) -> None:
    """The mark of a member whose data differs may be lost, as after a restart of its host."""
    taken = [(1, "demo-2"), (2, "demo-0"), (3, "demo-2"), (4, "demo-1"), (5, "demo-0")]
    records = [dataclasses.replace(nightly(day, 9), member=member, current=False) for day, member in taken]
    stored = [(each, True) for each in records]
    assert beyond_retention(stored, keep) == [records[1], records[0]]
    other_cluster = dataclasses.replace(nightly(6, 1, "c2"), current=True)
    assert beyond_retention([*stored, (other_cluster, True)], keep) == [records[1], records[0]]
    current = dataclasses.replace(nightly(6, 9), current=True)
    removed = beyond_retention([*stored, (current, True)], keep)
    assert [each for each in reversed(records) if each not in removed] == [records[4]][: keep - 1]
    incomplete = [(records[3], False), *(each for each in stored if each[0] is not records[3])]
    assert (records[3] in beyond_retention(incomplete, keep)) == (keep == 1)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 3)), max_size=12), st.integers(1, 4))
def test_snapshots_that_are_not_current_change_nothing_for_current_ones(
    taken: list[tuple[bool, bool, int]], keep: int
) -> None:
    stored = [
        (dataclasses.replace(nightly(day, revision), current=current), is_complete)
        for day, (current, is_complete, revision) in enumerate(taken, start=1)
    ]
    removed = [record for record in beyond_retention(stored, keep) if record.current]
    assert removed == beyond_retention([each for each in stored if each[0].current], keep)


@given(st.dictionaries(st.integers(1, 28), st.booleans()), st.integers(0, 5))
def test_newest_complete_snapshots_are_never_beyond_the_retention(complete: dict[int, bool], keep: int) -> None:
    removed = {record.revision for record in beyond_retention([(nightly(d), c) for d, c in complete.items()], keep)}
    kept = sorted(day for day, is_complete in complete.items() if is_complete and day not in removed)
    whole = sorted(day for day, is_complete in complete.items() if is_complete)
    assert kept == whole[-max(1, keep) :]
    assert not removed or all(day < kept[0] for day in removed), "nothing newer than a kept one is removed"
