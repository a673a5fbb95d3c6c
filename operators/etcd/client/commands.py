"""Changes of a running cluster: values in plans, and their execution.

A call may be stale when it is executed, or may have been executed already: before a crash of the operator, or by a
request whose response was lost. So each call first checks its preconditions against a list that a quorum agrees on, and
does nothing if its goal is already reached. That makes each call safe to repeat, also at another member.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from operators.etcd.client.errors import Denied, EtcdError, NoLeader, NoSuchMember, Refused, Unreachable
from operators.etcd.client.server import Access, Alarm, Connect, Endpoint, Member, Members, Server
from shared.runtime.plan import Call


@dataclass(frozen=True, slots=True)
class EtcdCall(Call):
    """A change of a running cluster.

    Attributes:
        endpoints: endpoints to try in this order: healthy voters, the leader first.
    """

    endpoints: tuple[Endpoint, ...]
    access: Access

    async def carry_out(self, server: Server, found: Members, /) -> None:
        """Execute the change, unless it is already done.

        Args:
            found: members as a quorum has just reported them.

        Raises:
            EtcdError: the change was not executed; after Unreachable and NoLeader, it may have been.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AddLearner(EtcdCall):
    """Add a member as a learner."""

    peer_url: str

    async def carry_out(self, server: Server, found: Members, /) -> None:
        if any(self.peer_url in member.peer_urls for member in found.members):
            return
        if learners := [member for member in found.members if member.learner]:
            raise Refused(
                f"{_name(learners[0])} is still a learner, and etcd allows one at a time: the operator retries "
                f"{self} later."
            )
        await server.add_learner(self.peer_url)

    def __str__(self) -> str:
        return f"add a learner at {self.peer_url}"


@dataclass(frozen=True, slots=True)
class Promote(EtcdCall):
    """Promote a learner to a voter."""

    member: Member

    async def carry_out(self, server: Server, found: Members, /) -> None:
        now = _found(self.member, found)
        if now is None:
            raise NoSuchMember(f"{_name(self.member)} is no longer a member, and cannot be promoted.")
        if now.learner:
            await server.promote(self.member.id)

    def __str__(self) -> str:
        return f"promote {_name(self.member)}"


@dataclass(frozen=True, slots=True)
class Remove(EtcdCall):
    """Remove a member permanently."""

    member: Member

    async def carry_out(self, server: Server, found: Members, /) -> None:
        now = _found(self.member, found)
        if now is None:
            return
        if not now.learner:
            if self.member.learner:
                raise Refused(
                    f"{_name(self.member)} was promoted in the meantime: the operator checks again whether to {self}."
                )
            if sum(not member.learner for member in found.members) == 1:
                raise Refused(f"{_name(self.member)} is the only voter and cannot be removed.")
        await server.remove(self.member.id)

    def __str__(self) -> str:
        return f"remove {_name(self.member)}"


@dataclass(frozen=True, slots=True)
class MoveLeader(EtcdCall):
    """Move the leadership to another voter; the endpoint is that of the leader, which alone accepts this."""

    to: Member

    async def carry_out(self, server: Server, found: Members, /) -> None:
        now = _found(self.to, found)
        if now is None or now.learner:
            raise NoSuchMember(f"{_name(self.to)} is no longer a voter, and cannot lead.")
        status = await server.status()
        if status.leader == self.to.id:
            return
        if status.leader != status.member_id:
            raise Refused(
                f"{self.endpoints[0].name} is no longer the leader: the operator checks again whether to {self}."
            )
        await server.move_leader(self.to.id)

    def __str__(self) -> str:
        return f"move the leadership to {_name(self.to)}"


@dataclass(frozen=True, slots=True)
class EnableDowngrade(EtcdCall):
    """Begin a downgrade to a series; members are changed to it afterwards."""

    series: str

    async def carry_out(self, server: Server, _: Members, /) -> None:
        target = (await server.status()).downgrade_target
        if not target:
            await server.enable_downgrade(self.series)
        elif not target.startswith(f"{self.series}."):
            raise Refused(f"A downgrade to {target} is in progress: the operator checks again whether to {self}.")

    def __str__(self) -> str:
        return f"enable the downgrade to {self.series}"


@dataclass(frozen=True, slots=True)
class CancelDowngrade(EtcdCall):
    """End a downgrade now, if there is one; etcd ends it later than members run the earlier series, or never."""

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.cancel_downgrade()

    def __str__(self) -> str:
        return "cancel the downgrade"


