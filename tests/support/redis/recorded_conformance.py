"""Conformance scripts that run on a real Redis and on `FakeRedis`; recordings of the former verify the latter.

A script starts, stops and queries servers, and appends the results to a transcript. The transcripts of Redis 7.0 are in
`tests/recorded/redis.json`. The node timeout of every server is one second.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.responses import Node, fields, parse_nodes
from operators.redis.client.server import Command, Server
from operators.redis.slots.hash_slots import Slots

Script = Callable[["Lab"], Awaitable[None]]

THIRDS = {"a": "0-5460", "b": "5461-10922", "c": "10923-16383"}
SEEN = 2.5
"""Seconds until all nodes have received a change."""

ELECTED = 10.0
"""Seconds until a failed primary has a successor."""

FOO = 12182
"""Slot of `foo`, `{foo}a` and the like, in the last third."""


class Lab(Protocol):
    """Environment that runs servers.

    Attributes:
        transcript: results so far.
    """

    transcript: list[str]

    async def start(self, name: str, *, address: str = "") -> None:
        """Start a server on its disk, which is empty at first, and wait until it responds.

        Args:
            address: name of another server, whose former address this one gets.
        """

    async def move(self, name: str) -> None:
        """Change the address of a server from its next start on."""

    async def stop(self, name: str) -> None: ...

    async def wipe(self, name: str) -> None:
        """Delete the disk of a stopped server."""

    async def hang(self, name: str, *, hangs: bool = True) -> None:
        """Make a server stop responding, or resume."""

    async def wait(self, seconds: float) -> None: ...

    def address(self, name: str) -> tuple[str, int]: ...

    def server(self, name: str) -> Server: ...


class Recorder:
    """Sends commands, and appends the results to the transcript."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ids: dict[str, str] = {}
        self._started: set[str] = set()

    async def start(self, *names: str, **addresses: str) -> None:
        for name in names:
            await self.lab.start(name, address=addresses.get(name, ""))
            self._started.add(name)
            node_id = str(await self.lab.server(name).execute("CLUSTER", "MYID"))
            if name in self.ids and self.ids[name] != node_id:
                self.lab.transcript.append(f"{name} has another id")
            self.ids[name] = node_id

    async def send(self, name: str, *command: str | int | bytes) -> Any:
        """Send a command and replace names in braces by ids: CLUSTER FORGET {b}."""
        words = tuple(self._id(word) for word in command)
        what = f"{name}: {' '.join(map(_text, command))}"
        try:
            answer = await self.lab.server(name).execute(*words)
        except Refused as error:
            answer = str(error).partition(": ")[2]
        except Unreachable:
            answer = "no answer"
        self.lab.transcript.append(f"{what}: {self._words(_text(answer))}")
        return answer

    async def meet(self, name: str, *others: str) -> None:
        for other in others:
            await self.lab.server(name).execute("CLUSTER", "MEET", *self.lab.address(other))

    async def nodes(self, name: str) -> tuple[Node, ...]:
        return parse_nodes(await self.lab.server(name).execute("CLUSTER", "NODES"))

    async def record_views(self, *names: str, epochs: bool = False) -> None:
        """Record the cluster views of nodes; nodes with equal views share a line."""
        nodes_by_view: dict[str, str] = {}
        for name in names:
            lines = sorted(self._line(node, epochs=epochs) for node in await self.nodes(name))
            state = str(await self.lab.server(name).execute("CLUSTER", "INFO"))
            lines.append("state ok" if "cluster_state:ok" in state else "state fail")
            view = ", ".join(lines)
            nodes_by_view[view] = nodes_by_view.get(view, "") + name
        self.lab.transcript += [
            f"{nodes} see: {view}" if len(nodes) > 1 else f"{nodes} sees: {view}"
            for view, nodes in nodes_by_view.items()
        ]

    async def record_agreement(self, *names: str) -> None:
        """Record whether all nodes have the same view, and how many primaries and replicas there are."""
        views = [await self.nodes(name) for name in names]
        same = len({frozenset((node.id, node.primary, str(node.slots)) for node in view) for view in views}) == 1
        owning, replicating = ([node for node in views[0] if test(node)] for test in (_owns, _replicates))
        covered = sum(len(node.slots) for node in owning)
        agreed = "agree" if same else "disagree"
        counted = f"{len(owning)} primaries own {covered} slots, {len(replicating)} replicas"
        self.lab.transcript.append(f"{''.join(names)} {agreed}: {counted}")

    async def record_replication(self, *names: str) -> None:
        """Record the replication state of nodes."""
        for name in names:
            found = fields(await self.lab.server(name).execute("INFO"))
            link = found.get("master_link_status", "")
            keys = found.get("db0", "keys=0").partition(",")[0]
            self.lab.transcript.append(f"{name}: {found['role']} {link}".strip() + f", {keys}")

    def _line(self, node: Node, *, epochs: bool) -> str:
        words = [self._name(node.id)]
        words += [f"replica of {self._name(node.primary) if node.primary else 'unknown'}"] if node.is_replica else []
        words += ["fails"] * node.failing + ["may fail"] * node.suspected + ["without address"] * node.noaddr
        words += ["handshake"] * node.handshake + ([str(node.slots)] if node.slots else [])
        words += [f"{slot} to {self._name(to)}" for slot, to in node.migrating.items()]
        words += [f"{slot} from {self._name(source)}" for slot, source in node.importing.items()]
        words += [f"epoch {node.epoch}"] if epochs else []
        return " ".join(words)

    def _name(self, node_id: str) -> str:
        return next((name for name, known in self.ids.items() if known == node_id), "unknown")

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


