"""What Redis does, as stories that go the same on a real one and on `FakeRedis`: the record of one judges the other.

A story is a coroutine that starts, ends and asks servers, and tells what came of it in words. The words of Redis 7.0
are in `tests/recorded/redis.json`. Every server waits one second before it suspects another.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.responses import Node, fields, parse_nodes
from operators.redis.client.server import Command, Server
from operators.redis.slots.hash_slots import Slots

Story = Callable[["Lab"], Awaitable[None]]

THIRDS = {"a": "0-5460", "b": "5461-10922", "c": "10923-16383"}
SEEN = 2.5
"""Seconds after which all have heard of what is so."""

ELECTED = 10.0
"""Seconds after which a failed master has a successor."""

FOO = 12182
"""The slot of `foo`, `{foo}a` and their like: of the last third."""


class Lab(Protocol):
    """Where servers are started.

    Attributes:
        told: what came of the story so far.
    """

    told: list[str]

    async def start(self, name: str, *, address: str = "") -> None:
        """Start a server on its disk, empty at first, and give it time to take part.

        Args:
            address: of another, which that one has no more.
        """

    async def move(self, name: str) -> None:
        """It has another address from its next start on."""

    async def stop(self, name: str) -> None: ...

    async def wipe(self, name: str) -> None:
        """Its disk is lost; it does not run."""

    async def hang(self, name: str, *, hangs: bool = True) -> None:
        """It answers nobody any more, or again."""

    async def wait(self, seconds: float) -> None: ...

    def address(self, name: str) -> tuple[str, int]: ...

    def server(self, name: str) -> Server: ...


class Teller:
    """Asks servers, and puts what comes of it into words."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ids: dict[str, str] = {}
        self._started: set[str] = set()

    async def starts(self, *names: str, **addresses: str) -> None:
        for name in names:
            await self.lab.start(name, address=addresses.get(name, ""))
            self._started.add(name)
            node_id = str(await self.lab.server(name).execute("CLUSTER", "MYID"))
            if name in self.ids and self.ids[name] != node_id:
                self.lab.told.append(f"{name} has another id")
            self.ids[name] = node_id

    async def asks(self, name: str, *command: str | int | bytes) -> Any:
        """Ask, where names in braces stand for ids: CLUSTER FORGET {b}."""
        words = tuple(self._id(word) for word in command)
        what = f"{name}: {' '.join(map(_text, command))}"
        try:
            answer = await self.lab.server(name).execute(*words)
        except Refused as error:
            answer = str(error).partition(": ")[2]
        except Unreachable:
            answer = "no answer"
        self.lab.told.append(f"{what}: {self._words(_text(answer))}")
        return answer

    async def meets(self, name: str, *others: str) -> None:
        for other in others:
            await self.lab.server(name).execute("CLUSTER", "MEET", *self.lab.address(other))

    async def nodes(self, name: str) -> tuple[Node, ...]:
        return parse_nodes(await self.lab.server(name).execute("CLUSTER", "NODES"))

    async def sees(self, *names: str, epochs: bool = False) -> None:
        """What they say of the cluster; those who say the same, together."""
        said: dict[str, str] = {}
        for name in names:
            lines = sorted(self._line(node, epochs=epochs) for node in await self.nodes(name))
            state = str(await self.lab.server(name).execute("CLUSTER", "INFO"))
            lines.append("well" if "cluster_state:ok" in state else "unwell")
            view = ", ".join(lines)
            said[view] = said.get(view, "") + name
        self.lab.told += [f"{who} see: {view}" if len(who) > 1 else f"{who} sees: {view}" for view, who in said.items()]

    async def agree(self, *names: str) -> None:
        """Whether they see the same, and how many are what, whoever that is."""
        views = [await self.nodes(name) for name in names]
        same = len({frozenset((node.id, node.primary, str(node.slots)) for node in view) for view in views}) == 1
        owning, following = ([node for node in views[0] if test(node)] for test in (_owns, _follows))
        covered = sum(len(node.slots) for node in owning)
        agreed = "agree" if same else "do not agree"
        counted = f"{len(owning)} masters of {covered} slots, {len(following)} replicas"
        self.lab.told.append(f"{''.join(names)} {agreed}: {counted}")

    async def follows(self, *names: str) -> None:
        """How their replication is."""
        for name in names:
            found = fields(await self.lab.server(name).execute("INFO"))
            link = found.get("master_link_status", "")
            keys = found.get("db0", "keys=0").partition(",")[0]
            self.lab.told.append(f"{name}: {found['role']} {link}".strip() + f", {keys}")

    def _line(self, node: Node, *, epochs: bool) -> str:
        words = [self._name(node.id)]
        words += [f"replica of {self._name(node.primary) if node.primary else 'somebody'}"] if node.is_replica else []
        words += ["fails"] * node.failing + ["may fail"] * node.suspected + ["without address"] * node.noaddr
        words += ["handshake"] * node.handshake + ([str(node.slots)] if node.slots else [])
        words += [f"{slot} to {self._name(to)}" for slot, to in node.migrating.items()]
        words += [f"{slot} from {self._name(source)}" for slot, source in node.importing.items()]
        words += [f"epoch {node.epoch}"] if epochs else []
        return " ".join(words)

    def _name(self, node_id: str) -> str:
        return next((name for name, known in self.ids.items() if known == node_id), "somebody")

    def _id(self, word: str | int | bytes) -> str | int | bytes:
        found = re.fullmatch(r"\{(\w)\}", word) if isinstance(word, str) else None
        return self.ids[found[1]] if found else word

    def _words(self, text: str) -> str:
        for name, node_id in self.ids.items():
            text = text.replace(node_id, name)
        for name in self._started:
            address, port = self.lab.address(name)
            text = text.replace(f"{address}:{port}", name)
        return text


