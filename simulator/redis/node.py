"""State of a `SimulatedRedis` node on its disk: id, cluster view and keys.

Slots are masks: slot N is bit N.

Source: cluster.h and clusterGenNodeDescription in cluster.c of Redis 7.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache

from redis.crc import key_slot

from operators.redis.client.server import BUS_PORT, PORT
from operators.redis.slots.hash_slots import SLOTS, Slots
from simulator.redis.client import Entry

ALL = (1 << SLOTS) - 1

slot_of = cache(key_slot)

_bit = cache(lambda slot: 1 << slot)

HANDSHAKE, NOADDR, SUSPECTED, FAILED = "handshake", "noaddr", "fail?", "fail"

UNKNOWN = "?"
"""Primary of a replica that is known from gossip only."""


def database_of(key: bytes) -> int:
    """Return the database of a key: one in a database above 0 is simulated with a prefix, which clients do not see."""
    return key[1] if key[:1] == b"\0" else 0


def fake_id(*parts: object) -> str:
    """Return an id of 40 hexadecimal digits, the same for the same parts."""
    return hashlib.sha1(repr(parts).encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class Known:
    """Entry of a node's cluster view, its own included.

    Attributes:
        address: empty if unknown.
        primary: id of the primary; empty for a primary.
        epoch: config epoch.
        slots: mask of owned slots.
        flags: any of HANDSHAKE, NOADDR, SUSPECTED, FAILED.
        last_response: time of the last answer, or of the first attempt.
        failed: time at which FAILED was set.
        reports: time of the last failure report, by the reporting primary.
        bus: port of the cluster bus.
        last_data: time of its last message of any kind.
        last_message: time of its last message, other than an answer: without any, there is no link from it.
        meets: whether messages to it are MEET until it answers, which makes the receiver add the sender.
        offset: last known replication offset.
    """

    id: str
    address: str
    port: int = PORT
    bus: int = BUS_PORT
    primary: str = ""
    epoch: int = 0
    slots: int = field(default=0, repr=False)
    flags: set[str] = field(default_factory=set)
    last_response: float = 0.0
    last_message: float = 0.0
    last_data: float = 0.0
    failed: float = 0.0
    reports: dict[str, float] = field(default_factory=dict)
    meets: bool = False
    offset: int = 0

    @property
    def fails(self) -> bool:
        return FAILED in self.flags

    @property
    def unhealthy(self) -> bool:
        """Whether the node is marked as failed or suspected."""
        return bool(self.flags) and (FAILED in self.flags or SUSPECTED in self.flags)

    @property
    def in_handshake(self) -> bool:
        return HANDSHAKE in self.flags

    @property
    def votes(self) -> bool:
        """Whether the node is a primary that owns slots and so votes."""
        return not self.primary and bool(self.slots)


@dataclass(slots=True)
class Node:
    """A node: nodes.conf and the data set.

    Attributes:
        name: name of the claim or pod, for messages.
        id: empty until a server has started on the disk.
        epoch: newest known epoch (currentEpoch).
        voted: epoch of the last vote (lastVoteEpoch).
        known: cluster view by node id, the node itself included.
        migrating, importing: open slots, with the id of the other node.
        banned: time until which a forgotten node is not added again, by id.
        keys: data set, of all databases (`database_of`); `saved` is its last snapshot.
        saved_at: replication id and offset of that snapshot; empty without one.
        logged: whether the disk has an append-only file with the data set.
        covered: whether the snapshot may replace that file: it was written since the last process started with the
            file, or the server has had save points since.
        history: replication id up to `offset`; `former` is the one before `forked_at`.
        backlog: offset from which on it has the writes for a partial resync: none from before its process started.
        cluster: name of the StatefulSet.
        family: id shared by all nodes that were ever meant to form one cluster.
    """

    name: str
    id: str = ""
    epoch: int = 0
    voted: int = 0
    known: dict[str, Known] = field(default_factory=dict)
    migrating: dict[int, str] = field(default_factory=dict)
    importing: dict[int, str] = field(default_factory=dict)
    banned: dict[str, float] = field(default_factory=dict)
    keys: dict[bytes, Entry] = field(default_factory=dict)
    saved: dict[bytes, Entry] = field(default_factory=dict)
    saved_at: tuple[str, int] = ("", 0)
    logged: bool = False
    covered: bool = False
    history: str = ""
    offset: int = 0
    former: str = ""
    forked_at: int = 0
    backlog: int = 0
    cluster: str = ""
    family: str = ""
    made: int = 0

    def unique(self, what: str) -> str:
        """Return a new id."""
        self.made += 1
        return fake_id(what, self.name, self.made, self.family)

    @property
    def me(self) -> Known:
        return self.known[self.id]

    @property
    def lead(self) -> Known | None:
        """Primary of a replica; None for a primary, or if the primary is unknown."""
        return self.known.get(self.me.primary) if self.me.primary else None

    @property
    def others(self) -> list[Known]:
        return [known for known in self.known.values() if known.id != self.id]

    @property
    def size(self) -> int:
        """Number of primaries that own slots; their majority decides."""
        return sum(known.votes for known in self.known.values())

    @property
    def assigned(self) -> int:
        """Mask of slots that have an owner."""
        found = 0
        for known in self.known.values():
            found |= known.slots
        return found

    def owner(self, slot: int) -> Known | None:
        bit = _bit(slot)
        for known in self.known.values():
            if known.slots & bit:
                return known
        return None

    def give(self, slot: int, to: Known | None) -> None:
        """Set the owner of a slot, or remove it."""
        owner = self.owner(slot)
        if owner is not None:
            owner.slots &= ~(1 << slot)
        if to is not None:
            to.slots |= 1 << slot

    def in_slot(self, slot: int, database: int | None = None) -> list[bytes]:
        """Return the keys of a slot: in one database, or in all."""
        return [key for key in self.keys if slot_of(key) == slot and database in (None, database_of(key))]

    def drop(self, slots: int) -> None:
        """Delete the keys of slots."""
        self.keys = {key: value for key, value in self.keys.items() if not slots >> slot_of(key) & 1}

    def mark_stray_keys(self, *, deletes: bool) -> None:
        """Mark slots of other nodes as importing if a starting primary has keys of them; Valkey 8 deletes the keys.

        Source: verifyClusterConfigWithData in cluster.c of Redis 7.0.
        """
        for slot in {slot_of(key) for key in self.keys} if not self.me.primary else ():
            owner = self.owner(slot)
            if owner is None:
                self.me.slots |= 1 << slot
            elif owner.id != self.id and slot not in self.importing:
                if deletes:
                    self.drop(1 << slot)
                else:
                    self.importing[slot] = owner.id

    def save(self) -> None:
        """Write a snapshot (SAVE)."""
        self.saved, self.saved_at, self.covered = dict(self.keys), (self.history, self.offset), True

    def fork_history(self, history: str) -> None:
        """Begin a new replication history; nodes with the former one up to here can resync partially."""
        self.former, self.forked_at, self.history = self.history, self.offset, history

    def forget(self, node_id: str) -> None:
        del self.known[node_id]
        for known in self.known.values():
            known.reports.pop(node_id, None)
        self.migrating = {slot: to for slot, to in self.migrating.items() if to != node_id}
        self.importing = {slot: source for slot, source in self.importing.items() if source != node_id}

    def cluster_nodes(self) -> str:
        """Return the answer to CLUSTER NODES."""
        return "".join(f"{self._line(known)}\n" for known in self.known.values())

    def _line(self, known: Known) -> str:
        mine = known.id == self.id
        flags = ["myself"] * mine
        flags += [] if known.in_handshake else ["slave" if known.primary else "master"]
        flags += [flag for flag in (SUSPECTED, FAILED, HANDSHAKE, NOADDR) if flag in known.flags]
        port, bus = (known.port, known.bus) if known.address else (0, 0)
        linked = mine or not known.flags & {SUSPECTED, FAILED, HANDSHAKE, NOADDR}
        words = [
            known.id,
            f"{known.address}:{port}@{bus}",
            ",".join(flags),
            known.primary if known.primary in self.known else "-",
            "0",
            str(int(known.last_response * 1000)),
            str((self.known.get(known.primary) or known).epoch),
            "connected" if linked else "disconnected",
            *_ranges(known.slots),
        ]
        if mine:
            words += [f"[{slot}->-{to}]" for slot, to in sorted(self.migrating.items())]
            words += [f"[{slot}-<-{source}]" for slot, source in sorted(self.importing.items())]
        return " ".join(words)


@lru_cache(maxsize=1024)  # slots seldom change, and every node describes every other one each time
def _ranges(mask: int) -> tuple[str, ...]:
    """Return the ranges of slots as CLUSTER NODES lists them."""
    return tuple(str(Slots(mask)).split())


def bits(mask: int) -> Iterator[int]:
    yield from Slots(mask)