@dataclass(frozen=True, slots=True)
class Disarm(EtcdCall):
    """Disarm an alarm."""

    alarm: Alarm

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.disarm(self.alarm)

    def __str__(self) -> str:
        return f"disarm {self.alarm.kind} of {self.alarm.member_id:016x}"


@dataclass(frozen=True, slots=True)
class Compact(EtcdCall):
    """Delete the history below a revision."""

    revision: int

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.compact(self.revision)

    def __str__(self) -> str:
        return f"compact up to revision {self.revision}"


@dataclass(frozen=True, slots=True)
class Defragment(EtcdCall):
    """Defragment the file of one member, the only endpoint."""

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.defragment()

    def __str__(self) -> str:
        return f"defragment {self.endpoints[0].name}"


@dataclass(frozen=True, slots=True)
class EnableAuth(EtcdCall):
    """Create a user with all permissions, and enable authentication."""

    user: str
    password: str = field(repr=False)

    async def carry_out(self, server: Server, _: Members, /) -> None:
        if not await server.auth_enabled():
            await server.enable_auth(self.user, self.password)

    def __str__(self) -> str:
        return f"enable authentication with user {self.user}"


@dataclass(frozen=True, slots=True)
class DisableAuth(EtcdCall):
    """Disable authentication."""

    async def carry_out(self, server: Server, _: Members, /) -> None:
        if await server.auth_enabled():
            await server.disable_auth()

    def __str__(self) -> str:
        return "disable authentication"


@dataclass(frozen=True, slots=True)
class ChangePassword(EtcdCall):
    """Change the password of a user; `access` has the former one."""

    user: str
    password: str = field(repr=False)

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.change_password(self.user, self.password)

    def __str__(self) -> str:
        return f"change the password of {self.user}"


@dataclass(frozen=True, slots=True)
class ReplaceUser(EtcdCall):
    """Create or replace a user, with one role that may read and write all keys.

    Attributes:
        found: roles of the user as observed, when it was the operator's; None if it did not exist.
    """

    user: str
    password: str = field(repr=False)
    role: str
    found: tuple[str, ...] | None

    async def carry_out(self, server: Server, _: Members, /) -> None:
        roles = await server.roles(self.user)
        if roles != self.found and self.role not in (roles or ()):
            raise Refused(f"User {self.user} was changed in the meantime: the operator checks again whether to {self}.")
        await server.replace_user(self.user, self.password, self.role)

    def __str__(self) -> str:
        return f"set user {self.user}"


async def execute(connect: Connect, call: Call) -> None:
    """Execute a call at the first endpoint that answers.

    Raises:
        EtcdError: error of the call, or of the last endpoint.
    """
    if not isinstance(call, EtcdCall):
        raise TypeError(f"{call} is not a call on etcd")
    failure: EtcdError = Unreachable("No change is possible: no voter is healthy.")
    for endpoint in call.endpoints:
        try:
            return await _carry_out(connect, endpoint, call)
        except (Unreachable, NoLeader) as error:  # it may have happened nevertheless; the next endpoint checks that
            failure = error
    raise failure


async def _carry_out(connect: Connect, endpoint: Endpoint, call: EtcdCall) -> None:
    server = connect(endpoint, call.access)
    try:
        found = await server.members()
        _require_own(endpoint, found)
        await call.carry_out(server, found)
    except Denied:
        if not isinstance(call, ChangePassword):
            raise
        await _require_password(connect, endpoint, call)
    finally:
        await server.aclose()


async def _require_password(connect: Connect, endpoint: Endpoint, call: ChangePassword) -> None:
    """Accept a rejected former password if the new one is already set."""
    server = connect(endpoint, replace(call.access, user=call.user, password=call.password))
    try:
        await server.authenticate()
    finally:
        await server.aclose()


def _require_own(endpoint: Endpoint, found: Members) -> None:
    """Require that the server at an address belongs to the expected cluster: the address may have been reused.

    Without TLS nothing else detects that, and a foreign cluster would add a learner or delete its history.
    """
    hosts = {urlsplit(url).hostname for member in found.members for url in member.peer_urls}
    if endpoint.host.lower() not in hosts:
        raise Unreachable(f"{endpoint.name} is not at {endpoint.address}: a server of another cluster answers there.")


def _found(member: Member, found: Members) -> Member | None:
    return next((other for other in found.members if other.id == member.id), None)


def _name(member: Member) -> str:
    return f"{member.name or ', '.join(member.peer_urls)} ({member.id:016x})"
