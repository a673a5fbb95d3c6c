"""Reads what servers say of themselves and of each other; pure.

Source: https://redis.io/docs/latest/commands/cluster-nodes/, …/cluster-info/, …/info/; Valkey has the same pages.

Every reader raises one of `MALFORMED` where the answer is not of a server that is in a cluster.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import cached_property
from typing import Any

from operators.redis.slots.hash_slots import Slots

MALFORMED = (LookupError, TypeError, ValueError, AttributeError)

_OPEN = re.compile(r"\[(\d+)-([<>])-([0-9a-f]+)\]")


@dataclass(frozen=True, slots=True)
class Node:
    """A line of CLUSTER NODES: what one node knows of another, or of itself.

    Attributes:
        id: for ever; 40 hexadecimal digits.
        address: IP address by which it was last met; empty if nobody knows.
        port: for clients.
        flags: as the server writes them: myself, master, slave, fail?, fail, handshake, noaddr, nofailover.
        master: id of the node that it replicates; empty for a master.
        epoch: its configuration's; among claims to a slot, the highest one's holds.
        linked: whether the node that says so has a connection to it.
        slots: that it serves.
        migrating: slots that are on their way from it, and to whom; a node tells this of itself alone.
        importing: slots that are on their way to it, and from whom; likewise.
        host: the name that it announces, if any (from Redis 7.0 on).
    """

    id: str
    address: str = ""
    port: int = 0
    flags: frozenset[str] = frozenset()
    primary: str = ""
    epoch: int = 0
    linked: bool = True
    slots: Slots = field(default_factory=Slots)
    migrating: Mapping[int, str] = field(default_factory=dict)
    importing: Mapping[int, str] = field(default_factory=dict)
    host: str = ""

    @property
    def is_me(self) -> bool:
        """Whether it is the node that says so."""
        return "myself" in self.flags

    @property
    def is_primary(self) -> bool:
        return "master" in self.flags

    @property
    def is_replica(self) -> bool:
        return "slave" in self.flags

    @property
    def failing(self) -> bool:
        """Whether a majority of masters has agreed that it does not answer."""
        return "fail" in self.flags

    @property
    def suspected(self) -> bool:
        """Whether it does not answer the node that says so."""
        return "fail?" in self.flags

    @property
    def handshake(self) -> bool:
        """Whether it is being met: the id is made up until it answers."""
        return "handshake" in self.flags

    @property
    def noaddr(self) -> bool:
        return "noaddr" in self.flags


@dataclass(frozen=True, slots=True)
class Follower:
    """A replica as its master knows it.

    Attributes:
        online: whether it has got everything once, and follows since.
        offset: up to where it has confirmed.
    """

    address: str
    port: int
    online: bool
    offset: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What INFO tells.

    Attributes:
        engine: redis or valkey.
        version: such as 7.0.15.
        run_id: another one after each start of the process.
        keys: in all databases.
        memory: bytes in use.
        max_memory: bytes; 0 for no bound.
        loading: whether it reads its data, and serves nothing meanwhile.
        link_up: whether a replica follows its master; true of a master.
        syncing: whether a replica gets everything anew.
        offset: of replication: what a master has sent, and what a replica has applied.
        replicas: that a master sees.
        evicts: whether it makes room by itself where its memory is full (maxmemory-policy).
    """

    engine: str = "redis"
    version: str = ""
    run_id: str = ""
    keys: int = 0
    memory: int = 0
    max_memory: int = 0
    loading: bool = False
    link_up: bool = True
    syncing: bool = False
    offset: int = 0
    replicas: tuple[Follower, ...] = ()
    evicts: bool = False


@dataclass(frozen=True)
class NodeReport(Facts):
    """What one node reports at one moment.

    Attributes:
        nodes: all that it knows, itself included.
        state_ok: whether it takes commands (cluster_state); it need not know of all slots for that.
        epoch: the highest that it has seen (cluster_current_epoch).
        gives: SHA-256 of the password that it gives its master, in hexadecimal; empty if it gives none.
        takes: of those that the user `default` enters with, in order; none: nobody is asked for one.
    """

    id: str
    nodes: tuple[Node, ...] = ()
    state_ok: bool = True
    epoch: int = 0
    gives: str = field(default="", repr=False)
    takes: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def me(self) -> Node:
        """The node itself."""
        return next(node for node in self.nodes if node.is_me)

    @cached_property
    def _by_id(self) -> Mapping[str, Node]:
        return {node.id: node for node in reversed(self.nodes)}

    def node(self, node_id: str) -> Node | None:
        """What it knows of another node; None if it does not know it."""
        return self._by_id.get(node_id)


