"""CLUSTER MEET: which node answers at the address decides, not which one was expected there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from operators.redis.client.commands import Meet, execute
from operators.redis.client.errors import ForeignNodeMet, Unreachable
from operators.redis.client.server import Access, Endpoint
from tests.redis.unit.test_observe import INFORMATION
from tests.redis.unit.world import node_id

MEMBER, OTHER, NEW, FOREIGN, FRIEND = (node_id(number) for number in range(5))
NEW_ADDRESS = "10.0.0.9"


@dataclass
class Table:
    """A node whose handshake with `NEW_ADDRESS` ends after some polls.

    Attributes:
        ends_as: ids that it knows after the handshake; empty if the handshake does not end.
        polls: number of inspections until the handshake ends.
    """

    id: str
    known: dict[str, str]
    ends_as: dict[str, str] = field(default_factory=dict)
    polls: int = 2
    meets: bool = False
    forgotten: list[str] = field(default_factory=list)

    async def execute(self, *command: Any) -> Any:
        (answer,) = await self.pipe([command])
        return answer

    async def pipe(self, commands: Any) -> list[Any]:
        return [self._answer(*command) for command in commands]

    async def aclose(self) -> None:
        pass

    def _answer(self, *words: Any) -> Any:
        match words[:2]:
            case ("INFO",):
                return INFORMATION
            case ("DBSIZE",):
                return 3
            case ("CLUSTER", "INFO"):
                return "cluster_state:ok\ncluster_current_epoch:1\n"
            case ("CLUSTER", "NODES"):
                return self._nodes()
            case ("CLUSTER", "MEET"):
                self.meets = True
                return "OK"
            case ("CLUSTER", "FORGET"):
                self.forgotten.append(words[2])
                self.meets = False
                self.known.pop(words[2], None)
                return "OK"
            case ("CONFIG", _):
                return [words[-1], ""]
        return ["flags", ["on", "nopass"], "passwords", []]

    def _nodes(self) -> str:
        self.polls -= self.meets
        if self.meets and self.ends_as and self.polls <= 0:
            self.known |= self.ends_as
            self.meets = False
        lines = [_line(self.id, "10.0.0.1", "myself,master")]
        lines += [_line(known, address, "master") for known, address in self.known.items()]
        if self.meets:
            lines.append(_line("f" * 40, NEW_ADDRESS, "handshake"))
        return "".join(lines)


def _line(known: str, address: str, flags: str) -> str:
    return f"{known} {address}:6379@16379 {flags} - 0 0 1 connected\n"


class Servers:
    """The servers at each address."""

    def __init__(self, *at: Table) -> None:
        self.tables = {f"10.0.0.{number + 1}": table for number, table in enumerate(at)}
        self.tables[NEW_ADDRESS] = Table(NEW, {})

    def __call__(self, endpoint: Endpoint, _: Access) -> Table:
        return self.tables[endpoint.address]

    async def meet(self) -> None:
        via = tuple(
            Endpoint(f"demo-{number}", address, "h", id=table.id)
            for number, (address, table) in enumerate(self.tables.items())
            if address != NEW_ADDRESS
        )
        at = Endpoint("demo-9", NEW_ADDRESS, "h", id=NEW)
        await execute(self, Meet(Access(), at, via, NEW, own=frozenset({MEMBER, OTHER, NEW})))


async def test_handshake_with_the_expected_node_changes_nothing_else() -> None:
    member = Table(MEMBER, {OTHER: "10.0.0.2"}, {NEW: NEW_ADDRESS})
    await Servers(member).meet()
    assert (member.forgotten, set(member.known)) == ([], {OTHER, NEW})


async def test_foreign_node_at_the_address_is_forgotten_by_every_node_that_knows_it() -> None:
    """The members that it introduces are forgotten too; nodes that were known before stay."""
    met = {FOREIGN: NEW_ADDRESS, FRIEND: "10.1.0.1"}
    member, other = Table(MEMBER, {OTHER: "10.0.0.2"}, met), Table(OTHER, {MEMBER: "10.0.0.1"} | met)
    with pytest.raises(ForeignNodeMet, match=f"{FOREIGN}.*demo-9"):
        await Servers(member, other).meet()
    assert (set(member.known), set(other.known)) == ({OTHER}, {MEMBER})


async def test_handshake_that_does_not_end_is_cancelled() -> None:
    """A node that answers at the address later would otherwise become a member unseen."""
    member = Table(MEMBER, {OTHER: "10.0.0.2"})
    with pytest.raises(Unreachable, match="demo-9 does not answer demo-0 on the cluster bus"):
        await Servers(member).meet()
    assert (member.meets, member.forgotten) == (False, ["f" * 40])