def _replicates(node: Node) -> bool:
    return node.is_replica and bool(node.primary)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return " ".join(sorted(map(_text, value))) or "nothing"
    return str(value)


async def form(lab: Lab, replicas: str = "") -> Recorder:
    """Form a cluster of primaries a, b and c, and replicas of these in turn."""
    recorder = Recorder(lab)
    await recorder.start(*THIRDS, *replicas)
    for epoch, name in enumerate((*THIRDS, *replicas), start=1):
        await lab.server(name).execute("CLUSTER", "SET-CONFIG-EPOCH", epoch)
    await recorder.meet("a", *"bc", *replicas)
    await lab.wait(SEEN)
    while min([len(await recorder.nodes(name)) for name in recorder.ids]) < len(recorder.ids):
        await lab.wait(SEEN)
    for name, slots in THIRDS.items():
        await lab.server(name).execute("CLUSTER", "ADDSLOTS", *Slots.parse(slots))
    for replica, primary in zip(replicas, THIRDS, strict=False):
        await lab.server(replica).execute("CLUSTER", "REPLICATE", recorder.ids[primary])
    await lab.wait(2 * SEEN)
    return recorder


async def three_nodes_form_a_cluster(lab: Lab) -> None:
    recorder = Recorder(lab)
    await recorder.start("a", "b", "c")
    await recorder.record_views("a")
    await recorder.send("a", "CLUSTER", "SET-CONFIG-EPOCH", 1)
    await recorder.send("a", "CLUSTER", "SET-CONFIG-EPOCH", 2)
    await recorder.send("b", "CLUSTER", "SET-CONFIG-EPOCH", 2)
    await recorder.send("a", "CLUSTER", "MEET", "nowhere", 0)
    await recorder.meet("a", "b")
    await lab.wait(SEEN)
    await recorder.record_views("a", "b", epochs=True)
    await recorder.send("a", "CLUSTER", "SET-CONFIG-EPOCH", 3)
    await recorder.meet("b", "c", "c", "b")
    await lab.wait(SEEN)
    await recorder.record_views("a", "b", "c")
    await recorder.send("a", "CLUSTER", "ADDSLOTS", *range(3))
    await recorder.send("a", "CLUSTER", "ADDSLOTS", 2)
    await recorder.send("a", "CLUSTER", "ADDSLOTS", 16384)
    await recorder.send("a", "CLUSTER", "DELSLOTS", 9)
    await lab.wait(SEEN)
    await recorder.send("b", "CLUSTER", "ADDSLOTS", 1)
    await recorder.send("a", "CLUSTER", "REPLICATE", "{b}")
    await recorder.send("b", "CLUSTER", "REPLICATE", "{b}")
    await recorder.send("b", "CLUSTER", "REPLICATE", "0" * 40)
    await recorder.send("b", "CLUSTER", "REPLICATE", "{a}")
    await recorder.send("c", "CLUSTER", "FAILOVER")
    await lab.wait(SEEN)
    await recorder.send("c", "CLUSTER", "REPLICATE", "{b}")
    await recorder.send("b", "CLUSTER", "SETSLOT", 1, "NODE", "{c}")
    await recorder.record_views("a", "b", "c")
    await recorder.record_replication("a", "b")


