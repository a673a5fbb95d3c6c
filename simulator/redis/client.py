"""A client of `SimulatedRedis` that writes all the time, mostly with commands that are not idempotent.

Only an identity shows that a value is the right one: each write makes a new `Entry` with its own number. So a counter
that a client created again (1 instead of 1,000,001) is another entry, as a list or set with one element is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from operators.redis.client.errors import Refused

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis

KEYS = tuple(f"key:{number}".encode() for number in range(20)) + tuple(
    f"{{hot}}:{number}".encode() for number in range(3)
)
"""Keys that the client writes all the time; the last ones share a slot."""

OLD_KEYS = tuple(f"old:{number}".encode() for number in range(36))
"""Keys with much content that were written long ago. A third is written now and then, a third is never written again,
and a third is deleted one after the other."""

OLD_SIZE = 1_000_000
"""Value of an old counter; number of elements of an old set, list or hash."""

OPERATIONS = ("INCR", "SADD", "LPUSH", "HSET", "SET", "DEL", "EXPIRE")
"""Command of a client for a key, by the index of the key. Keys with DEL and EXPIRE are set again in between."""

TIME_TO_LIVE = 30.0
"""Seconds until a key expires after EXPIRE."""

KEYS_PER_ROUND = 8
"""Keys of `KEYS` that the client writes at a time."""

ROUNDS_PER_DELETION = 10
"""Rounds after which the client deletes another old key."""

HOPS = 6
"""Redirections that the client follows."""


class Entry(NamedTuple):
    """Value of a key. It never changes, so that replicas and forks of a world share it.

    Attributes:
        number: number of the write that made it.
        size: value of a counter, or number of elements.
        expires: time at which it expires, in seconds; 0 for never.
        text: content of a string.
    """

    number: int
    size: int = 1
    expires: float = 0.0
    text: bytes = b""

    def __deepcopy__(self, _: Any) -> Entry:
        return self

    def __str__(self) -> str:
        return f"{self.size:,} (write {self.number})"


def apply(operation: str, number: int, before: Entry | None, now: float) -> Entry | None:
    """Return the value of a key after a command; None if the key does not exist then."""
    if operation == "DEL":
        return None
    if operation == "LOAD":
        return Entry(number, OLD_SIZE)
    if operation == "SET" or before is None:
        return None if operation == "EXPIRE" else Entry(number)
    if operation == "EXPIRE":
        return Entry(number, before.size, now + TIME_TO_LIVE, before.text)
    return Entry(number, before.size + 1, before.expires)


@dataclass
class Client:
    """Client that writes. It writes to no node of another cluster, even if that is at the address of one of its own.

    Attributes:
        home: cluster that it writes to.
        idle: whether it writes nothing.
        keys: keys that it writes all the time.
        old: keys that it wrote long ago, see `OLD_KEYS`.
        count: number of the last write.
        rounds: number of rounds so far.
        missing: keys that have never been written.
        routes: address that last accepted a write, by key.
        refused: number of writes that no server accepted.
    """

    home: str = ""
    idle: bool = False
    keys: tuple[bytes, ...] = KEYS
    old: tuple[bytes, ...] = OLD_KEYS
    count: int = 0
    rounds: int = 0
    missing: list[bytes] = field(default_factory=lambda: [*KEYS, *OLD_KEYS])
    routes: dict[bytes, str] = field(default_factory=dict)
    refused: int = 0

    def write(self, redis: SimulatedRedis) -> None:
        """Write some keys; first, all that have never been written."""
        for key in tuple(self.missing):
            if not self.send(redis, key, "LOAD" if key in self.old else "SET"):
                break
            self.missing.remove(key)
        self.rounds += 1
        first = self.rounds * KEYS_PER_ROUND
        for index in range(first, first + KEYS_PER_ROUND):
            key = self.keys[index % len(self.keys)]
            self.send(redis, key, self._operation(key))
        self.send(redis, self.old[self.rounds * 3 % len(self.old)], OPERATIONS[self.rounds // 12 % 4])
        deleted, rest = divmod(self.rounds, ROUNDS_PER_DELETION)
        if not rest and deleted * 3 <= len(self.old):
            self.send(redis, self.old[deleted * 3 - 1], "DEL")

    def add(self, keys: tuple[bytes, ...], old: tuple[bytes, ...]) -> None:
        """Write more keys, beginning with the next round."""
        self.keys, self.old = self.keys + keys, self.old + old
        self.missing += [*keys, *old]

    def touch(self, redis: SimulatedRedis, keys: Sequence[bytes]) -> None:
        """Write these keys, as far as the client writes them all the time."""
        for key in keys:
            if key in self.keys:
                self.send(redis, key, self._operation(key))

    def send(self, redis: SimulatedRedis, key: bytes, operation: str) -> bool:
        """Send a command, following redirections; return whether a server acknowledged it."""
        self.count += 1
        if self._sent(redis, key, operation):
            return True
        self.refused += 1
        return False

    def _operation(self, key: bytes) -> str:
        operation = OPERATIONS[self.keys.index(key) % len(OPERATIONS)]
        if operation in ("DEL", "EXPIRE"):
            return operation if not self.count % 3 else "INCR"
        return operation

    def _sent(self, redis: SimulatedRedis, key: bytes, operation: str) -> bool:
        for first in self._addresses(redis, self.routes.get(key, "")):
            address, redirected = first, False
            for _ in range(HOPS):
                process = redis.at(address)
                if process is None or process.node.cluster != self.home:
                    break
                try:
                    before, after = redis.write(process, key, operation, self.count, redirected=redirected)
                except Refused as refused:
                    if refused.code not in ("MOVED", "ASK"):
                        break
                    address, redirected = str(refused).split()[2].rpartition(":")[0], refused.code == "ASK"
                else:
                    redis.guard.acknowledge(redis, process, key, before, after)
                    if not redirected:
                        self.routes[key] = address
                    return True
        return False

    def _addresses(self, redis: SimulatedRedis, best: str) -> Iterator[str]:
        """Yield the addresses to try, best first."""
        yield best
        yield from (each.address for each in redis.running if each.node.cluster == self.home and each.address != best)