def report_of(information: str, cluster: str, nodes: str, given: Sequence[str], user: Sequence[Any]) -> NodeReport:
    """Of the answers to INFO, CLUSTER INFO, CLUSTER NODES, CONFIG GET masterauth and ACL GETUSER default."""
    facts, parsed, state = parse_facts(information), parse_nodes(nodes), fields(cluster)
    (me,) = (node for node in parsed if node.is_me)
    return NodeReport(
        me.id,
        nodes=parsed,
        state_ok=state["cluster_state"] == "ok",
        epoch=int(state["cluster_current_epoch"]),
        gives=digest(given[1]),
        takes=_passwords(user),
        **{each.name: getattr(facts, each.name) for each in fields_of(Facts)},
    )


def digest(password: str) -> str:
    """SHA-256 of a password in hexadecimal, as the server keeps it; empty for none."""
    return hashlib.sha256(password.encode()).hexdigest() if password else ""


def mapping(answer: Sequence[Any]) -> dict[str, Any]:
    """Of a map, which RESP2 writes as names and values in turn."""
    return dict(zip(answer[::2], answer[1::2], strict=True))


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Of CLUSTER NODES, in its order."""
    return tuple(_node(line.split(" ")) for line in text.splitlines() if line)


def parse_facts(text: str) -> Facts:
    """Of INFO."""
    found = fields(text)
    valkey = found.get("server_name") == "valkey" or "valkey_version" in found
    is_replica = found["role"] == "slave"
    return Facts(
        engine="valkey" if valkey else "redis",
        version=found["valkey_version" if valkey else "redis_version"],
        run_id=found["run_id"],
        keys=sum(int(_pairs(value)["keys"]) for name, value in found.items() if re.fullmatch(r"db\d+", name)),
        memory=int(found["used_memory"]),
        max_memory=int(found["maxmemory"]),
        loading="1" in (found["loading"], found.get("async_loading")),
        link_up=not is_replica or found["master_link_status"] == "up",
        syncing=found.get("master_sync_in_progress") == "1",
        offset=int(found["slave_repl_offset" if is_replica else "master_repl_offset"]),
        replicas=tuple(_follower(value) for name, value in found.items() if re.fullmatch(r"slave\d+", name)),
        evicts=found.get("maxmemory_policy", "noeviction") != "noeviction",
    )


def fields(text: str) -> dict[str, str]:
    """Of INFO and CLUSTER INFO: `name:value` a line."""
    parted = (line.strip().partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in parted if colon}


def _passwords(user: Sequence[Any]) -> tuple[str, ...]:
    """SHA-256 of each that a user enters with, of ACL GETUSER, in order; none: nobody is asked for one."""
    found = mapping(user)
    return () if "nopass" in found["flags"] else tuple(sorted(found["passwords"]))


def _node(words: list[str]) -> Node:
    node_id, instance, flags, primary, _, _, epoch, link, *rest = words
    address, port, host = _place(instance)
    opened = [_OPEN.fullmatch(word) for word in rest]
    arrows = [(int(found[1]), found[2], found[3]) for found in opened if found]
    return Node(
        id=node_id,
        address=address,
        port=port,
        flags=frozenset(flags.split(",")) - {"noflags"},
        primary="" if primary == "-" else primary,
        epoch=int(epoch),
        linked=link == "connected",
        slots=Slots.parse(" ".join(word for word in rest if not word.startswith("["))),
        migrating={slot: other for slot, arrow, other in arrows if arrow == ">"},
        importing={slot: other for slot, arrow, other in arrows if arrow == "<"},
        host=host,
    )


def _place(text: str) -> tuple[str, int, str]:
    """Of `address:port@bus,host,name=value…`; what is not known is empty or 0."""
    where, _, more = text.partition(",")
    address, _, port = where.partition("@")[0].rpartition(":")
    host = more.partition(",")[0]
    return address, int(port or 0), "" if host == "?" or "=" in host else host


def _pairs(text: str) -> dict[str, str]:
    """Of `name=value,name=value`."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _follower(text: str) -> Follower:
    found = _pairs(text)
    return Follower(found["ip"], int(found["port"]), found["state"] == "online", int(found["offset"]))