async def slot_is_migrated(lab: Lab) -> None:
    recorder = await form(lab)
    for key in ("foo", "{foo}a", "{foo}b"):
        await recorder.send("c", "SET", key, "old")
    await recorder.send("a", "SET", "foo", "new")
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "MIGRATING", "{b}")
    await recorder.send("c", "CLUSTER", "SETSLOT", FOO, "IMPORTING", "{a}")
    await recorder.send("c", "CLUSTER", "SETSLOT", FOO, "MIGRATING", "0" * 40)
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "NODE", "0" * 40)
    address = lab.address("a")
    await recorder.send("c", "MIGRATE", *address, "foo", 0, 1000)
    lab.transcript[-1] = lab.transcript[-1].replace(str(address[0]), "a").replace(str(address[1]), "port")
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "IMPORTING", "{c}")
    await recorder.send("c", "CLUSTER", "SETSLOT", FOO, "MIGRATING", "{a}")
    await recorder.record_views("a", "b", "c")
    await recorder.send("c", "SET", "foo", "moves")
    await recorder.send("c", "GET", "{foo}none")
    await recorder.send("a", "GET", "foo")
    for step in (("c", "COUNTKEYSINSLOT", FOO), ("c", "GETKEYSINSLOT", FOO, 9), ("a", "COUNTKEYSINSLOT", FOO)):
        await recorder.send(step[0], "CLUSTER", *step[1:])
    server = lab.server("c")
    lab.transcript.append(f"MIGRATE: {await server.execute(*_migration(address, 'foo', '{foo}a'))}")
    lab.transcript.append(f"MIGRATE again: {await server.execute(*_migration(address, 'foo'))}")
    await recorder.send("c", "GET", "foo")
    await recorder.send("c", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    lab.transcript.append(f"MIGRATE the last: {await server.execute(*_migration(address, '{foo}b'))}")
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await lab.wait(SEEN)  # until c receives the change, it answers with `ASK`
    await recorder.send("c", "GET", "foo")
    await recorder.send("c", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await recorder.send("c", "GET", "foo")
    await recorder.send("a", "GET", "foo")
    await lab.wait(SEEN)
    await recorder.record_views("a", "b", "c", epochs=True)


def _migration(address: tuple[str, int], *keys: str) -> Command:
    return ("MIGRATE", *address, "", 0, 1000, "KEYS", *keys)


async def key_exists_on_both_sides(lab: Lab) -> None:
    recorder = await form(lab)
    await lab.server("c").execute("SET", "foo", "one")
    await lab.server("c").execute("SET", "{foo}a", "two")
    await lab.server("a").execute("CLUSTER", "SETSLOT", FOO, "IMPORTING", recorder.ids["c"])
    await lab.server("c").execute("CLUSTER", "SETSLOT", FOO, "MIGRATING", recorder.ids["a"])
    answers = await lab.server("a").pipe((("ASKING",), ("SET", "foo", "another")))
    lab.transcript.append(f"a takes foo: {answers}")
    command = _migration(lab.address("a"), "foo", "{foo}a")
    (answer,) = await lab.server("c").pipe((command,))
    lab.transcript.append(f"MIGRATE: {str(answer).partition(': ')[2]}")
    await recorder.send("c", "CLUSTER", "GETKEYSINSLOT", FOO, 9)
    await recorder.send("a", "CLUSTER", "GETKEYSINSLOT", FOO, 9)
    replaced = (*command[:6], "REPLACE", *command[6:])
    lab.transcript.append(f"MIGRATE REPLACE: {await lab.server('c').execute(*replaced)}")
    await recorder.send("c", "CLUSTER", "SETSLOT", FOO, "STABLE")
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "STABLE")
    await recorder.send("a", "CLUSTER", "COUNTKEYSINSLOT", FOO)
    await recorder.send("c", "GET", "foo")


async def early_setslot_node_strands_keys(lab: Lab) -> None:
    """Show why SETSLOT NODE must not follow a failed MIGRATE."""
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.server("a").execute("CLUSTER", "SETSLOT", FOO, "IMPORTING", recorder.ids["c"])
    await lab.server("c").execute("CLUSTER", "SETSLOT", FOO, "MIGRATING", recorder.ids["a"])
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await lab.wait(SEEN)
    await recorder.record_views("a", "c")
    await recorder.send("a", "GET", "foo")
    await recorder.send("c", "CLUSTER", "COUNTKEYSINSLOT", FOO)


async def slot_is_claimed_without_a_new_epoch(lab: Lab) -> None:
    """Show why SETSLOT NODE alone cannot assign a slot that is not importing."""
    recorder = await form(lab)
    await recorder.send("a", "CLUSTER", "SETSLOT", FOO, "NODE", "{a}")
    await recorder.record_views("a")
    await lab.wait(SEEN)
    await recorder.record_views("a", "b", "c", epochs=True)


async def replica_takes_over(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await recorder.record_replication("c", "f")
    await recorder.send("a", "CLUSTER", "FAILOVER")
    await recorder.send("f", "CLUSTER", "FAILOVER", "NOW")
    await recorder.send("f", "CLUSTER", "FAILOVER")
    await lab.wait(SEEN)
    await recorder.record_views(*"abcdef")
    await recorder.record_replication("c", "f")
    await recorder.send("c", "CLUSTER", "FAILOVER", "TAKEOVER")
    await lab.wait(SEEN)
    await recorder.record_views(*"abcdef")
    await recorder.send("f", "CLUSTER", "FORGET", "{c}")
    await recorder.send("f", "CLUSTER", "FORGET", "{f}")
    await recorder.send("f", "CLUSTER", "FORGET", "0" * 40)


async def primary_dies(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await lab.stop("c")
    await lab.wait(ELECTED)
    await recorder.record_views(*"abdef")
    await recorder.send("f", "GET", "foo")
    await recorder.start("c")
    await lab.wait(2 * SEEN)
    await recorder.record_views(*"abcdef")
    await recorder.record_replication("c", "f")


async def primary_loses_its_disk(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.stop("c")
    await lab.wipe("c")
    recorder.ids["x"] = recorder.ids.pop("c")
    await recorder.start("c")
    await lab.wait(ELECTED)
    await recorder.record_views(*"abdef")
    await recorder.record_views("c")
    await recorder.send("f", "CLUSTER", "FORGET", "{x}")
    await recorder.meet("f", "c")
    await lab.wait(SEEN)
    await recorder.record_views("c", "f")


async def all_addresses_change(lab: Lab) -> None:
    recorder = await form(lab, "def")
    for name in "abcdef":
        await lab.stop(name)
        await lab.move(name)
    await recorder.start(*"abcdef")
    await lab.wait(ELECTED)
    await recorder.record_views(*"abcdef")
    await recorder.meet("a", *"bcdef")
    await lab.wait(2 * SEEN)
    await recorder.record_agreement(*"abcdef")


async def one_address_changes(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.stop("d")
    await lab.move("d")
    await recorder.start("d")
    await lab.wait(2 * SEEN)
    await recorder.record_views(*"abcdef")
    await recorder.record_replication("d")


async def address_is_reused_by_a_foreign_node(lab: Lab) -> None:
    recorder = await form(lab)
    await lab.stop("b")
    await lab.wait(ELECTED)
    await recorder.start("x", x="b")
    await lab.wait(2 * SEEN)
    await recorder.record_views("a", "c", "x")


async def node_is_forgotten(lab: Lab) -> None:
    recorder = await form(lab, "de")
    await recorder.send("a", "CLUSTER", "FORGET", "{e}")
    await recorder.record_views("a")
    await lab.wait(SEEN)
    await recorder.record_views("a", "b")
    await recorder.meet("a", "e")
    await lab.wait(SEEN)
    await recorder.record_views("a")
    await recorder.send("b", "CLUSTER", "FORGET", "{c}")
    await lab.wait(SEEN)
    await recorder.record_views("b")


async def restarted_replica_is_not_elected(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.stop("f")
    await lab.stop("c")
    await recorder.start("f")
    await lab.wait(ELECTED)
    await recorder.record_views("a", "f")
    await recorder.send("f", "CLUSTER", "FAILOVER")
    await recorder.send("f", "CLUSTER", "FAILOVER", "FORCE")
    await lab.wait(SEEN)
    await recorder.record_views("a", "f")


async def config_epochs_collide(lab: Lab) -> None:
    recorder = Recorder(lab)
    await recorder.start("a", "b")
    for name in "ab":
        await lab.server(name).execute("CLUSTER", "SET-CONFIG-EPOCH", 7)
    await recorder.meet("a", "b")
    await lab.wait(SEEN)
    found = sorted(node.epoch for node in await recorder.nodes("a"))
    lab.transcript.append(f"epochs: {found}")


async def majority_is_lost(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await lab.stop("b")
    await lab.stop("c")
    await lab.wait(ELECTED)
    await recorder.record_views("a", "e", "f")
    await recorder.send("a", "SET", "bar", "x")
    await recorder.send("f", "CLUSTER", "FAILOVER", "TAKEOVER")
    await lab.wait(ELECTED)
    await recorder.record_views("a", "e", "f")
    await recorder.send("f", "GET", "foo")


async def primary_hangs(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.hang("c")
    await lab.wait(ELECTED)
    await recorder.record_views("a", "f")
    await lab.hang("c", hangs=False)
    await lab.wait(2 * SEEN)
    await recorder.record_views("a", "c", "f")


async def node_is_reset(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await recorder.send("c", "CLUSTER", "RESET", "SOFT")
    await recorder.send("f", "CLUSTER", "RESET", "SOFT")
    await recorder.record_views("f", epochs=True)
    await recorder.record_replication("f")
    await lab.wait(SEEN)
    await recorder.record_views("a", "f")


async def primary_gives_all_slots_away(lab: Lab) -> None:
    recorder = await form(lab, "def")
    await recorder.start("g")
    await recorder.meet("a", "g")
    await lab.wait(SEEN)
    for source, target in (("a", "b"), ("c", "g")):
        slots = Slots.parse(THIRDS[source])
        for at, other, what in ((target, source, "IMPORTING"), (source, target, "MIGRATING")):
            await lab.server(at).pipe([("CLUSTER", "SETSLOT", slot, what, recorder.ids[other]) for slot in slots])
        for at in (target, source):
            await lab.server(at).pipe([("CLUSTER", "SETSLOT", slot, "NODE", recorder.ids[target]) for slot in slots])
        await lab.wait(2 * SEEN)
        await recorder.record_views(*"abcdefg")


async def replica_copies_any_server_at_the_address_of_its_primary(lab: Lab) -> None:
    """Show that replication compares no ids, and that a replica keeps its keys while it waits for a transfer."""
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "one")
    await lab.wait(1)
    await recorder.record_replication("f")
    for name in "abdef":
        await lab.server(name).execute("CONFIG", "SET", "cluster-node-timeout", 60000)
    await lab.hang("f")
    await lab.stop("c")
    await lab.wipe("c")
    await recorder.start("c")
    for setting in (("cluster-node-timeout", 60000), ("repl-diskless-sync", "yes"), ("repl-diskless-sync-delay", 3600)):
        await lab.server("c").execute("CONFIG", "SET", *setting)
    await lab.hang("f", hangs=False)
    await lab.wait(2 * SEEN)
    await recorder.record_replication("f")
    await recorder.send("c", "CONFIG", "SET", "repl-diskless-sync-delay", 0)
    await lab.wait(2 * SEEN)
    await recorder.record_replication("f")


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        three_nodes_form_a_cluster,
        slot_is_migrated,
        key_exists_on_both_sides,
        early_setslot_node_strands_keys,
        slot_is_claimed_without_a_new_epoch,
        replica_takes_over,
        primary_dies,
        primary_loses_its_disk,
        all_addresses_change,
        one_address_changes,
        address_is_reused_by_a_foreign_node,
        node_is_forgotten,
        restarted_replica_is_not_elected,
        config_epochs_collide,
        majority_is_lost,
        primary_hangs,
        node_is_reset,
        primary_gives_all_slots_away,
        replica_copies_any_server_at_the_address_of_its_primary,
    )
}
