"""The calls of a plan on running servers; migration/commands.py has the calls that move slots.

A call may be late, and it may be repeated: after a crash of the operator, or after a lost response. So each call
first checks the id of the node, inspects the state that it depends on, and does nothing if its goal is reached. It is
safe to repeat, and safe to interrupt between any two commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from operators.redis.api.directives import same
from operators.redis.api.engine_versions import Engine
from operators.redis.client.command_base import NodeCall, RedisCall, each, known
from operators.redis.client.errors import (
    ConfigRefused,
    Denied,
    ForeignNodeMet,
    Loading,
    RedisError,
    Refused,
    Unreachable,
    reads_replies,
    sure,
)
from operators.redis.client.handshake import Handshakes
from operators.redis.client.key_counts import count_hidden, count_keys
from operators.redis.client.responses import NodeReport, mapping
from operators.redis.client.server import ALL_RIGHTS, REPLICATION_USER, Connect, Endpoint, Server
from operators.redis.slots.hash_slots import Slots
from shared.runtime.plan import Call, Record, unrecorded


@dataclass(frozen=True, slots=True)
class SetEpoch(NodeCall):
    """Give a new node its own config epoch, so that its claims win against older ones."""

    epoch: int

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if report.me.epoch == 0 and len(report.nodes) == 1:  # servers reject it later
            await server.execute("CLUSTER", "SET-CONFIG-EPOCH", self.epoch)

    def __str__(self) -> str:
        return f"give {self.at.name} epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class Meet(RedisCall):
    """Let nodes meet another node (CLUSTER MEET), and verify that this node became a member, and no other one.

    Attributes:
        at: endpoint of the other node.
        via: nodes that receive the command.
        id: node id that must answer at the endpoint.
        own: ids of all nodes of the cluster; any other node at the endpoint is foreign.
    """

    lasting: ClassVar[bool] = True  # a handshake takes a while

    at: Endpoint
    via: tuple[Endpoint, ...]
    id: str
    own: frozenset[str] = frozenset()

    async def carry_out(self, connect: Connect, /) -> None:
        async with known(connect, self.access, self.at, self.id) as (_, report):
            bus = report.me.bus
        failures = []
        for via in (self.via[:1], self.via[1:]):  # one node first: a foreign node reaches only that one
            try:
                await self._meet(connect, via, bus)
            except ForeignNodeMet:
                raise
            except RedisError as error:
                failures.append(error)
        for failure in failures:
            raise failure

    async def _meet(self, connect: Connect, via: tuple[Endpoint, ...], bus: int) -> None:
        before: dict[Endpoint, frozenset[str]] = {}
        by_id = {endpoint.id: endpoint for endpoint in via}

        async def apply(server: Server, report: NodeReport) -> None:
            found, address = report.node(self.id), (self.at.address, self.at.port, bus)
            if found is None or (found.address, found.port, found.bus) != address or not found.linked:
                before[by_id[report.id]] = frozenset(node.id for node in report.nodes)
                await server.execute("CLUSTER", "MEET", *address)

        try:
            await each(connect, self.access, via, apply)
        finally:  # some have met the node, although another one failed
            await Handshakes(self.access, self.at, bus, self.id, self.own, before).verify(connect, self.via)

    def __str__(self) -> str:
        return f"let {', '.join(endpoint.name for endpoint in self.via)} meet {self.at.name} at {self.at.address}"


@dataclass(frozen=True, slots=True)
class AddSlots(NodeCall):
    """Let a primary own slots that have no owner (CLUSTER ADDSLOTS).

    Attributes:
        outbid: whether the slots had an owner that other nodes may still know: then the claim gets the highest epoch.
            Keys that the node has of them are older than those of that owner: the node must have none.
    """

    slots: Slots
    outbid: bool = False

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        owned = {node.id: node.slots & self.slots for node in report.nodes if not node.is_me}
        if taken := next((node_id for node_id, slots in owned.items() if slots), None):
            raise Refused(
                f"{self.at.name} reports {taken} as the owner of slots {owned[taken]}; not carried out: {self}."
            )
        if report.me.primary:
            raise Refused(f"{self.at.name} replicates {report.me.primary}; not carried out: {self}.")
        if missing := self.slots - report.me.slots:
            await self._require_empty(server, report, missing)
            await server.execute("CLUSTER", "ADDSLOTS", *missing)
        if report.me.epoch == 0 or (self.outbid and report.me.epoch < report.epoch):
            await server.execute("CLUSTER", "BUMPEPOCH")

    async def _require_empty(self, server: Server, report: NodeReport, slots: Slots) -> None:
        if not self.outbid:
            return
        keys = await count_hidden(server, report) or sum((await count_keys(server, slots)).values())
        if keys:
            raise Refused(
                f"{self.at.name} has {keys} keys of slots {slots} or of others that it does not own, which would be "
                f"served; not carried out: {self}."
            )

    def __str__(self) -> str:
        return f"let {self.at.name} own slots {self.slots}"


@dataclass(frozen=True, slots=True)
class TakeBack(NodeCall):
    """Let a node that lost its nodes.conf claim the slots whose keys it has, before it meets the others.

    Attributes:
        slots: slots of the former node.
        epoch: config epoch above every known one, so that no former claim wins.
    """

    slots: Slots
    epoch: int

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if len(report.nodes) > 1:
            return  # it meets the others already
        if report.me.primary or report.me.slots - self.slots:
            raise Refused(f"{self.at.name} claims slots {report.me.slots - self.slots}; not carried out: {self}.")
        found = sum((await count_keys(server, self.slots)).values())
        if found != report.keys:
            raise Refused(
                f"{self.at.name} holds {report.keys} keys, but {found} in slots {self.slots}; not carried out: {self}."
            )
        if report.me.epoch == 0:
            await server.execute("CLUSTER", "SET-CONFIG-EPOCH", self.epoch)
        if missing := self.slots - report.me.slots:
            await server.execute("CLUSTER", "ADDSLOTS", *missing)

    def __str__(self) -> str:
        return f"let {self.at.name} claim slots {self.slots} again, with their keys"


@dataclass(frozen=True, slots=True)
class Replicate(NodeCall):
    """Let a node replicate a primary (CLUSTER REPLICATE). Its own data is dropped, so it must hold none.

    Attributes:
        primary: id of the primary.
    """

    primary: str

    async def apply(self, server: Server, report: NodeReport, /) -> None:
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
class Relink(NodeCall):
    """Let a replica connect to its primary again, at its present address (CLUSTER REPLICATE).

    The server connects to the address that it knows for the primary: so it must be the present one.

    Attributes:
        primary: id of the primary.
        name: name of the primary, for messages.
        address: present address and port of the primary.
    """

    primary: str
    name: str
    address: str

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if report.me.primary != self.primary or report.replicates == self.address:
            return
        known = report.node(self.primary)
        if known is None or known.location != self.address:
            raise Refused(f"{self.at.name} knows {self.name} at another address; not carried out: {self}.")
        await server.execute("CLUSTER", "REPLICATE", self.primary)

    def __str__(self) -> str:
        return f"let {self.at.name} connect to its primary {self.name} at {self.address}"


@dataclass(frozen=True, slots=True)
class FailOver(NodeCall):
    """Let a replica take over from its primary (CLUSTER FAILOVER).

    A late call must not depose a healthy primary: the replica must still replicate the expected one, and a forced
    failover requires that it reports this primary as failed itself. Nor may it promote the data of another server: the
    replica must be connected to the primary, and before a forced failover to none.

    Attributes:
        primary: id of the primary that is to be replaced.
        mode: empty for a coordinated failover, which loses no write; FORCE if the primary is unreachable and the other
            primaries vote; TAKEOVER if these have no majority.
        address: address and port of that primary; empty if it is unreachable.
        resumed: whether the primary is reachable, but restarted with older data, and accepts no writes.
    """

    lasting: ClassVar[bool] = True  # a second request would restart the failover

    primary: str
    mode: Literal["", "FORCE", "TAKEOVER"] = ""
    address: str = ""
    resumed: bool = False

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if report.me.is_primary:
            return
        if report.me.primary != self.primary:
            raise Refused(
                f"{self.at.name} replicates {report.me.primary}, not {self.primary}; not carried out: {self}."
            )
        if self.resumed and report.syncing:
            raise Refused(f"{self.at.name} copies the data of its primary already; not carried out: {self}.")
        if self.mode and not self.resumed and not report.finds_failed(self.primary):
            raise Refused(f"{self.at.name} does not report that its primary failed; not carried out: {self}.")
        if not self.mode and not (report.link_up and report.replicates == self.address):
            raise Refused(
                f"{self.at.name} is not connected to its primary, and would lose writes; not carried out: {self}."
            )
        if self.mode and report.link_up:
            raise Refused(
                f"{self.at.name} is connected to {report.replicates}, which is not its primary or not failed; not "
                f"carried out: {self}."
            )
        if self.mode == "FORCE" and report.missing_voters:
            raise Refused(f"{self.at.name} reaches no majority of the primaries; not carried out: {self}.")
        await server.execute("CLUSTER", "FAILOVER", *([self.mode] if self.mode else []))

    def __str__(self) -> str:
        return f"let {self.at.name} take over from its primary{f' ({self.mode})' if self.mode else ''}"


@dataclass(frozen=True, slots=True)
class CancelImport(NodeCall):
    """Remove importing marks that no migration needs (CLUSTER SETSLOT STABLE). Keys of these slots stay, unserved."""

    slots: Slots

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if report.me.is_primary and (marked := self.slots & Slots.of(*report.me.importing)):
            await server.pipe([("CLUSTER", "SETSLOT", slot, "STABLE") for slot in marked])

    def __str__(self) -> str:
        return f"close slots {self.slots} at {self.at.name}, which it imports from no migration"


@dataclass(frozen=True, slots=True)
class Forget(RedisCall):
    """Let nodes forget another one (CLUSTER FORGET); for a minute they also ignore gossip about it.

    Attributes:
        id: id of the node to forget.
        at: all nodes that know it: one that is omitted reintroduces it after that minute.
    """

    id: str
    at: tuple[Endpoint, ...]

    async def carry_out(self, connect: Connect, /) -> None:
        async def apply(server: Server, report: NodeReport) -> None:
            if report.node(self.id) is not None:
                await server.execute("CLUSTER", "FORGET", self.id)

        await each(connect, self.access, self.at, apply)

    def __str__(self) -> str:
        return f"let {len(self.at)} nodes forget {self.id}"


@dataclass(frozen=True, slots=True)
class Configure(NodeCall):
    """Change settings of a running server; its file is not changed.

    Attributes:
        settings: directives and values, any of which may be a secret.
    """

    settings: Mapping[str, str] = field(repr=False)

    @reads_replies
    async def apply(self, server: Server, _: NodeReport, /) -> None:
        for name, value in self.settings.items():
            if (await server.execute("CONFIG", "GET", name))[1:] != [value]:
                await server.execute("CONFIG", "SET", name, value)

    def __str__(self) -> str:
        return f"set {', '.join(self.settings)} of {self.at.name}"


@dataclass(frozen=True, slots=True)
class ApplyDirective(NodeCall):
    """Set a directive of a running server, and check that the server uses the value.

    Attributes:
        name: the directive.
        value: value to set, which logs do not show.
        engine: engine of the server.
    """

    name: str
    value: str = field(repr=False)
    engine: Engine

    @reads_replies
    async def apply(self, server: Server, _: NodeReport, /) -> None:
        try:
            await server.execute("CONFIG", "SET", self.name, self.value)
        except (Denied, Loading):
            raise
        except Refused as error:
            raise ConfigRefused(str(error)) from None
        found = mapping(await server.execute("CONFIG", "GET", self.name)).get(self.name)
        if found is not None and same(self.name, self.value, found, self.engine) is False:
            raise ConfigRefused(f"{self.at.name} accepted it, but uses {found!r}.")

    def __str__(self) -> str:
        return f"set {self.name} of {self.at.name}"


@dataclass(frozen=True, slots=True)
class SaveSnapshot(NodeCall):
    """Let a server write a snapshot in the background, or as soon as a rewrite of its log is over (BGSAVE SCHEDULE)."""

    lasting: ClassVar[bool] = True  # INFO does not show a scheduled one

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if not report.saves:
            await server.execute("BGSAVE", "SCHEDULE")

    def __str__(self) -> str:
        return f"let {self.at.name} write a snapshot (BGSAVE)"


@dataclass(frozen=True, slots=True)
class SetPasswords(NodeCall):
    """Set the valid passwords of the users `default` and `replication`; existing connections stay open.

    Attributes:
        digests: SHA-256 of each password, in hexadecimal; empty if none is required.
        admitted: the same of the replicas' user; empty if that user is not changed.
    """

    digests: tuple[str, ...] = field(repr=False)
    admitted: tuple[str, ...] = field(default=(), repr=False)

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if report.takes != self.digests:
            desired = [f"#{digest}" for digest in self.digests] or ["nopass"]
            await server.execute("ACL", "SETUSER", "default", "resetpass", *desired)
        if self.admitted and report.admits != self.admitted:
            desired = [f"#{digest}" for digest in self.admitted]
            await server.execute("ACL", "SETUSER", REPLICATION_USER, "reset", "on", *desired, *ALL_RIGHTS.split())

    def __str__(self) -> str:
        return f"set the valid passwords of {self.at.name}"


@dataclass(frozen=True, slots=True)
class ChangeUser(NodeCall):
    """Change a user of the spec, with commands that are safe to repeat. DELUSER closes the connections of the user.

    Attributes:
        user: name of the user, for messages.
        commands: the commands; each changes a whole user, or nothing if the server refuses it (ConfigRefused).
    """

    user: str
    commands: tuple[tuple[str, ...], ...] = field(repr=False)

    async def apply(self, server: Server, _: NodeReport, /) -> None:
        for answer in await server.pipe(self.commands):
            if isinstance(answer, Refused) and not isinstance(answer, Denied | Loading):
                raise ConfigRefused(str(answer))
            sure(answer)

    def __str__(self) -> str:
        return f"change user {self.user} of {self.at.name}"


@dataclass(frozen=True, slots=True)
class ShutDown(NodeCall):
    """End a server as SIGTERM does: it waits for its replicas and saves its data, or continues if it cannot.

    Attributes:
        run_id: id of the process: the next process of the node is not ended.
    """

    lasting: ClassVar[bool] = True  # until the kubelet has noticed

    run_id: str

    async def apply(self, server: Server, report: NodeReport, /) -> None:
        if report.run_id == self.run_id:
            with suppress(Unreachable):  # it answers only if it does not end
                await server.execute("SHUTDOWN")

    def __str__(self) -> str:
        return f"end the server of {self.at.name}, whose pod is being deleted (SHUTDOWN)"


@dataclass(frozen=True, slots=True)
class Pause(RedisCall):
    """Let some seconds pass before the next action of the chain, by the clock of this process alone.

    Attributes:
        why: purpose, as a clause.
    """

    seconds: float
    why: str

    async def carry_out(self, connect: Connect, /) -> None:
        del connect
        await asyncio.sleep(self.seconds)

    def __str__(self) -> str:
        return f"wait {self.seconds:g} s, {self.why}"


async def execute(connect: Connect, call: Call, record: Record = unrecorded) -> None:
    """Carry out a call.

    Args:
        record: writes fields of the status.

    Raises:
        RedisError: see the call.
    """
    if not isinstance(call, RedisCall):
        raise TypeError(f"{call} is not a call on redis")
    await call.carry_out_recorded(connect, record)
