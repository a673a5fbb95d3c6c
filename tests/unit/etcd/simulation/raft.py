"""Raft as far as an operator can tell: who is of a cluster, who leads, and which disks hold what was acknowledged.

A cluster has one history, a log of entries; a disk holds the log up to an index. Who is a member is part of the log, so
a disk that lags behind knows older members, as in Raft. A write is acknowledged once a quorum holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from operators.etcd.api.versions import Version

SMALL = 20480
"""Bytes of a database with nothing in it."""


def founding(urls: Iterable[str], token: str) -> tuple[int, list[int]]:
    """Ids of a cluster and its members that are made of a list, as etcd makes them: of nothing else.

    Source: computeMemberID and genID in server/etcdserver/api/membership.
    """
    members = sorted(_sha1((url + token).encode()) for url in urls)
    return _sha1(b"".join(member.to_bytes(8) for member in members)), members


def _sha1(text: bytes) -> int:
    return int.from_bytes(hashlib.sha1(text, usedforsecurity=False).digest()[:8])


def identity(*parts: object) -> int:
    """An id of 64 bits, the same for the same parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8]) or 1


class Seat(NamedTuple):
    """A member as the log has it."""

    id: int
    url: str
    learner: bool = False


Seats = tuple[Seat, ...]


@dataclass
class Disk:
    """A data directory.

    Attributes:
        place: of which claim or pod, for people.
        cluster, member: whose it is; 0 while it is empty.
        index: up to where it holds the cluster's log.
        version: the last that ran on it.
        size: bytes of its database file.
        corrupt: whether its keys differ from those of others.
        restored: token of the restore that its data is from.
    """

    place: str
    cluster: int = 0
    member: int = 0
    index: int = 0
    version: Version | None = None
    size: int = SMALL
    corrupt: bool = False
    restored: str = ""


@dataclass
class Cluster:
    """A history.

    Attributes:
        token: --initial-cluster-token of who began it.
        seats: the members from which index on, in order.
        index: of the newest entry.
        acknowledged: the newest entry that somebody was told to be safe.
        names: of members that have started, by id.
        homes: the disk that each member has written on, by id.
        version: what all members run as, once that is settled.
        bumped: whether it began with a snapshot.
        former: whether another goes on with its data.
    """

    id: int
    token: str
    seats: list[tuple[int, Seats]]
    index: int = 1
    acknowledged: int = 1
    revision: int = 1
    term: int = 1
    leader: int = 0
    version: tuple[int, int] | None = None
    names: dict[int, str] = field(default_factory=dict)
    homes: dict[int, str] = field(default_factory=dict)
    alarms: set[tuple[int, str]] = field(default_factory=set)
    in_use: int = SMALL
    compacted: int = 0
    password: str = ""
    auth: bool = False
    bumped: bool = False
    former: bool = False

    def seats_at(self, index: int) -> Seats:
        """The members as a log up to an index has them."""
        return next((seats for since, seats in reversed(self.seats) if since <= index), ())

    @property
    def now(self) -> Seats:
        return self.seats_at(self.index)

    def append(self, seats: Seats | None = None) -> None:
        """One more entry, which a quorum holds."""
        self.index += 1
        self.acknowledged = self.index
        if seats is not None:
            self.seats.append((self.index, seats))


def quorum(seats: Seats) -> int:
    """How many voters must agree."""
    return sum(not seat.learner for seat in seats) // 2 + 1


def seat_of(seats: Seats, member: int) -> Seat | None:
    return next((seat for seat in seats if seat.id == member), None)


def votes(cluster: Cluster, candidate: Disk, among: Iterable[Disk]) -> bool:
    """Whether a disk's member would be elected by the members of others: they hold no more than it, and are a quorum.

    It counts by the members that its own log knows.
    """
    seats = cluster.seats_at(candidate.index)
    own = seat_of(seats, candidate.member)
    if own is None or own.learner:
        return False
    voters = {seat.id for seat in seats if not seat.learner}
    willing = {disk.member for disk in among if disk.cluster == cluster.id and disk.index <= candidate.index}
    return len(voters & (willing | {candidate.member})) >= quorum(seats)
