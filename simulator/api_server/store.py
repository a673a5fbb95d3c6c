"""Storage of the in-memory API server: one version counter for all objects, and watches for their changes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.clone import clone
from simulator.api_server.watches import Watches

T = TypeVar("T")

FIRST_VERSION = 1000
"""resourceVersion before the first write. As in a real cluster, no object is at version 1."""


class Store:
    """Objects by kind, namespace and name.

    Attributes:
        version: resourceVersion of the last write.
        watches: subscriptions to changes.
        former: objects of a kind at the version of a list whose next pages may be requested, until `compact`.
    """

    def __init__(self, kinds: Iterable[Kind], clock: Callable[[], datetime], version: int = FIRST_VERSION) -> None:
        self.version = version
        self.watches = Watches()
        self.former: dict[tuple[Kind, int], list[Obj]] = {}
        self._clock = clock
        self._objects: dict[Kind, dict[tuple[str, str], Obj]] = {kind: {} for kind in kinds}

    def fork(self, clock: Callable[[], datetime]) -> Store:
        """Return an independent copy with the same objects and no subscribers."""
        copy = Store((), clock, self.version)
        copy._objects = {kind: dict(objects) for kind, objects in self._objects.items()}  # objects are immutable
        copy.watches.history = list(self.watches.history)
        return copy

    def load(self, objects: Iterable[tuple[Kind, Obj]]) -> None:
        """Store objects with their own UIDs and versions; the next version is newer than all of them."""
        for kind, obj in objects:
            metadata = obj["metadata"]
            self._objects[kind][metadata.get("namespace", ""), metadata["name"]] = obj
            self.version = max(self.version, int(metadata.get("resourceVersion") or 0))

    def restore(self, snapshot: Store) -> None:
        """Return to the objects, the version and the history of a copy."""
        self.version = snapshot.version
        self._objects = {kind: dict(objects) for kind, objects in snapshot._objects.items()}
        self.watches.history[:] = snapshot.watches.history
        self.compact()

    def compact(self) -> None:
        """Forget all former versions, as etcd does with those of more than five minutes ago."""
        self.former.clear()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self._objects)

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        return self._objects[kind].get((namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Obj]:
        """List the objects of a kind in order of namespace and name; an empty namespace means all."""
        return [obj for key, obj in sorted(self._objects[kind].items()) if namespace in ("", key[0])]

    def keep(self, kind: Kind, new: Obj) -> Obj:
        """Store an object under a new version; an unchanged object keeps its version and notifies no watch."""
        metadata = new["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        live = self._objects[kind].get(key)
        if new != live:
            metadata["resourceVersion"] = self._next()
            self._objects[kind][key] = new
            self.watches.record(kind, "ADDED" if live is None else "MODIFIED", new)
        return new

    def remove(self, kind: Kind, live: Obj) -> None:
        """Remove an object; watches receive its last state, at the version of its removal."""
        metadata = live["metadata"]
        del self._objects[kind][metadata.get("namespace", ""), metadata["name"]]
        last = clone(live)
        last["metadata"]["resourceVersion"] = self._next()
        self.watches.record(kind, "DELETED", last)

    def unique(self, salt: str = "") -> str:
        """Return a UID that is unique in this store and the same in every run of a test."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{salt}{self.version}"))

    def now(self) -> str:
        """Return the server's time in the format of the API."""
        return _formatted(self._clock())

    def _next(self) -> str:
        self.version += 1
        return str(self.version)


class ByIdentity(Generic[T]):
    """Results of a function of stored objects, or of their parts: a write replaces these, and never changes them.

    The arguments are kept, so that no other object gets their identities. If there are too many results, all are
    dropped.

    Args:
        compute: returns the result, which must not be modified.
    """

    MAX_ENTRIES = 4096

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._known: dict[tuple[int, ...], tuple[T, tuple[Any, ...]]] = {}

    def of(self, *parts: Any) -> T:
        """Return the result for these parts."""
        key = tuple(map(id, parts))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self.MAX_ENTRIES:
                self._known.clear()
            found = self._known[key] = (self._compute(*parts), parts)
        return found[0]


@lru_cache(maxsize=64)  # simulated time seldom passes
def _formatted(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
