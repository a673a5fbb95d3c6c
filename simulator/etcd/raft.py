"""Raft as far as an operator observes it: members, the leader, and the disks with acknowledged entries.

A cluster has one log of entries, and a disk has the log up to an index. The membership is part of the log, so a disk
that lags behind has an older membership, as in Raft. A write is acknowledged once a quorum has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from operators.etcd.api.versions import Version

SMALL = 20480
"""Size of an empty database, in bytes."""


def founding(urls: Iterable[str], token: str) -> tuple[int, list[int]]:
    """Compute the ids of a new cluster and its members as etcd does: from the peer URLs and the token alone.

    Source: computeMemberID and genID in server/etcdserver/api/membership.
    """
    members = sorted(_sha1((url + token).encode()) for url in urls)
    return _sha1(b"".join(member.to_bytes(8) for member in members)), members


def _sha1(text: bytes) -> int:
    return int.from_bytes(hashlib.sha1(text, usedforsecurity=False).digest()[:8])


def identity(*parts: object) -> int:
    """Return a 64-bit id that is the same for the same parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8]) or 1


class MemberRecord(NamedTuple):
    """A member in the log."""

    id: int
    url: str
    learner: bool = False


MemberRecords = tuple[MemberRecord, ...]


@dataclass
class Disk:
    """A data directory.

    Attributes:
        name: name of the claim or pod.
        cluster: id of the cluster whose data the directory has; 0 if it is empty.
        member: id of the member whose data it has; 0 if it is empty.
        index: index of the last log entry on the disk.
        snapshot: index of the last Raft snapshot on the disk, from which on a member reads its log at its start.
        version: version of etcd that ran on it last.
        storage: series whose format the data has; it follows the version of the cluster. None if it is empty.
        size: size of the database file, in bytes.
        corrupt: whether the keys differ from those of the other members.
        restored: token of the restore that wrote the data.
        former: bytes of former data that a recovery set aside, by its token.
    """

    name: str
    cluster: int = 0
    member: int = 0
    index: int = 0
    snapshot: int = 0
    version: Version | None = None
    storage: tuple[int, int] | None = None
    size: int = SMALL
    corrupt: bool = False
    restored: str = ""
    former: dict[str, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Bytes that the database and former data use."""
        return self.size + sum(self.former.values())


@dataclass(frozen=True)
class User:
    """A user of etcd, with the names of its roles."""

    password: str
    roles: tuple[str, ...] = ()


ROOT = "root"
"""Name of the user and of the role that may do everything."""


@dataclass
class Cluster:
    """A cluster and its log.

    Attributes:
        token: --initial-cluster-token of the member that bootstrapped the cluster.
        records: members by the index from which on they are valid, in order.
        index: index of the newest entry.
        acknowledged: index of the newest entry that was acknowledged to a client.
        names: names of the members that have started, by id.
        disk_by_member: UID of the disk that each member writes to, by id.
        version: cluster version, once it is determined.
        downgrade: series to which the cluster is being downgraded; None if to none.
        decides: next `version` and `downgrade`, and since when they are due; None if both stay.
        old_entry: index of the newest entry in the format of 3.5 and earlier (`pb.Request`); 0 without one.
        bumped: whether the cluster was restored from a snapshot.
        former: whether a recovery replaced this cluster.
        auth: whether requests need a user.
        users: users by name; they stay while authentication is disabled.
        roles: roles other than root, each of which may read and write all keys.
        recovery: token of that recovery; empty if there was none.
        foreign: whether it belongs to another tenant: one of its members has an address that a pod had before.
    """

    id: int
    token: str
    records: list[tuple[int, MemberRecords]]
    index: int = 1
    acknowledged: int = 1
    revision: int = 1
    term: int = 1
    leader: int = 0
    version: tuple[int, int] | None = None
    downgrade: tuple[int, int] | None = None
    decides: tuple[tuple[tuple[int, int], tuple[int, int] | None], datetime] | None = None
    old_entry: int = 0
    names: dict[int, str] = field(default_factory=dict)
    disk_by_member: dict[int, str] = field(default_factory=dict)
    alarms: set[tuple[int, str]] = field(default_factory=set)
    in_use: int = SMALL
    compacted: int = 0
    auth: bool = False
    users: dict[str, User] = field(default_factory=dict)
    roles: set[str] = field(default_factory=set)
    bumped: bool = False
    former: bool = False
    recovery: str = ""
    foreign: bool = False

    def records_at(self, index: int) -> MemberRecords:
        """Return the members according to the log up to `index`."""
        return next((records for since, records in reversed(self.records) if since <= index), ())

    @property
    def now(self) -> MemberRecords:
        return self.records_at(self.index)

    def append(self, records: MemberRecords | None = None, *, entries: int = 1) -> None:
        """Append entries that a quorum has; the last one may change the members."""
        self.index += entries
        self.acknowledged = self.index
        if records is not None:
            self.records.append((self.index, records))


def quorum(records: MemberRecords) -> int:
    """Return the number of voters that must agree."""
    return sum(not record.learner for record in records) // 2 + 1


def record_of(records: MemberRecords, member: int) -> MemberRecord | None:
    return next((record for record in records if record.id == member), None)


def can_win_election(cluster: Cluster, candidate: Disk, among: Iterable[Disk]) -> bool:
    """Whether the members on other disks can elect the candidate: a quorum of them has no newer entries.

    The quorum is that of the membership in the candidate's own log.
    """
    records = cluster.records_at(candidate.index)
    own = record_of(records, candidate.member)
    if own is None or own.learner:
        return False
    voters = {record.id for record in records if not record.learner}
    granting = {disk.member for disk in among if disk.cluster == cluster.id and disk.index <= candidate.index}
    return len(voters & (granting | {candidate.member})) >= quorum(records)


@dataclass(frozen=True)
class Users:
    """Users, roles and whether authentication is enabled: part of the data, and of a snapshot of it."""

    auth: bool = False
    users: Mapping[str, User] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Cluster) -> Users:
        return cls(cluster.auth, dict(cluster.users), frozenset(cluster.roles))

    def copy_to(self, cluster: Cluster) -> None:
        cluster.auth, cluster.users, cluster.roles = self.auth, dict(self.users), set(self.roles)