def _owns(node: Node) -> bool:
    return node.is_primary and bool(node.slots)


def _follows(node: Node) -> bool:
    return node.is_replica and bool(node.primary)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return " ".join(sorted(map(_text, value))) or "nothing"
    return str(value)


async def form(lab: Lab, replicas: str = "") -> Teller:
    """Masters a, b and c, and replicas of these, in turn."""
    tell = Teller(lab)
    await tell.starts(*THIRDS, *replicas)
    for epoch, name in enumerate((*THIRDS, *replicas), start=1):
        await lab.server(name).execute("CLUSTER", "SET-CONFIG-EPOCH", epoch)
    await tell.meets("a", *"bc", *replicas)
    await lab.wait(SEEN)
    while min([len(await tell.nodes(name)) for name in tell.ids]) < len(tell.ids):
        await lab.wait(SEEN)
    for name, slots in THIRDS.items():
        await lab.server(name).execute("CLUSTER", "ADDSLOTS", *Slots.parse(slots))
    for replica, primary in zip(replicas, THIRDS, strict=False):
        await lab.server(replica).execute("CLUSTER", "REPLICATE", tell.ids[primary])
    await lab.wait(2 * SEEN)
    return tell


async def three_become_one(lab: Lab) -> None:
    tell = Teller(lab)
    await tell.starts("a", "b", "c")
    await tell.sees("a")
    await tell.asks("a", "CLUSTER", "SET-CONFIG-EPOCH", 1)
    await tell.asks("a", "CLUSTER", "SET-CONFIG-EPOCH", 2)
    await tell.asks("b", "CLUSTER", "SET-CONFIG-EPOCH", 2)
    await tell.asks("a", "CLUSTER", "MEET", "nowhere", 0)
    await tell.meets("a", "b")
    await lab.wait(SEEN)
    await tell.sees("a", "b", epochs=True)
    await tell.asks("a", "CLUSTER", "SET-CONFIG-EPOCH", 3)
    await tell.meets("b", "c", "c", "b")
    await lab.wait(SEEN)
    await tell.sees("a", "b", "c")
    await tell.asks("a", "CLUSTER", "ADDSLOTS", *range(3))
    await tell.asks("a", "CLUSTER", "ADDSLOTS", 2)
    await tell.asks("a", "CLUSTER", "ADDSLOTS", 16384)
    await tell.asks("a", "CLUSTER", "DELSLOTS", 9)
    await lab.wait(SEEN)
    await tell.asks("b", "CLUSTER", "ADDSLOTS", 1)
    await tell.asks("a", "CLUSTER", "REPLICATE", "{b}")
    await tell.asks("b", "CLUSTER", "REPLICATE", "{b}")
    await tell.asks("b", "CLUSTER", "REPLICATE", "0" * 40)
    await tell.asks("b", "CLUSTER", "REPLICATE", "{a}")
    await tell.asks("c", "CLUSTER", "FAILOVER")
    await lab.wait(SEEN)
    await tell.asks("c", "CLUSTER", "REPLICATE", "{b}")
    await tell.asks("b", "CLUSTER", "SETSLOT", 1, "NODE", "{c}")
    await tell.sees("a", "b", "c")
    await tell.follows("a", "b")


