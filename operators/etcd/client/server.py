"""Interface of a member's server: requests, responses and errors; `gateway` implements it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from shared.pki.certs import Pair


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint of one member.

    Attributes:
        name: name of the pod.
        address: IP address of the pod.
        host: DNS name of the pod, which is in its certificate.
        port: port for clients.
        metrics: port of the metrics, over plain HTTP.
    """

    name: str
    address: str
    host: str
    port: int = 2379
    metrics: int = 2381


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials of the operator.

    Attributes:
        authority: PEM certificates of the trusted authorities; None for plain HTTP. Empty if TLS is required and they
            are unknown: nothing is sent then.
        pair: client certificate of the operator; None if none is required.
        user: user name; empty without authentication.
    """

    authority: str | None = field(default=None, repr=False)
    pair: Pair | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """A member in etcd's list.

    Attributes:
        id: 64 bits, written as `f"{id:016x}"`.
        name: empty until the first start.
        peer_urls: URLs for the other members; at least one.
        learner: whether it does not vote.
    """

    id: int
    name: str
    peer_urls: tuple[str, ...]
    learner: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """List of members that a quorum agrees on."""

    cluster_id: int
    members: tuple[Member, ...]


NOSPACE, CORRUPT = "NOSPACE", "CORRUPT"


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that a member raised; active until it is disarmed."""

    member_id: int
    kind: str


_ALARM = re.compile(r"memberID:(\d+)\s+alarm:(\w+)")
"""Form of an alarm in the errors of a server."""


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """Status of a server as it knows it, without other members.

    Attributes:
        leader: id of the leader; 0 if unknown.
        version: version of the server, such as 3.6.8.
        revision: revision of the newest change of a key.
        db_size: size of the file in bytes.
        db_in_use: bytes in use; a defragmentation frees the rest.
        errors: reported problems, such as alarms.
        storage_version: version whose format the data has, such as 3.6.0; empty before 3.6.
        downgrade_target: version to which the cluster is being downgraded; empty if to none, and before 3.6.
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
    storage_version: str = ""
    downgrade_target: str = ""

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms of all members, as this server knows them."""
        found = (_ALARM.search(error) for error in self.errors)
        return tuple(Alarm(int(match[1]), match[2]) for match in found if match)


@dataclass(frozen=True, slots=True)
class HashKV:
    """Hash of all keys at a revision; it differs between members only if one is corrupt.

    Attributes:
        revision: revision up to which keys were hashed.
        compacted: revision below which history is deleted; hashes with different values are not comparable.
    """

    hash: int
    revision: int
    compacted: int


@dataclass(frozen=True, slots=True)
class RaftProgress:
    """Progress of a member's data, from its metrics.

    Attributes:
        applied: index of Raft's log up to which changes are applied.
        revision: revision of the newest change of a key.
        receiving: whether the member receives a snapshot of the leader's database, or applies it.
    """

    member_id: int
    applied: int
    revision: int
    receiving: bool = False


class Server(Protocol):
    """Server of one member. Every method raises EtcdError; those about the cluster go through the leader."""

    async def status(self) -> EndpointStatus:
        """Return the status of this server alone; learners and members without a quorum answer as well.

        Raises:
            NoLeader: authentication is enabled, and there is no quorum to log in.
        """

    async def members(self) -> Members:
        """Return the linearizable list of members, which needs a quorum."""

    async def remembered_members(self) -> Members:
        """Return the local list of members: possibly outdated, without a quorum (`linearizable: false`)."""

    async def progress(self) -> RaftProgress:
        """Return the progress of the member's data, from the metrics on port 2381.

        A server that restarted without a quorum serves no clients until there is one, but it serves metrics.

        Source: `serve` waits for ReadyNotify in server/embed/serve.go.
        """

    async def is_compacted(self, revision: int) -> bool:
        """Whether history before a revision is deleted, by a serializable read at `revision - 1`."""

    async def has_alarm(self) -> bool:
        """Whether any member raised an alarm, from /health on the metrics port: without a quorum, TLS or a user."""

    async def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarms of all members.

        Unlike `EndpointStatus.alarms`, this needs a quorum and an entry of Raft's log.
        """

    async def cluster_version(self) -> str:
        """Return the version that all members run together as, such as 3.5.0; empty until it is decided.

        etcd raises it once the last member runs a newer version.
        """

    async def add_learner(self, peer_url: str) -> Member:
        """Add a member as a learner.

        Raises:
            Unhealthy: a voter is not connected, or was not for the whole of the last five seconds.
        """

    async def promote(self, member_id: int) -> None:
        """Promote a learner to a voter.

        Raises:
            NotInSync: the learner's log is below nine tenths of the leader's.
        """

    async def remove(self, member_id: int) -> None:
        """Remove a member.

        Raises:
            Unhealthy: too few other members are connected; also for a moment after a member has died.
        """

    async def move_leader(self, to: int) -> None:
        """Move the leadership to another voter, which has it on return. Only the leader accepts this."""

    async def enable_downgrade(self, series: str) -> None:
        """Begin a downgrade of the cluster to a series, such as 3.5; one in progress is not an error.

        The version of the cluster becomes that of the series within seconds, then each member converts its data. etcd
        ends the downgrade by itself once all members run the series.

        Raises:
            Refused: the series is not the one before that of the cluster.
        """

    async def cancel_downgrade(self) -> None:
        """End a downgrade before all members run the earlier series; none in progress is not an error."""

    async def disarm(self, alarm: Alarm) -> None:
        """Disarm an alarm; one that is not raised is not an error."""

    async def compact(self, revision: int) -> None:
        """Delete history below a revision, and free its space in the file; already compacted is not an error.

        `EndpointStatus.db_in_use` reflects it with the next commit; in 3.4 not before a key is written.
        """

    async def defragment(self) -> None:
        """Return free space to the file system. The server does not answer during that time."""

    async def hash_kv(self, revision: int = 0) -> HashKV:
        """Return the hash up to a revision; 0 for the newest.

        Raises:
            Unsupported: before 3.5.10.
        """

    def snapshot(self) -> AsyncGenerator[bytes, None]:
        """Yield the whole database in pieces; the last 32 bytes are the SHA-256 of everything before.

        A caller that stops early closes the generator (`contextlib.aclosing`).

        Raises:
            Unreachable: the stream was interrupted.
        """

    async def auth_enabled(self) -> bool:
        """Whether authentication is enabled, as far as this member has applied the log. Needs no quorum."""

    async def authenticate(self) -> None:
        """Log in now; not an error without authentication. Otherwise the password is used when a request needs it.

        Raises:
            Denied: user or password is wrong.
        """

    async def enable_auth(self, user: str, password: str) -> None:
        """Create the user with this password and role root, and enable authentication.

        An existing user of this name is replaced. Without authentication, any client may have created it with an
        unknown password, which would lock the operator out.
        """

    async def disable_auth(self) -> None:
        """Disable authentication; users are kept."""

    async def change_password(self, user: str, password: str) -> None: ...

    async def roles(self, user: str) -> tuple[str, ...] | None:
        """Return the roles of a user; None if it does not exist. Each request is an entry of Raft's log."""

    async def replace_user(self, user: str, password: str, role: str) -> None:
        """Create the user with this password and only this role; a role other than root may read and write all keys.

        An existing user of this name is replaced, with its roles, and its tokens end.
        """

    async def aclose(self) -> None:
        """Close the connections."""


Connect = Callable[[Endpoint, Access], Server]
"""`gateway.connect`, or a replacement in a test. Nothing is sent before a method is called."""
