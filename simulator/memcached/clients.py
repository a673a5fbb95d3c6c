"""Clients of the simulated servers: they get keys in turn, each from its server, and store what they miss."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

ABSENT = 14
"""One of this many gets is for a key that no client stores, so that the hit ratio of a full cache is 0.93."""


@dataclass
class Clients:
    """Clients that choose the server of a key by its name, with rendezvous hashing.

    Attributes:
        keys: number of keys that clients use; 0 for no clients.
        rate: gets per second, of all servers together.
        names: names of the running servers, by the UID of the pod.
        items: keys that a server holds, by the same.
        started: times at which the servers started, by the same.
        hits, misses: gets of a server since its start, by the same.
        shunned: UIDs of servers that clients do not use: they miss those keys.
        least_found: lowest share of the keys that clients found after a server was added.
    """

    keys: int = 0
    rate: int = 10
    names: dict[str, str] = field(default_factory=dict)
    items: dict[str, set[int]] = field(default_factory=dict)
    started: dict[str, datetime] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    shunned: set[str] = field(default_factory=set)
    least_found: float = 1.0
    _until: datetime | None = None
    _gets: int = 0

    def start(self, uid: str, name: str, now: datetime) -> None:
        """Add an empty server, or empty one that restarts."""
        self.pass_time(now)
        self.names[uid], self.items[uid], self.started[uid] = name, set(), now
        self.hits[uid] = self.misses[uid] = 0
        if self.keys:
            self.least_found = min(self.least_found, self.found)

    def end(self, uid: str, now: datetime) -> None:
        """Remove a server with its items."""
        self.pass_time(now)
        for known in (self.names, self.items, self.started):
            known.pop(uid, None)

    def pass_time(self, now: datetime) -> None:
        """Carry out the gets until now."""
        seconds = int((now - self._until).total_seconds()) if self._until else 0
        if self._until and not seconds:
            return
        self._until = now
        if not self.keys or not self.names:
            return
        owners = self._owners()
        for _ in range(seconds * self.rate):
            self._gets += 1
            if self._gets % ABSENT == 0:
                if (uid := _owner(self._gets, self.names)) not in self.shunned:
                    self.misses[uid] += 1
                continue
            key = (self._gets - self._gets // ABSENT) % self.keys
            uid = owners[key]
            if uid in self.shunned:
                continue
            (self.hits if key in self.items[uid] else self.misses)[uid] += 1
            self.items[uid].add(key)

    @property
    def found(self) -> float:
        """Share of the keys that clients find."""
        owners = self._owners()
        return sum(key in self.items[owners[key]] for key in range(self.keys)) / self.keys

    def stats(self, uid: str, now: datetime) -> dict[str, str]:
        """Return the statistics of a server about itself and its gets."""
        self.pass_time(now)
        uptime = int((now - self.started[uid]).total_seconds()) + 2  # memcached begins at 2
        return {
            "uptime": str(uptime),
            "cmd_get": str(self.hits[uid] + self.misses[uid]),
            "get_hits": str(self.hits[uid]),
            "get_misses": str(self.misses[uid]),
        }

    def _owners(self) -> list[str]:
        return [_owner(key, self.names) for key in range(self.keys)]


def _owner(key: int, names: dict[str, str]) -> str:
    """Return the UID of the server of a key."""
    return max(names, key=lambda uid: hashlib.blake2b(f"{key} {names[uid]}".encode()).digest())
