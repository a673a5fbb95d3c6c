"""What a node of `FakeRedis` has on its disk: its id, the cluster as it knows it, its keys.

Slots are masks: slot N is bit N.

Source: cluster.h and clusterGenNodeDescription in cluster.c of Redis 7.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from operators.redis.client.server import BUS_PORT, PORT
from operators.redis.slots.hash_slots import SLOTS, Slots, key_slot

ALL = (1 << SLOTS) - 1

slot_of = cache(key_slot)

HANDSHAKE, NOADDR, SUSPECTED, FAILED = "handshake", "noaddr", "fail?", "fail"

UNKNOWN = "?"
"""The master of a replica of which only gossip told."""


def made_up(*parts: object) -> str:
    """An id of 40 hexadecimal digits, the same for the same parts."""
    return hashlib.sha1(repr(parts).encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class Known:
    """What a node knows of one, itself among them.

    Attributes:
        address: empty if it has lost it.
        master: id of its master; empty for a master.
        epoch: its config epoch.
        slots: what it owns.
        flags: any of HANDSHAKE, NOADDR, SUSPECTED, FAILED.
        heard: when it last answered, or was first asked.
        failed: when FAILED was set.
        reports: when which master last said that it fails.
        meets: whether a handshake begins with MEET, which makes the other one answer in kind.
        offset: of its replication, as it said last.
    """

    id: str
    address: str
    port: int = PORT
    primary: str = ""
    epoch: int = 0
    slots: int = field(default=0, repr=False)
    flags: set[str] = field(default_factory=set)
    heard: float = 0.0
    failed: float = 0.0
    reports: dict[str, float] = field(default_factory=dict)
    meets: bool = False
    offset: int = 0

    @property
    def fails(self) -> bool:
        return FAILED in self.flags

    @property
    def doubted(self) -> bool:
        """Whether it fails, or may."""
        return bool(self.flags & {FAILED, SUSPECTED})

    @property
    def shakes(self) -> bool:
        return HANDSHAKE in self.flags

    @property
    def votes(self) -> bool:
        """Whether it is one of those whose majority decides."""
        return not self.primary and bool(self.slots)


@dataclass(slots=True)
class Node:
    """One node: nodes.conf and the data set.

    Attributes:
        place: of which claim or pod it is, for people.
        id: empty until a server has begun on it.
        epoch: the newest that it has heard of (currentEpoch).
        voted: the epoch in which it last gave its vote.
        known: everybody, by id, itself among them.
        migrating, importing: open slots, and the other node's id.
        banned: until when a forgotten node is not taken in again, by id.
        keys: the data set.
        history: which writes it holds (replication id), up to `offset`; `former` up to `turned`.
        cluster: the name of the StatefulSet that it is of.
        family: an id that all have in common who were ever meant to be one cluster.
    """

    place: str
    id: str = ""
    epoch: int = 0
    voted: int = 0
    known: dict[str, Known] = field(default_factory=dict)
    migrating: dict[int, str] = field(default_factory=dict)
    importing: dict[int, str] = field(default_factory=dict)
    banned: dict[str, float] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)
    history: str = ""
    offset: int = 0
    former: str = ""
    turned: int = 0
    cluster: str = ""
    family: str = ""
    made: int = 0

    def unique(self, what: str) -> str:
        """An id that was never given before."""
        self.made += 1
        return made_up(what, self.place, self.made, self.family)

    @property
    def me(self) -> Known:
        return self.known[self.id]

    @property
    def lead(self) -> Known | None:
        """Its master; None for a master, and where it does not know the one."""
        return self.known.get(self.me.primary) if self.me.primary else None

    @property
    def others(self) -> list[Known]:
        return [known for known in self.known.values() if known.id != self.id]

    @property
    def size(self) -> int:
        """Masters that own slots: a majority of them decides."""
        return sum(known.votes for known in self.known.values())

    @property
    def assigned(self) -> int:
        """Slots that somebody owns."""
        found = 0
        for known in self.known.values():
            found |= known.slots
        return found

    def owner(self, slot: int) -> Known | None:
        return next((known for known in self.known.values() if known.slots >> slot & 1), None)

    def give(self, slot: int, to: Known | None) -> None:
        """A slot has another owner, or none."""
        owner = self.owner(slot)
        if owner is not None:
            owner.slots &= ~(1 << slot)
        if to is not None:
            to.slots |= 1 << slot

    def in_slot(self, slot: int) -> list[bytes]:
        return [key for key in self.keys if slot_of(key) == slot]

    def drop(self, slots: int) -> None:
        """Delete the keys of slots."""
        self.keys = {key: value for key, value in self.keys.items() if not slots >> slot_of(key) & 1}

    def turn(self, history: str) -> None:
        """From now on it writes a history of its own: others that held the former one up to here can follow."""
        self.former, self.turned, self.history = self.history, self.offset, history

    def forget(self, node_id: str) -> None:
        del self.known[node_id]
        for known in self.known.values():
            known.reports.pop(node_id, None)
        self.migrating = {slot: to for slot, to in self.migrating.items() if to != node_id}
        self.importing = {slot: source for slot, source in self.importing.items() if source != node_id}

    def told(self) -> str:
        """What CLUSTER NODES says."""
        return "".join(f"{self._line(known)}\n" for known in self.known.values())

    def _line(self, known: Known) -> str:
        mine = known.id == self.id
        flags = ["myself"] * mine
        flags += [] if known.shakes else ["slave" if known.primary else "master"]
        flags += [flag for flag in (SUSPECTED, FAILED, HANDSHAKE, NOADDR) if flag in known.flags]
        port, bus = (known.port, known.port + BUS_PORT - PORT) if known.address else (0, 0)
        linked = mine or not known.flags & {SUSPECTED, FAILED, HANDSHAKE, NOADDR}
        words = [
            known.id,
            f"{known.address}:{port}@{bus}",
            ",".join(flags),
            known.primary if known.primary in self.known else "-",
            "0",
            str(int(known.heard * 1000)),
            str((self.known.get(known.primary) or known).epoch),
            "connected" if linked else "disconnected",
            *str(Slots(known.slots)).split(),
        ]
        if mine:
            words += [f"[{slot}->-{to}]" for slot, to in sorted(self.migrating.items())]
            words += [f"[{slot}-<-{source}]" for slot, source in sorted(self.importing.items())]
        return " ".join(words)


def bits(mask: int) -> Iterator[int]:
    yield from Slots(mask)
