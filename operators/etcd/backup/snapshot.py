"""A snapshot: etcd's whole database as it streams it, a checksum at its end, and the record that lies beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime

from operators.etcd.backup.store import NotASnapshot, SnapshotCorrupt

_SECTOR_BYTES = 512
"""bbolt's file is whole pages; what remains of a division by this is etcd's checksum (etcdutl tells it so, too)."""

RECORD = ".json"
"""What a record's name has more than its snapshot's."""


class Checksum:
    """Checks a snapshot as it passes: its last 32 bytes are the SHA-256 of all before.

    Source: server/etcdserver/api/v3rpc/maintenance.go (Snapshot), etcdutl/snapshot/v3_snapshot.go (copyAndVerifyDB).
    """

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self._size = self._sum.digest_size
        self._tail = b""
        self.passed = 0

    def add(self, block: bytes) -> None:
        """The next bytes; the last 32 so far wait, for they may be the checksum."""
        self.passed += len(block)
        if len(block) < self._size:
            block = self._tail + block
        else:
            self._sum.update(self._tail)
        at = max(0, len(block) - self._size)
        self._sum.update(memoryview(block)[:at])
        self._tail = bytes(block[at:])

    def verify(self) -> str:
        """Make sure that all came, as etcd gave it out.

        Returns:
            SHA-256 of the whole file, in hexadecimal, as sha256sum tells it.

        Raises:
            NotASnapshot: it has no checksum.
            SnapshotCorrupt: the checksum is another.
        """
        if self.passed % _SECTOR_BYTES != self._size:
            raise NotASnapshot(
                f"{self.passed} bytes are no snapshot with a checksum (whole sectors and 32 bytes): it was cut off, or "
                "copied from a data directory."
            )
        if self._sum.digest() != self._tail:
            raise SnapshotCorrupt(
                f"its checksum is {self._tail.hex()}, and that of its {self.passed - self._size} bytes is "
                f"{self._sum.hexdigest()}."
            )
        whole = self._sum.copy()
        whole.update(self._tail)
        return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a snapshot that is kept; it lies beside it as JSON.

    Attributes:
        file: its name in the store.
        size: bytes, checksum included.
        sha256: of the whole file, in hexadecimal.
        revision: of the newest change in it.
        version: of etcd that its data is of, such as 3.6.0; empty where it does not tell, as mostly before 3.5.
        cluster_id: in etcd, 16 hexadecimal digits.
        member: name of the member that gave it out.
        taken: when, in RFC 3339.
        cluster: namespace/name of the EtcdCluster.
        cluster_uid: its UID: retention touches no other cluster's.
        backup: name of the EtcdBackup.
        scheduled: whether the cluster's schedule asked for it: retention touches no others.
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

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """A record as `to_json` writes it.

        Raises:
            ValueError: it is none.
        """
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is no object")  # noqa: TRY004  # it is the text that is wrong
        try:
            record = cls(**{field.name: found[field.name] for field in dataclasses.fields(cls)})
        except KeyError as missing:
            raise ValueError(f"it has no {missing}") from None
        for field in dataclasses.fields(cls):
            value = getattr(record, field.name)
            if type(value).__name__ != field.type:
                raise ValueError(f"{field.name} is {value!r}")
        return record


# Names. A file is named by its cluster and its EtcdBackup, each with the beginning of its UID: what was kept is not
# overwritten by a later cluster, or a later EtcdBackup, of the same name; by another try of the same one it is.

_STAMP = "%y%m%d%H%M"
"""Ten digits: a cluster's name has 52 characters at most, and an EtcdBackup's 63."""

_UID_LENGTH = 8


def directory(cluster: str, uid: str) -> str:
    """Where a cluster's snapshots are, in any store."""
    return f"{cluster}-{uid[:_UID_LENGTH]}"


def file_name(cluster: str, cluster_uid: str, backup: str, backup_uid: str) -> str:
    return f"{directory(cluster, cluster_uid)}/{backup}-{backup_uid[:_UID_LENGTH]}.db"


def scheduled_name(cluster: str, due: datetime) -> str:
    """Name of the EtcdBackup of a moment of the schedule: the same moment twice is the same one."""
    return f"{cluster}-{due.strftime(_STAMP)}"


def due_of(cluster: str, backup: str) -> datetime | None:
    """The moment that an EtcdBackup of the schedule is named by; None if it is not named so."""
    found = re.fullmatch(rf"{re.escape(cluster)}-(\d{{10}})", backup)
    try:
        return datetime.strptime(f"{found[1]}+0000", f"{_STAMP}%z") if found else None
    except ValueError:
        return None
