"""A snapshot: the database as etcd streams it, with a checksum at its end, and the record stored next to it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from operators.etcd.backup.store import NotASnapshot, SnapshotCorrupt
from shared.kubernetes.encoding import decode

_SECTOR_BYTES = 512
"""A bbolt file has whole pages; the remainder of a division by this size is etcd's checksum (as in etcdutl)."""

RECORD = ".json"
"""Suffix of a record's name, after that of its snapshot."""


class Checksum:
    """Verifies a snapshot while it is streamed: the last 32 bytes are the SHA-256 of everything before.

    Source: server/etcdserver/api/v3rpc/maintenance.go (Snapshot), etcdutl/snapshot/v3_snapshot.go (copyAndVerifyDB).
    """

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self._size = self._sum.digest_size
        self._tail = b""
        self.passed = 0

    def add(self, block: bytes) -> None:
        """Add the next bytes; the last 32 so far are kept back, because they may be the checksum."""
        self.passed += len(block)
        if len(block) < self._size:
            block = self._tail + block
        else:
            self._sum.update(self._tail)
        at = max(0, len(block) - self._size)
        self._sum.update(memoryview(block)[:at])
        self._tail = bytes(block[at:])

    def verify(self) -> str:
        """Verify that the snapshot is complete and unchanged.

        Returns:
            SHA-256 of the whole file in hexadecimal, as printed by sha256sum.

        Raises:
            NotASnapshot: there is no checksum.
            SnapshotCorrupt: the checksum differs.
        """
        if self.passed % _SECTOR_BYTES != self._size:
            raise NotASnapshot(
                f"{self.passed} bytes are not a snapshot with a checksum (whole sectors and 32 bytes): the file "
                "is truncated, or was copied from a data directory."
            )
        if self._sum.digest() != self._tail:
            raise SnapshotCorrupt(
                f"its checksum is {self._tail.hex()}, but that of its {self.passed - self._size} bytes is "
                f"{self._sum.hexdigest()}."
            )
        whole = self._sum.copy()
        whole.update(self._tail)
        return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a stored snapshot, kept next to it as JSON.

    Attributes:
        file: name in the store.
        size: bytes, checksum included.
        sha256: SHA-256 of the whole file in hexadecimal.
        revision: revision of the newest change.
        version: version of etcd of the data, such as 3.6.0; empty if not recorded, as mostly before 3.5.
        cluster_id: id in etcd, 16 hexadecimal digits.
        member: name of the member that provided it.
        taken: time in RFC 3339.
        cluster: namespace/name of the EtcdCluster.
        cluster_uid: UID of the EtcdCluster: retention applies to this cluster only.
        backup: name of the EtcdBackup.
        scheduled: whether it belongs to the cluster's schedule: retention applies to scheduled ones only.
        current: whether the member was proven to have all writes acknowledged before. A record of an earlier version
            does not have it: the retention keeps its snapshot as a current one.
    """

    file: str
    size: int
    sha256: str
    revision: int
    version: str
    cluster_id: str
    member: str
    taken: str
    cluster: str
    cluster_uid: str
    backup: str
    scheduled: bool
    current: bool = True

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """Parse a record that `to_json` wrote.

        Raises:
            ValueError: the text is not a record.
        """
        found = decode(text)
        if not isinstance(found, dict):
            raise ValueError("the text is not a JSON object")  # noqa: TRY004
        record = cls(**{field.name: found.get(field.name, field.default) for field in dataclasses.fields(cls)})
        for field in dataclasses.fields(cls):
            value = getattr(record, field.name)
            if type(value).__name__ != field.type:
                raise ValueError(f"{field.name} is not of type {field.type}")
        return record


def beyond_retention(stored: Iterable[tuple[Record, bool]], keep: int) -> list[Record]:
    """Return the snapshots that are older than the newest `keep` complete ones, newest first.

    A snapshot that is not complete counts for nothing, so that the last complete ones are never returned. One that is
    not current counts only against others that are not, and is returned if a later one of the same member has the same
    revision, as during an outage: the data of another member may differ. So the last one of each member of a cluster
    stays until a current one of that cluster is taken. One with newer data than all later ones stays, because those may
    be of a member that lags, or of the other cluster after a recovery.

    Args:
        stored: records of one schedule, each with whether its file is complete.
        keep: number of complete snapshots to keep, at least 1.
    """
    kept: list[Record] = []
    removed = []
    for record, is_complete in sorted(stored, key=lambda each: _age(each[0]), reverse=True):
        later = [each for each in kept if each.current or not record.current]
        comparable = [each for each in later if each.cluster_id == record.cluster_id]
        of_member = [each.revision for each in comparable if each.member == record.member]
        is_last = not (record.current or of_member or any(each.current for each in comparable))
        is_newest = record.revision > max((each.revision for each in comparable), default=-1)
        is_repeated = not record.current and record.revision in of_member
        if is_repeated or (len(later) >= max(1, keep) and not (is_complete and (is_newest or is_last))):
            removed.append(record)
        elif is_complete:
            kept.append(record)
    return removed


def _age(record: Record) -> tuple[str, str]:
    """Return the due time, which ends the name of the EtcdBackup, and the time: both as text that sorts by time."""
    return record.backup, record.taken


# Names. The name of a file has its cluster and its EtcdBackup, each with the beginning of its UID. So a later cluster
# or EtcdBackup of the same name does not overwrite it, but another attempt of the same EtcdBackup does.

_STAMP = "%y%m%d%H%M"
"""Ten digits: a cluster's name has 52 characters at most, and an EtcdBackup's 63."""

_UID_LENGTH = 8


def directory(cluster: str, uid: str) -> str:
    """Return the directory of a cluster's snapshots, in any store."""
    return f"{cluster}-{uid[:_UID_LENGTH]}"


def file_name(cluster: str, cluster_uid: str, backup: str, backup_uid: str) -> str:
    return f"{directory(cluster, cluster_uid)}/{backup}-{backup_uid[:_UID_LENGTH]}.db"


def scheduled_name(cluster: str, due: datetime) -> str:
    """Return the name of the EtcdBackup of a due time: the same time twice has the same name."""
    return f"{cluster}-{due.strftime(_STAMP)}"


def due_of(cluster: str, backup: str) -> datetime | None:
    """Return the due time in the name of a scheduled EtcdBackup; None if it has none."""
    found = re.fullmatch(rf"{re.escape(cluster)}-(\d{{10}})", backup)
    try:
        return datetime.strptime(f"{found[1]}+0000", f"{_STAMP}%z") if found else None
    except ValueError:
        return None
