"""What a member of etcd is asked, what it answers, and how it refuses; `gateway` speaks with real ones."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from shared.pki.certs import Pair


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one member is asked.

    Attributes:
        name: the pod's, for people.
        address: IP address of the pod.
        host: DNS name of the pod, which its certificate bears.
        port: for clients.
        metrics: port of its metrics, over plain HTTP.
    """

    name: str
    address: str
    host: str
    port: int = 2379
    metrics: int = 2381


@dataclass(frozen=True, slots=True)
class Access:
    """What lets the operator in.

    Attributes:
        authority: PEM certificates that vouch for servers; empty for plain HTTP.
        pair: the certificate that the operator shows; None where none is asked for.
        user: user name; empty where nobody authenticates.
    """

    authority: str = field(default="", repr=False)
    pair: Pair | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """A member as etcd's list has it.

    Attributes:
        id: 64 bits; `f"{id:016x}"` is how people write it.
        name: empty until it has started for the first time.
        peer_urls: where others reach it; at least one.
        learner: whether it has no vote.
    """

    id: int
    name: str
    peer_urls: tuple[str, ...]
    learner: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """The list of members, as a quorum agrees on it."""

    cluster_id: int
    members: tuple[Member, ...]


NOSPACE, CORRUPT = "NOSPACE", "CORRUPT"


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that some member raised; it holds until it is disarmed."""

    member_id: int
    kind: str


_ALARM = re.compile(r"memberID:(\d+)\s+alarm:(\w+)")
"""How a server writes an alarm among its errors."""


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """What a server says of itself, without asking others.

    Attributes:
        leader: id of the leader that it knows; 0 if none.
        version: the server's, such as 3.6.8.
        revision: of its newest change of a key.
        db_size: bytes of its file; db_in_use: of these in use, the rest is free for reuse after a defragmentation.
        errors: what it complains of, such as alarms.
    """

    cluster_id: int
    member_id: int
    leader: int
    version: str
    revision: int
    raft_term: int
    raft_index: int
    raft_applied: int
    db_size: int
    db_in_use: int
    learner: bool = False
    errors: tuple[str, ...] = ()

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Those raised by any member, as this one knows them."""
        found = (_ALARM.search(error) for error in self.errors)
        return tuple(Alarm(int(match[1]), match[2]) for match in found if match)


@dataclass(frozen=True, slots=True)
class HashKV:
    """Hash over all keys at a revision; members differ only if one is corrupt.

    Attributes:
        revision: up to which keys were hashed.
        compacted: revision below which history is gone; hashes of different ones cannot be compared.
    """

    hash: int
    revision: int
    compacted: int


@dataclass(frozen=True, slots=True)
class RaftProgress:
    """How far a member's data goes, as its metrics tell.

    Attributes:
        applied: index of Raft's log up to which it has applied changes.
        revision: of its newest change of a key.
    """

    member_id: int
    applied: int
    revision: int


class Server(Protocol):
    """One member's server. Every method raises EtcdError; those about the cluster go through its leader."""

    async def status(self) -> EndpointStatus:
        """Of this server alone; a learner answers it, too, and so does one without a quorum.

        Raises:
            NoLeader: users are asked for, and without a quorum, nobody is let in.
        """

    async def members(self) -> Members:
        """The list, linearizable: it needs a quorum."""

    async def remembered_members(self) -> Members:
        """The list as this very member has it: it may be old, and needs no quorum (`linearizable: false`)."""

    async def progress(self) -> RaftProgress:
        """How far its data goes, from the metrics on port 2381.

        A server that began again while there is no quorum serves no clients until there is one; these it serves.
        Source: `serve` waits for ReadyNotify in server/embed/serve.go.
        """

    async def is_compacted(self, revision: int) -> bool:
        """Whether history before a revision is gone: a serializable read at `revision - 1` says so."""

    async def alarms(self) -> tuple[Alarm, ...]:
        """Those raised, by any member. It needs a quorum and costs an entry of Raft's log; `Status.alarms` does not."""

    async def cluster_version(self) -> str:
        """What all members together run as, such as 3.5.0: raised by etcd once the last one is newer; empty before."""

    async def add_learner(self, peer_url: str) -> Member:
        """Add a member without a vote.

        Raises:
            Unhealthy: a voter is not connected, or was not all the last five seconds.
        """

    async def promote(self, member_id: int) -> None:
        """Give a learner its vote.

        Raises:
            NotInSync: its log is not at nine tenths of the leader's yet.
        """

    async def remove(self, member_id: int) -> None:
        """Remove a member.

        Raises:
            Unhealthy: too few of the others are connected; for a moment after a member has died, this is said, too.
        """

    async def move_leader(self, to: int) -> None:
        """Give the lead to another voter, which has it when this returns. Only the leader itself takes this."""

    async def disarm(self, alarm: Alarm) -> None:
        """End an alarm; one that is not raised is no error."""

    async def compact(self, revision: int) -> None:
        """Forget history below a revision, and free its room in the file; one that is gone already is no error.

        `Status.db_in_use` tells of it a moment later, with the next commit; in 3.4 not before a key is written.
        """

    async def defragment(self) -> None:
        """Give back what is free. The server answers nobody meanwhile."""

    async def hash_kv(self, revision: int = 0) -> HashKV:
        """Hash up to a revision; 0 for the newest.

        Raises:
            Unsupported: before 3.5.10.
        """

    def snapshot(self) -> AsyncGenerator[bytes, None]:
        """The whole database in pieces; the last 32 bytes are the SHA-256 of what comes before.

        Who stops early closes it (`contextlib.aclosing`).

        Raises:
            Unreachable: it was cut off.
        """

    async def auth_enabled(self) -> bool:
        """Whether users are asked for."""

    async def authenticate(self) -> None:
        """Prove who we are, now; no error where nobody is asked. Without it, a password is used where it is asked for.

        Raises:
            Denied: user or password is wrong.
        """

    async def enable_auth(self, user: str, password: str) -> None:
        """Make the user, with this password and role root, and ask everybody for a user from now on.

        One of the same name is replaced: as long as nobody is asked, anybody may have made it, and with a password that
        we do not know, nobody would ever let us in again.
        """

    async def disable_auth(self) -> None:
        """Ask nobody for a user from now on; users stay."""

    async def change_password(self, user: str, password: str) -> None: ...

    async def aclose(self) -> None:
        """End its connections."""


Connect = Callable[[Endpoint, Access], Server]
"""`gateway.connect`, or what stands in for it in a test. Nothing is sent before a method is called."""
