"""Where the in-memory API server keeps objects: one counter of versions over all of them, and watches that tell."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime

from shared.kubernetes.kinds import Kind, Obj
from shared.testing.api_server.clone import clone
from shared.testing.api_server.watches import Watches

FIRST_VERSION = 1000
"""resourceVersion before the first write: as in a real cluster, no object is at version 1."""


class Store:
    """Objects by kind, namespace and name.

    Attributes:
        version: the resourceVersion of the last write.
        watches: who hears of changes.
    """

    def __init__(self, kinds: Iterable[Kind], clock: Callable[[], datetime], version: int = FIRST_VERSION) -> None:
        self.version = version
        self.watches = Watches()
        self._clock = clock
        self._objects: dict[Kind, dict[tuple[str, str], Obj]] = {kind: {} for kind in kinds}

    def fork(self, clock: Callable[[], datetime]) -> Store:
        """Another that keeps the same, and tells others; what is written to the one, the other does not have."""
        copy = Store((), clock, self.version)
        copy._objects = {kind: dict(objects) for kind, objects in self._objects.items()}  # no object changes in place
        copy.watches.history = list(self.watches.history)
        return copy

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self._objects)

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        return self._objects[kind].get((namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Obj]:
        """Objects of a kind in order of namespace and name; an empty namespace lists all."""
        return [obj for place, obj in sorted(self._objects[kind].items()) if namespace in ("", place[0])]

    def keep(self, kind: Kind, new: Obj) -> Obj:
        """Make an object what `new` says, under a new version; if it is so already, nothing happens."""
        metadata = new["metadata"]
        place = (metadata.get("namespace", ""), metadata["name"])
        live = self._objects[kind].get(place)
        if new != live:
            metadata["resourceVersion"] = self._next()
            self._objects[kind][place] = new
            self.watches.tell(kind, "ADDED" if live is None else "MODIFIED", new)
        return new

    def remove(self, kind: Kind, live: Obj) -> None:
        """Forget an object; watches see its last state, at the version of its end."""
        metadata = live["metadata"]
        del self._objects[kind][metadata.get("namespace", ""), metadata["name"]]
        last = clone(live)
        last["metadata"]["resourceVersion"] = self._next()
        self.watches.tell(kind, "DELETED", last)

    def unique(self, salt: str = "") -> str:
        """A UID: never twice in one store, and the same in every run of a test."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{salt}{self.version}"))

    def now(self) -> str:
        """The server's time as Kubernetes writes it."""
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _next(self) -> str:
        self.version += 1
        return str(self.version)
