"""The calls of a plan on running servers, and how each is carried out; migration/commands.py has those that move slots.

A call may be old when it is carried out, and it may have been carried out before: by an operator that crashed, or by a
command whose answer was lost. So each call first checks the id of the node that answers, inspects the state that it
depends on, and does nothing where the goal is reached. It is safe to repeat, and safe to interrupt between any two
commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from operators.redis.client.command_base import NodeCall, RedisCall, each, known
from operators.redis.client.errors import Refused
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Connect, Endpoint, Server
from operators.redis.slots.hash_slots import Slots
from shared.runtime.plan import Call


@dataclass(frozen=True, slots=True)
class SetEpoch(NodeCall):
    """Give a node that knows nobody yet an epoch of its own, so that its claims hold against older ones."""

    epoch: int

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        if report.me.epoch == 0 and len(report.nodes) == 1:  # later, no server takes it
            await server.execute("CLUSTER", "SET-CONFIG-EPOCH", self.epoch)

    def __str__(self) -> str:
        return f"give {self.at.name} epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class Meet(RedisCall):
    """Tell nodes where another is.

    Attributes:
        at: where it is.
        via: who is told.
        id: who must answer there.
    """

    lasting: ClassVar[bool] = True  # nodes shake hands for a while

    at: Endpoint
    via: tuple[Endpoint, ...]
    id: str

    async def carry_out(self, connect: Connect, /) -> None:
        async with known(connect, self.access, self.at, self.id):
            pass

        async def tell(server: Server, report: NodeReport) -> None:
            found, where = report.node(self.id), (self.at.address, self.at.port)
            if found is None or (found.address, found.port) != where or not found.linked:
                await server.execute("CLUSTER", "MEET", *where)

        await each(connect, self.access, self.via, tell)

    def __str__(self) -> str:
        return f"let {', '.join(endpoint.name for endpoint in self.via)} meet {self.at.name} at {self.at.address}"


@dataclass(frozen=True, slots=True)
class AddSlots(NodeCall):
    """Let a master own slots that nobody owns: empty ones.

    Attributes:
        outbid: whether somebody owned them before, of whom others may yet hear: the claim gets the highest epoch then.
    """

    slots: Slots
    outbid: bool = False

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        owned = {node.id: node.slots & self.slots for node in report.nodes if not node.is_me}
        if taken := next((node_id for node_id, slots in owned.items() if slots), None):
            raise Refused(f"{self.at.name} says that {taken} owns slots {owned[taken]}: {self} must be judged anew.")
        if report.me.primary:
            raise Refused(f"{self.at.name} replicates {report.me.primary}: {self} must be judged anew.")
        if lacking := self.slots - report.me.slots:
            await server.execute("CLUSTER", "ADDSLOTS", *lacking)
        if report.me.epoch == 0 or (self.outbid and report.me.epoch < report.epoch):
            await server.execute("CLUSTER", "BUMPEPOCH")

    def __str__(self) -> str:
        return f"let {self.at.name} own slots {self.slots}"


@dataclass(frozen=True, slots=True)
class Replicate(NodeCall):
    """Let a node replicate a master; what it holds itself it loses, so it must hold nothing of its own.

    Attributes:
        master: id of the master.
    """

    primary: str

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        if report.me.primary == self.primary:
            return
        if report.me.slots:
            raise Refused(f"{self.at.name} owns slots {report.me.slots}: it must not become a replica.")
        if report.me.is_primary and report.keys:
            raise Refused(f"{self.at.name} holds {report.keys} keys of its own: it must not become a replica.")
        await server.execute("CLUSTER", "REPLICATE", self.primary)

    def __str__(self) -> str:
        return f"let {self.at.name} replicate {self.primary}"


@dataclass(frozen=True, slots=True)
class FailOver(NodeCall):
    """Let a replica take its master's place.

    Attributes:
        mode: empty where the master lives and helps, so that no write is lost; FORCE where it does not, and the other
            masters vote; TAKEOVER where these are no majority either.
    """

    lasting: ClassVar[bool] = True  # to be asked again meanwhile would have it begin anew

    mode: Literal["", "FORCE", "TAKEOVER"] = ""

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        if report.me.is_primary:
            return
        if not self.mode and not report.link_up:
            raise Refused(f"{self.at.name} does not follow its master at this time: {self} would lose writes.")
        await server.execute("CLUSTER", "FAILOVER", *([self.mode] if self.mode else []))

    def __str__(self) -> str:
        return f"let {self.at.name} take its master's place{f' ({self.mode})' if self.mode else ''}"


@dataclass(frozen=True, slots=True)
class Forget(RedisCall):
    """Let nodes forget one that is gone; for a minute they do not hear of it from others either.

    Attributes:
        id: who is forgotten.
        at: by whom: all within that minute, else who was not told brings it back.
    """

    id: str
    at: tuple[Endpoint, ...]

    async def carry_out(self, connect: Connect, /) -> None:
        async def tell(server: Server, report: NodeReport) -> None:
            if report.node(self.id) is not None:
                await server.execute("CLUSTER", "FORGET", self.id)

        await each(connect, self.access, self.at, tell)

    def __str__(self) -> str:
        return f"let {len(self.at)} nodes forget {self.id}"


@dataclass(frozen=True, slots=True)
class Configure(NodeCall):
    """Change settings of a running server; those in its file are another matter.

    Attributes:
        settings: directives and their values, any of which may be a secret.
    """

    settings: Mapping[str, str] = field(repr=False)

    async def tell(self, server: Server, _: NodeReport, /) -> None:
        for name, value in self.settings.items():
            if (await server.execute("CONFIG", "GET", name))[1:] != [value]:
                await server.execute("CONFIG", "SET", name, value)

    def __str__(self) -> str:
        return f"set {', '.join(self.settings)} of {self.at.name}"


@dataclass(frozen=True, slots=True)
class SetPasswords(NodeCall):
    """Say which passwords of the user `default` are good; who is connected stays so.

    Attributes:
        digests: SHA-256 of each, in hexadecimal digits; none: nobody is asked for one.
    """

    digests: tuple[str, ...] = field(repr=False)

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        if report.takes == self.digests:
            return
        desired = [f"#{digest}" for digest in self.digests] or ["nopass"]
        await server.execute("ACL", "SETUSER", "default", "resetpass", *desired)

    def __str__(self) -> str:
        return f"say which passwords are good at {self.at.name}"


@dataclass(frozen=True, slots=True)
class ResetSoft(NodeCall):
    """Let a node that holds nothing leave its cluster."""

    async def tell(self, server: Server, report: NodeReport, /) -> None:
        if len(report.nodes) == 1 and report.me.is_primary:
            return
        if report.me.slots or report.keys:
            raise Refused(f"{self.at.name} holds {report.keys} keys and slots {report.me.slots}: it must not be reset.")
        await server.execute("CLUSTER", "RESET", "SOFT")

    def __str__(self) -> str:
        return f"let {self.at.name} leave its cluster"


async def execute(connect: Connect, call: Call) -> None:
    """Carry out a call.

    Raises:
        RedisError: as the call says.
    """
    if not isinstance(call, RedisCall):
        raise TypeError(f"{call} is no call on redis")
    await call.carry_out(connect)
