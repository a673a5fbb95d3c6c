"""Steps on a running cluster: values that plans ask for, and how each is carried out.

A call may be old when it is carried out, and it may have been carried out already: by us before a crash, or by a
request whose answer never came. So each looks first, by a list that a quorum agrees on, at what it rests on, and does
nothing where what it wants is so. That makes each harmless to repeat, at another member, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from operators.etcd.client.errors import Denied, EtcdError, NoLeader, NoSuchMember, Refused, Unreachable
from operators.etcd.client.server import Access, Alarm, Connect, Endpoint, Member, Members, Server
from shared.runtime.plan import Call


@dataclass(frozen=True, slots=True)
class EtcdCall(Call):
    """One step on a running cluster.

    Attributes:
        endpoints: who may be asked for it, in this order: voters that are healthy, the leader first.
    """

    endpoints: tuple[Endpoint, ...]
    access: Access

    async def carry_out(self, server: Server, found: Members, /) -> None:
        """Do it, unless it is done.

        Args:
            found: the members, as a quorum has just said.

        Raises:
            EtcdError: it was not done; after Unreachable and NoLeader, perhaps it was.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AddLearner(EtcdCall):
    """Add a member without a vote."""

    peer_url: str

    async def carry_out(self, server: Server, found: Members, /) -> None:
        if any(self.peer_url in member.peer_urls for member in found.members):
            return
        if learners := [member for member in found.members if member.learner]:
            raise Refused(f"{_name(learners[0])} is still a learner, and there may be one at a time: {self} must wait.")
        await server.add_learner(self.peer_url)

    def __str__(self) -> str:
        return f"add a learner at {self.peer_url}"


@dataclass(frozen=True, slots=True)
class Promote(EtcdCall):
    """Give a learner its vote."""

    member: Member

    async def carry_out(self, server: Server, found: Members, /) -> None:
        now = _found(self.member, found)
        if now is None:
            raise NoSuchMember(f"{_name(self.member)} is no member any more, and cannot be given a vote.")
        if now.learner:
            await server.promote(self.member.id)

    def __str__(self) -> str:
        return f"promote {_name(self.member)}"


@dataclass(frozen=True, slots=True)
class Remove(EtcdCall):
    """Remove a member for good."""

    member: Member

    async def carry_out(self, server: Server, found: Members, /) -> None:
        now = _found(self.member, found)
        if now is None:
            return
        if not now.learner:
            if self.member.learner:
                raise Refused(f"{_name(self.member)} has been given a vote meanwhile: {self} must be judged anew.")
            if sum(not member.learner for member in found.members) == 1:
                raise Refused(f"{_name(self.member)} is the only voter: without it there is no cluster.")
        await server.remove(self.member.id)

    def __str__(self) -> str:
        return f"remove {_name(self.member)}"


@dataclass(frozen=True, slots=True)
class MoveLeader(EtcdCall):
    """Give the lead to another; the endpoint is the leader's, for nobody else takes this."""

    to: Member

    async def carry_out(self, server: Server, found: Members, /) -> None:
        now = _found(self.to, found)
        if now is None or now.learner:
            raise NoSuchMember(f"{_name(self.to)} is no voter any more, and cannot lead.")
        status = await server.status()
        if status.leader == self.to.id:
            return
        if status.leader != status.member_id:
            raise Refused(f"{self.endpoints[0].name} does not lead any more: {self} must be judged anew.")
        await server.move_leader(self.to.id)

    def __str__(self) -> str:
        return f"move the lead to {_name(self.to)}"


@dataclass(frozen=True, slots=True)
class Disarm(EtcdCall):
    """End an alarm."""

    alarm: Alarm

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.disarm(self.alarm)

    def __str__(self) -> str:
        return f"disarm {self.alarm.kind} of {self.alarm.member_id:016x}"


@dataclass(frozen=True, slots=True)
class Compact(EtcdCall):
    """Forget the history below a revision."""

    revision: int

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.compact(self.revision)

    def __str__(self) -> str:
        return f"compact up to revision {self.revision}"


@dataclass(frozen=True, slots=True)
class Defragment(EtcdCall):
    """Give back what is free in one member's file; its endpoint alone is given."""

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.defragment()

    def __str__(self) -> str:
        return f"defragment {self.endpoints[0].name}"


@dataclass(frozen=True, slots=True)
class EnableAuth(EtcdCall):
    """Make a user who may do everything, and ask everybody for a user from now on."""

    user: str
    password: str = field(repr=False)

    async def carry_out(self, server: Server, _: Members, /) -> None:
        if not await server.auth_enabled():
            await server.enable_auth(self.user, self.password)

    def __str__(self) -> str:
        return f"enable authentication with user {self.user}"


@dataclass(frozen=True, slots=True)
class DisableAuth(EtcdCall):
    """Ask nobody for a user from now on."""

    async def carry_out(self, server: Server, _: Members, /) -> None:
        if await server.auth_enabled():
            await server.disable_auth()

    def __str__(self) -> str:
        return "disable authentication"


@dataclass(frozen=True, slots=True)
class ChangePassword(EtcdCall):
    """Change a user's password; `access` bears the former one."""

    user: str
    password: str = field(repr=False)

    async def carry_out(self, server: Server, _: Members, /) -> None:
        await server.change_password(self.user, self.password)

    def __str__(self) -> str:
        return f"change the password of {self.user}"


async def execute(connect: Connect, call: Call) -> None:
    """Carry out a call: at the first endpoint that answers.

    Raises:
        EtcdError: as the call, or the last endpoint, says.
    """
    if not isinstance(call, EtcdCall):
        raise TypeError(f"{call} is no call on etcd")
    failure: EtcdError = Unreachable("Nobody can be asked to change anything: no voter is healthy.")
    for endpoint in call.endpoints:
        try:
            return await _carry_out(connect, endpoint, call)
        except (Unreachable, NoLeader) as error:  # it may have come about nevertheless: the next one looks first
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
    """Who is denied with the former password may have changed it before."""
    server = connect(endpoint, replace(call.access, user=call.user, password=call.password))
    try:
        await server.authenticate()
    finally:
        await server.aclose()


def _require_own(endpoint: Endpoint, found: Members) -> None:
    """That the server at an address, which may be another's by now, is of the cluster that we mean.

    Without TLS nothing else tells, and a foreign cluster would take a learner, or forget its history, all the same.
    """
    hosts = {urlsplit(url).hostname for member in found.members for url in member.peer_urls}
    if endpoint.host.lower() not in hosts:
        raise Unreachable(f"{endpoint.name} is not at {endpoint.address}: a server of another cluster answers there.")


def _found(member: Member, found: Members) -> Member | None:
    return next((other for other in found.members if other.id == member.id), None)


def _name(member: Member) -> str:
    return f"{member.name or ', '.join(member.peer_urls)} ({member.id:016x})"