async def a_slot_moves(lab: Lab) -> None:
    tell = await form(lab)
    for key in ("foo", "{foo}a", "{foo}b"):
        await tell.asks("c", "SET", key, "old")
    await tell.asks("a", "SET", "foo", "new")
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "MIGRATING", "{b}")
    await tell.asks("c", "CLUSTER", "SETSLOT", FOO, "IMPORTING", "{a}")
    await tell.asks("c", "CLUSTER", "SETSLOT", FOO, "MIGRATING", "0" * 40)
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "NODE", "0" * 40)
    address = lab.address("a")
    await tell.asks("c", "MIGRATE", *address, "foo", 0, 1000)
    lab.told[-1] = lab.told[-1].replace(str(address[0]), "a").replace(str(address[1]), "port")
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "IMPORTING", "{c}")
    await tell.asks("c", "CLUSTER", "SETSLOT", FOO, "MIGRATING", "{a}")
    await tell.sees("a", "b", "c")
    await tell.asks("c", "SET", "foo", "moves")
    await tell.asks("c", "GET", "{foo}none")
    await tell.asks("a", "GET", "foo")
    for step in (("c", "COUNTKEYSINSLOT", FOO), ("c", "GETKEYSINSLOT", FOO, 9), ("a", "COUNTKEYSINSLOT", FOO)):
        await tell.asks(step[0], "CLUSTER", *step[1:])
    server = lab.server("c")
    lab.told.append(f"MIGRATE: {await server.execute(*_migration(address, 'foo', '{foo}a'))}")
    lab.told.append(f"MIGRATE again: {await server.execute(*_migration(address, 'foo'))}")
    await tell.asks("c", "GET", "foo")
    await tell.asks("c", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    lab.told.append(f"MIGRATE the last: {await server.execute(*_migration(address, '{foo}b'))}")
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await lab.wait(SEEN)  # until c has heard of it, it says ASK
    await tell.asks("c", "GET", "foo")
    await tell.asks("c", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await tell.asks("c", "GET", "foo")
    await tell.asks("a", "GET", "foo")
    await lab.wait(SEEN)
    await tell.sees("a", "b", "c", epochs=True)


def _migration(address: tuple[str, int], *keys: str) -> Command:
    return ("MIGRATE", *address, "", 0, 1000, "KEYS", *keys)


async def a_key_is_on_both_sides(lab: Lab) -> None:
    tell = await form(lab)
    await lab.server("c").execute("SET", "foo", "one")
    await lab.server("c").execute("SET", "{foo}a", "two")
    await lab.server("a").execute("CLUSTER", "SETSLOT", FOO, "IMPORTING", tell.ids["c"])
    await lab.server("c").execute("CLUSTER", "SETSLOT", FOO, "MIGRATING", tell.ids["a"])
    asking = await lab.server("a").pipe((("ASKING",), ("SET", "foo", "another")))
    lab.told.append(f"a takes foo: {asking}")
    command = _migration(lab.address("a"), "foo", "{foo}a")
    (answer,) = await lab.server("c").pipe((command,))
    lab.told.append(f"MIGRATE: {str(answer).partition(': ')[2]}")
    await tell.asks("c", "CLUSTER", "GETKEYSINSLOT", FOO, 9)
    await tell.asks("a", "CLUSTER", "GETKEYSINSLOT", FOO, 9)
    replaced = (*command[:6], "REPLACE", *command[6:])
    lab.told.append(f"MIGRATE REPLACE: {await lab.server('c').execute(*replaced)}")
    await tell.asks("c", "CLUSTER", "SETSLOT", FOO, "STABLE")
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "STABLE")
    await tell.asks("a", "CLUSTER", "COUNTKEYSINSLOT", FOO)
    await tell.asks("c", "GET", "foo")


async def keys_are_stranded(lab: Lab) -> None:
    """Why NODE must never follow a MIGRATE that failed."""
    tell = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.server("a").execute("CLUSTER", "SETSLOT", FOO, "IMPORTING", tell.ids["c"])
    await lab.server("c").execute("CLUSTER", "SETSLOT", FOO, "MIGRATING", tell.ids["a"])
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await lab.wait(SEEN)
    await tell.sees("a", "c")
    await tell.asks("a", "GET", "foo")
    await tell.asks("c", "CLUSTER", "COUNTKEYSINSLOT", FOO)


async def a_slot_is_claimed_without_an_epoch(lab: Lab) -> None:
    """Why a slot that nobody imports cannot be given away by NODE alone."""
    tell = await form(lab)
    await tell.asks("a", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await tell.sees("a")
    await lab.wait(SEEN)
    await tell.sees("a", "b", "c", epochs=True)


async def a_replica_takes_its_masters_place(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await tell.follows("c", "f")
    await tell.asks("a", "CLUSTER", "FAILOVER")
    await tell.asks("f", "CLUSTER", "FAILOVER", "NOW")
    await tell.asks("f", "CLUSTER", "FAILOVER")
    await lab.wait(SEEN)
    await tell.sees(*"abcdef")
    await tell.follows("c", "f")
    await tell.asks("c", "CLUSTER", "FAILOVER", "TAKEOVER")
    await lab.wait(SEEN)
    await tell.sees(*"abcdef")
    await tell.asks("f", "CLUSTER", "FORGET", "{c}")
    await tell.asks("f", "CLUSTER", "FORGET", "{f}")
    await tell.asks("f", "CLUSTER", "FORGET", "0" * 40)


async def a_master_dies(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await lab.stop("c")
    await lab.wait(ELECTED)
    await tell.sees(*"abdef")
    await tell.asks("f", "GET", "foo")
    await tell.starts("c")
    await lab.wait(2 * SEEN)
    await tell.sees(*"abcdef")
    await tell.follows("c", "f")


async def a_master_loses_its_disk(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.stop("c")
    await lab.wipe("c")
    tell.ids["x"] = tell.ids.pop("c")
    await tell.starts("c")
    await lab.wait(ELECTED)
    await tell.sees(*"abdef")
    await tell.sees("c")
    await tell.asks("f", "CLUSTER", "FORGET", "{x}")
    await tell.meets("f", "c")
    await lab.wait(SEEN)
    await tell.sees("c", "f")


async def all_have_other_addresses(lab: Lab) -> None:
    tell = await form(lab, "def")
    for name in "abcdef":
        await lab.stop(name)
        await lab.move(name)
    await tell.starts(*"abcdef")
    await lab.wait(ELECTED)
    await tell.sees(*"abcdef")
    await tell.meets("a", *"bcdef")
    await lab.wait(2 * SEEN)
    await tell.agree(*"abcdef")


async def one_has_another_address(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.stop("d")
    await lab.move("d")
    await tell.starts("d")
    await lab.wait(2 * SEEN)
    await tell.sees(*"abcdef")
    await tell.follows("d")


async def an_address_is_anothers(lab: Lab) -> None:
    tell = await form(lab)
    await lab.stop("b")
    await lab.wait(ELECTED)
    await tell.starts("x", x="b")
    await lab.wait(2 * SEEN)
    await tell.sees("a", "c", "x")


async def one_is_forgotten(lab: Lab) -> None:
    tell = await form(lab, "de")
    await tell.asks("a", "CLUSTER", "FORGET", "{e}")
    await tell.sees("a")
    await lab.wait(SEEN)
    await tell.sees("a", "b")
    await tell.meets("a", "e")
    await lab.wait(SEEN)
    await tell.sees("a")
    await tell.asks("b", "CLUSTER", "FORGET", "{c}")
    await lab.wait(SEEN)
    await tell.sees("b")


async def replicas_that_began_anew_are_not_chosen(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.stop("f")
    await lab.stop("c")
    await tell.starts("f")
    await lab.wait(ELECTED)
    await tell.sees("a", "f")
    await tell.asks("f", "CLUSTER", "FAILOVER")
    await tell.asks("f", "CLUSTER", "FAILOVER", "FORCE")
    await lab.wait(SEEN)
    await tell.sees("a", "f")


async def epochs_collide(lab: Lab) -> None:
    tell = Teller(lab)
    await tell.starts("a", "b")
    for name in "ab":
        await lab.server(name).execute("CLUSTER", "SET-CONFIG-EPOCH", 7)
    await tell.meets("a", "b")
    await lab.wait(SEEN)
    found = sorted(node.epoch for node in await tell.nodes("a"))
    lab.told.append(f"epochs: {found}")


async def a_majority_is_gone(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await lab.stop("b")
    await lab.stop("c")
    await lab.wait(ELECTED)
    await tell.sees("a", "e", "f")
    await tell.asks("a", "SET", "bar", "x")
    await tell.asks("f", "CLUSTER", "FAILOVER", "TAKEOVER")
    await lab.wait(ELECTED)
    await tell.sees("a", "e", "f")
    await tell.asks("f", "GET", "foo")


async def a_master_hangs(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.hang("c")
    await lab.wait(ELECTED)
    await tell.sees("a", "f")
    await lab.hang("c", hangs=False)
    await lab.wait(2 * SEEN)
    await tell.sees("a", "c", "f")


async def a_node_is_reset(lab: Lab) -> None:
    tell = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await tell.asks("c", "CLUSTER", "RESET", "SOFT")
    await tell.asks("f", "CLUSTER", "RESET", "SOFT")
    await tell.sees("f", epochs=True)
    await tell.follows("f")
    await lab.wait(SEEN)
    await tell.sees("a", "f")


async def a_master_gives_all_away(lab: Lab) -> None:
    tell = await form(lab, "def")
    await tell.starts("g")
    await tell.meets("a", "g")
    await lab.wait(SEEN)
    for source, target in (("a", "b"), ("c", "g")):
        slots = Slots.parse(THIRDS[source])
        for at, other, what in ((target, source, "IMPORTING"), (source, target, "MIGRATING")):
            await lab.server(at).pipe([("CLUSTER", "SETSLOT", slot, what, tell.ids[other]) for slot in slots])
        for at in (target, source):
            await lab.server(at).pipe([("CLUSTER", "SETSLOT", slot, "NODE", tell.ids[target]) for slot in slots])
        await lab.wait(2 * SEEN)
        await tell.sees(*"abcdefg")


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        three_become_one,
        a_slot_moves,
        a_key_is_on_both_sides,
        keys_are_stranded,
        a_slot_is_claimed_without_an_epoch,
        a_replica_takes_its_masters_place,
        a_master_dies,
        a_master_loses_its_disk,
        all_have_other_addresses,
        one_has_another_address,
        an_address_is_anothers,
        one_is_forgotten,
        replicas_that_began_anew_are_not_chosen,
        epochs_collide,
        a_majority_is_gone,
        a_master_hangs,
        a_node_is_reset,
        a_master_gives_all_away,
    )
}
