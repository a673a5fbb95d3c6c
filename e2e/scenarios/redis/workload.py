"""Keys that clients write and read: each has one writer, which sends the next write of the key's kind. Pure.

| kind | writes | a read returns |
|---|---|---|
| plain | SET | its number |
| register | SET, SET, DEL, … | its number |
| lasting | SET, EXPIRE with a long time | 1, or 2 with the time to live |
| fleeting | SET, PEXPIRE with a short time | its number |
| counter | INCR, from 1,000,000 if the key is old | the number |
| set | SADD, and DEL now and then | the members |
| list | LPUSH | the elements, and how often each is there |
| hash | HSET | the fields with their values |
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from redis.crc import key_slot

from e2e.scenarios.redis.consistency import Operation, Read, Write

OLD_COUNTER = 1_000_000
"""Lowest first value of a counter that was written before the clients start."""

IDLE_SHARE = 0.25
"""Share of the old keys that are only read."""

LONG_TTL_SECONDS = 100_000
SHORT_TTL_SECONDS = 2

KEYS_PER_KIND = 2
"""Number of new keys of each kind that a client writes in turn."""

WRITES_PER_KEY = 200
"""Number of writes after which a client continues with a new key."""

WRITES_PER_PLAIN_KEY = 3
"""The same for plain keys, so that the writes spread over all slots."""

ELEMENTS_PER_SET = 20
"""Number of writes to a set until it is deleted."""

_VALUE_AND_TTL = "return {redis.call('GET', KEYS[1]), redis.call('TTL', KEYS[1])}"

Command = tuple[str | int, ...]


class Kind(Enum):
    """How a key is written and read."""

    PLAIN = "plain"
    REGISTER = "register"
    LASTING = "lasting"
    FLEETING = "fleeting"
    COUNTER = "counter"
    SET = "set"
    LIST = "list"
    HASH = "hash"


MIX = (Kind.REGISTER, Kind.COUNTER, Kind.SET, Kind.LASTING, Kind.LIST, Kind.HASH, Kind.FLEETING)
"""Kinds that clients write by default."""

OLD = (Kind.REGISTER, Kind.COUNTER, Kind.SET, Kind.LASTING, Kind.LIST, Kind.HASH)
"""Kinds that are written before the clients start."""

_ABANDONED = frozenset({Kind.PLAIN, Kind.REGISTER, Kind.LASTING, Kind.FLEETING, Kind.SET})
"""Kinds whose keys are abandoned after an unanswered write, which may take effect at any time."""


@dataclass
class Key:
    """Key with a single writer.

    Attributes:
        writer: number of the client that writes it.
        number: number of its last answered write.
        used: whether clients write no more to it.
    """

    name: str
    kind: Kind
    writer: int = 0
    number: int = 0
    used: bool = False

    def seed(self, size: int) -> Command:
        """Return the command that creates an old key."""
        match self.kind:
            case Kind.COUNTER:
                return ("SET", self.name, OLD_COUNTER + int(key_slot(self.name.encode())))
            case Kind.SET:
                return ("SADD", self.name, "old-1", "old-2", "old-3")
            case Kind.LIST:
                return ("RPUSH", self.name, "old-1", "old-2", "old-3")
            case Kind.HASH:
                return ("HSET", self.name, "old-1", "1", "old-2", "2", "old-3", "3")
            case _:
                return ("SET", self.name, _padded(1, size))

    def next(self, size: int) -> Command:
        """Return the command of the next write."""
        number = self.number + 1
        match self.kind:
            case Kind.COUNTER:
                return ("INCR", self.name)
            case Kind.SET if number % ELEMENTS_PER_SET:
                return ("SADD", self.name, str(number))
            case Kind.LIST:
                return ("LPUSH", self.name, str(number))
            case Kind.HASH:
                return ("HSET", self.name, str(number), str(number))
            case Kind.LASTING if number == 2:
                return ("EXPIRE", self.name, LONG_TTL_SECONDS)
            case Kind.FLEETING if number == 2:
                return ("PEXPIRE", self.name, SHORT_TTL_SECONDS * 1000)
            case Kind.SET:
                return ("DEL", self.name)
            case Kind.REGISTER if number % 3 == 0:
                return ("DEL", self.name)
            case _:
                return ("SET", self.name, _padded(number, size))

    def wrote(self, command: Command, called: float, returned: float | None, reply: Any) -> list[Operation]:
        """Return the operations that a command and its reply amount to, and advance to the next write."""
        operations: list[Operation] = []
        if returned is not None and command[0] in ("EXPIRE", "PEXPIRE") and not reply:
            operations.append(Read(self.name, 0, called, returned))  # a missing key has no expiry
        else:
            operations.append(write_of(command, self.number + 1, called, returned))
        if returned is None:
            self.used = self.used or self.kind in _ABANDONED
            return operations
        if command[0] == "INCR":
            operations.append(Read(self.name, {"": int(reply)}, called, returned))
        self.number += 1
        ended = self.kind in (Kind.LASTING, Kind.FLEETING) and self.number == 2
        most = WRITES_PER_PLAIN_KEY if self.kind is Kind.PLAIN else WRITES_PER_KEY
        self.used = self.used or ended or self.number >= most
        return operations

    def read(self) -> Command:
        """Return the command that reads the key."""
        match self.kind:
            case Kind.LASTING:
                return ("EVAL", _VALUE_AND_TTL, 1, self.name)
            case Kind.SET:
                return ("SMEMBERS", self.name)
            case Kind.LIST:
                return ("LRANGE", self.name, 0, -1)
            case Kind.HASH:
                return ("HGETALL", self.name)
            case _:
                return ("GET", self.name)

    def found(self, reply: Any) -> int | Mapping[str, int]:
        """Parse a reply to `read`."""
        match self.kind:
            case Kind.COUNTER:
                return {} if reply is None else {"": int(reply)}
            case Kind.SET | Kind.LIST:
                return Counter(reply)
            case Kind.HASH:
                return Counter(f"{name}={value}" for name, value in reply.items())
            case Kind.LASTING:
                return _lasting(*reply)
            case _:
                return _number(reply)


def write_of(command: Command, number: int, called: float, returned: float | None) -> Write:
    """Return the write that a command makes."""
    name, key, *rest = command
    adds: Mapping[str, int] | None = None
    match name:
        case "INCR":
            adds = {"": 1}
        case "SET" if isinstance(rest[0], int):
            adds = {"": rest[0]}
        case "SADD" | "LPUSH" | "RPUSH":
            adds = Counter(map(str, rest))
        case "HSET":
            adds = Counter(f"{field}={value}" for field, value in zip(rest[::2], rest[1::2], strict=True))
    delay = SHORT_TTL_SECONDS if name == "PEXPIRE" else 0.0
    deletes = name in ("DEL", "PEXPIRE")
    return Write(str(key), number, called, returned, adds, name in ("SADD", "HSET"), deletes, delay)


@dataclass
class Workload:
    """Keys of all clients, and which of them is written or read next.

    Attributes:
        clients: number of clients.
        prefix: prefix of all keys.
        tags: hash tags that are put in front of the prefix, in turn; empty to spread the keys over all slots.
        kinds: kinds that clients write.
        size: minimum size of a value, in bytes.
        focus: slots whose old keys the clients prefer; empty for no preference.
    """

    clients: int
    prefix: str
    tags: Sequence[str] = ()
    kinds: Sequence[Kind] = MIX
    size: int = 20
    focus: frozenset[int] = frozenset()
    keys: dict[str, Key] = field(default_factory=dict)
    _own: list[dict[Kind, list[Key]]] = field(default_factory=list)
    _old: list[Key] = field(default_factory=list)
    _old_by_slot: dict[int, list[Key]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._own = [
            {kind: [self._new(kind, client) for _ in range(KEYS_PER_KIND)] for kind in self.kinds}
            for client in range(self.clients)
        ]

    def seeds(self, count: int) -> Iterator[Key]:
        """Create old keys; some are never written again."""
        for number in range(count):
            key = self._new(OLD[number % len(OLD)], number // len(OLD) % self.clients)
            key.used = random.random() < IDLE_SHARE
            self._old.append(key)
            self._old_by_slot[int(key_slot(key.name.encode()))].append(key)
            yield key

    def to_write(self, client: int, turn: int) -> Key:
        """Return the key that a client writes next: an old one, or one of its own."""
        if turn % 2 and (key := self._some_old(client)) is not None:
            return key
        kind = self.kinds[turn // 2 % len(self.kinds)]
        own = self._own[client][kind]
        index = random.randrange(len(own))
        if own[index].used:
            own[index] = self._new(kind, client)
        return own[index]

    def to_read(self) -> Key:
        """Return a key to read, of any client."""
        if self._old and random.random() < 0.5:
            return random.choice(self._focused() or self._old)
        of_client = random.choice(self._own)
        return random.choice(of_client[random.choice(self.kinds)])

    def _some_old(self, client: int) -> Key | None:
        """Return an old key that this client writes; None if it finds none quickly."""
        candidates = self._focused() or self._old
        tried = random.choices(candidates, k=5 * self.clients) if candidates else []
        return next((key for key in tried if key.writer == client and not key.used), None)

    def _focused(self) -> list[Key]:
        return [key for slot in self.focus for key in self._old_by_slot.get(slot, ())]

    def _new(self, kind: Kind, writer: int) -> Key:
        number = len(self.keys)
        tag = self.tags[number % len(self.tags)] if self.tags else ""
        key = Key(f"{tag}{self.prefix}{kind.value}-{number}", kind, writer)
        self.keys[key.name] = key
        return key


def _padded(number: int, size: int) -> str:
    return f"{number}:".ljust(size, ".")


def _number(value: str | None) -> int:
    return int(value.partition(":")[0]) if value else 0


def _lasting(value: str | None, ttl: int) -> int:
    """Return 1 for a value, and 2 for one with the time to live that the client set; -1 for another one."""
    if value is None or ttl == -1:
        return _number(value)
    return 2 if LONG_TTL_SECONDS - 3600 < ttl <= LONG_TTL_SECONDS else -1
