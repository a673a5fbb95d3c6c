"""What the watches have seen, by owner: reads of a reconcile come from here.

Own writes enter at once (`put` with what the API server answered), so that a reconcile never acts on a view older than
its own last write. Order is by resourceVersion: an event older than what is known changes nothing, and an object that
was deleted does not come back by a late event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from shared import metrics
from shared.kube import Kind, Obj, resource_version
from shared.queue import Key

GRAVES = 10_000
"""Deletions remembered at most: enough to outlast any event that is still under way."""


class _Place(NamedTuple):
    namespace: str
    name: str


class Cache:
    """Objects by kind, and by the resource they belong to.

    Args:
        key_of: the resource that an object belongs to; None for an object that is nobody's (it is not kept).
        changed: called with the key of every resource for which something new was seen.
        trim: makes an object smaller before it is kept (managedFields of others are most of its size).
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        key_of: Callable[[Kind, Obj], Key | None],
        changed: Callable[[Key], None],
        trim: Callable[[Obj], Obj] = lambda obj: obj,
    ) -> None:
        self.kinds = tuple(kinds)
        self._key_of = key_of
        self._changed = changed
        self._trim = trim
        self._objects: dict[Kind, dict[_Place, Obj]] = {kind: {} for kind in self.kinds}
        self._by_key: dict[Kind, dict[Key, dict[str, Obj]]] = {kind: {} for kind in self.kinds}
        self._graves: dict[tuple[Kind, _Place], int] = {}
        for kind, objects in self._objects.items():
            metrics.CACHED_OBJECTS.labels(kind=kind.name).set_function(objects.__len__)

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        return self._objects[kind].get(_Place(namespace, name))

    def owned(self, kind: Kind, key: Key) -> list[Obj]:
        """The resource's objects of a kind, by name."""
        return [obj for _, obj in sorted(self._by_key[kind].get(key, {}).items())]

    def keys(self, kind: Kind) -> list[Key]:
        """Every resource that has an object of the kind."""
        return list(self._by_key[kind])

    def seen(self, kind: Kind, obj: Obj) -> None:
        """Enter what a watch reported; tells `changed` if it was news."""
        self._report(self.put(kind, obj))

    def gone(self, kind: Kind, obj: Obj) -> None:
        """Enter a deletion that a watch reported; `obj` is the object's last state."""
        self._report(self.drop(kind, obj))

    def put(self, kind: Kind, obj: Obj) -> set[Key]:
        """Enter an object, unless something newer is known.

        Returns:
            The resources concerned: none if nothing is new, two if the object changed hands.
        """
        place, version = _place(obj), resource_version(obj)
        known = self._objects[kind].get(place)
        if known is not None and resource_version(known) >= version:
            return set()
        if self._graves.get((kind, place), -1) >= version:
            return set()
        concerned = self._remove(kind, place) if known is not None else set()
        key = self._key_of(kind, obj)
        if key is not None:
            kept = self._trim(obj)
            self._objects[kind][place] = kept
            self._by_key[kind].setdefault(key, {})[place.name] = kept
            concerned.add(key)
        return concerned

    def drop(self, kind: Kind, obj: Obj) -> set[Key]:
        """Enter that an object is gone as of its resourceVersion; nothing happens if a newer one is known."""
        place, version = _place(obj), resource_version(obj)
        known = self._objects[kind].get(place)
        if known is not None and resource_version(known) > version:
            return set()
        self._bury(kind, place, version)
        return self._remove(kind, place)

    def replace(self, kind: Kind, namespace: str | None, listing: Obj) -> set[Key]:
        """Make a list the truth: enter its items, and drop what it does not have and is not newer than it.

        This is what heals deletions that a watch missed while it was interrupted.

        Args:
            namespace: the namespace that was listed; None for all.
            listing: a list object with `metadata.resourceVersion`.
        """
        version = resource_version(listing)
        concerned: set[Key] = set()
        listed: set[_Place] = set()
        for obj in listing.get("items", ()):
            listed.add(_place(obj))
            concerned |= self.put(kind, obj)
        for place, obj in list(self._objects[kind].items()):
            elsewhere = namespace is not None and place.namespace != namespace
            if place not in listed and not elsewhere and resource_version(obj) <= version:
                self._bury(kind, place, version)
                concerned |= self._remove(kind, place)
        return concerned

    def _report(self, concerned: set[Key]) -> None:
        for key in concerned:
            self._changed(key)

    def _remove(self, kind: Kind, place: _Place) -> set[Key]:
        obj = self._objects[kind].pop(place, None)
        key = self._key_of(kind, obj) if obj is not None else None
        if key is None:
            return set()
        siblings = self._by_key[kind][key]
        siblings.pop(place.name)
        if not siblings:
            del self._by_key[kind][key]
        return {key}

    def _bury(self, kind: Kind, place: _Place, version: int) -> None:
        earlier = self._graves.pop((kind, place), version)
        self._graves[(kind, place)] = max(earlier, version)
        if len(self._graves) > GRAVES:
            self._graves.pop(next(iter(self._graves)))


def _place(obj: Obj) -> _Place:
    metadata = obj["metadata"]
    return _Place(metadata.get("namespace") or "", metadata["name"])
