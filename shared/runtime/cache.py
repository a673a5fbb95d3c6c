"""What the watches have seen, by owner: reads of a reconcile come from here.

Own writes enter at once (`put` with what the API server answered), so that a reconcile never acts on a view older than
its own last write. Order is by resourceVersion: an event older than what is known changes nothing, and an object that
was deleted does not come back by a late event.

Objects are kept packed, as bytes: that is a fifth of what dicts take, and nothing for the garbage collector to scan.
So each read gives an object of the reader's own.
"""

from __future__ import annotations

import marshal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.observability import metrics

MAX_TOMBSTONES = 10_000
"""Deletions remembered at most: enough to outlast any event that is still under way."""


class _ObjectName(NamedTuple):
    namespace: str
    name: str


class _Kept(NamedTuple):
    """An object as it is kept: its version, the resource it belongs to, and all of it (packed by marshal)."""

    version: int
    key: Key
    packed: bytes


class Cache:
    """Objects by kind, and by the resource they belong to.

    Args:
        key_of: the resource that an object belongs to; None for an object that is nobody's (it is not kept).
        changed: called with the key of every resource for which something new was seen.
        trim: makes an object smaller before it is kept (managedFields of others are most of its size).
        name: whose cache it is, for metrics: the controller's name.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        key_of: Callable[[Kind, Obj], Key | None],
        changed: Callable[[Key], None],
        trim: Callable[[Obj], Obj] = lambda obj: obj,
        name: str = "",
    ) -> None:
        self.kinds = tuple(kinds)
        self._key_of = key_of
        self._changed = changed
        self._trim = trim
        self._kept: dict[Kind, dict[_ObjectName, _Kept]] = {kind: {} for kind in self.kinds}
        self._places: dict[Kind, dict[Key, set[_ObjectName]]] = {kind: {} for kind in self.kinds}
        self._graves: dict[tuple[Kind, _ObjectName], int] = {}
        self._held: dict[tuple[Kind, _ObjectName], set[Key]] = {}  # by what is being written: whom its events concern
        for kind, kept in self._kept.items():
            metrics.CACHED_OBJECTS.labels(controller=name, kind=kind.name).set_function(kept.__len__)

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        kept = self._kept[kind].get(_ObjectName(namespace, name))
        return None if kept is None else _unpacked(kept)

    def owned(self, kind: Kind, key: Key) -> list[Obj]:
        """The resource's objects of a kind, by name."""
        return [_unpacked(self._kept[kind][place]) for place in sorted(self._places[kind].get(key, ()))]

    def all(self, kind: Kind) -> Iterator[Obj]:
        """Every object of a kind as it is now, one by one; from any thread."""
        return (_unpacked(kept) for kept in list(self._kept[kind].values()))

    def keys(self, kind: Kind) -> list[Key]:
        """Every resource that has an object of the kind."""
        return list(self._places[kind])

    def knows(self, kind: Kind, obj: Obj) -> bool:
        """Whether an object is no news: this version of it, or a newer one, was seen or is gone."""
        place, version = _place(obj), resource_version(obj)
        kept = self._kept[kind].get(place)
        return (kept is not None and kept.version >= version) or self._graves.get((kind, place), -1) >= version

    def seen(self, kind: Kind, obj: Obj) -> None:
        """Enter what a watch reported; tells `changed` if it was news."""
        concerned = self.put(kind, obj)
        held = self._held.get((kind, _place(obj)))
        if held is None:
            self.report(concerned)
        else:
            held |= concerned

    def gone(self, kind: Kind, obj: Obj) -> None:
        """Enter a deletion that a watch reported; `obj` is the object's last state."""
        self.report(self.drop(kind, obj))

    def put(self, kind: Kind, obj: Obj) -> set[Key]:
        """Enter an object, unless something newer is known.

        Returns:
            The resources concerned: none if nothing is new, two if the object changed hands.
        """
        if self.knows(kind, obj):
            return set()
        place = _place(obj)
        concerned = self._remove(kind, place)
        key = self._key_of(kind, obj)
        if key is not None:
            self._kept[kind][place] = _Kept(resource_version(obj), key, marshal.dumps(self._trim(obj)))
            self._places[kind].setdefault(key, set()).add(place)
            concerned.add(key)
        return concerned

    async def written(self, kind: Kind, namespace: str, name: str, write: Awaitable[Obj]) -> Obj:
        """Wait for the answer to a write of our own, and enter it.

        Its echo may overtake it. That is no news then, unless it tells of something newer still.
        """
        place = _ObjectName(namespace, name)
        held = self._held[kind, place] = set()
        try:
            answer = await write
            kept = self._kept[kind].get(place)
            if kept is None or kept.version <= resource_version(answer):
                held.clear()
            self.put(kind, answer)
        finally:
            del self._held[kind, place]
            self.report(held)
        return answer

    def drop(self, kind: Kind, obj: Obj) -> set[Key]:
        """Enter that an object is gone as of its resourceVersion; nothing happens if a newer one is known."""
        place, version = _place(obj), resource_version(obj)
        known = self._kept[kind].get(place)
        if known is not None and known.version > version:
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
        return Relist(self, kind, namespace).take(listing)

    def _prune(self, kind: Kind, namespace: str | None, listed: set[_ObjectName], version: int) -> set[Key]:
        """Drop what a list as of a version did not have."""
        concerned: set[Key] = set()
        for place, kept in list(self._kept[kind].items()):
            elsewhere = namespace is not None and place.namespace != namespace
            if place not in listed and not elsewhere and kept.version <= version:
                self._bury(kind, place, version)
                concerned |= self._remove(kind, place)
        return concerned

    def report(self, concerned: Iterable[Key]) -> None:
        """Tell of resources about which something new was entered."""
        for key in concerned:
            self._changed(key)

    def _remove(self, kind: Kind, place: _ObjectName) -> set[Key]:
        kept = self._kept[kind].pop(place, None)
        if kept is None:
            return set()
        siblings = self._places[kind][kept.key]
        siblings.remove(place)
        if not siblings:
            del self._places[kind][kept.key]
        return {kept.key}

    def _bury(self, kind: Kind, place: _ObjectName, version: int) -> None:
        earlier = self._graves.pop((kind, place), version)
        self._graves[(kind, place)] = max(earlier, version)
        if len(self._graves) > MAX_TOMBSTONES:
            self._graves.pop(next(iter(self._graves)))


class Relist:
    """A list that becomes the cache's truth with its last page.

    Args:
        namespace: the namespace that is listed; None for all.
    """

    def __init__(self, cache: Cache, kind: Kind, namespace: str | None) -> None:
        self.cache = cache
        self._kind = kind
        self._namespace = namespace
        self._listed: set[_ObjectName] = set()

    def take(self, page: Obj) -> set[Key]:
        """Enter a page, and after the last one drop what none had and is not newer than they are.

        Returns:
            The resources about which the page said something new.
        """
        concerned: set[Key] = set()
        for obj in page.get("items") or ():
            self._listed.add(_place(obj))
            concerned |= self.cache.put(self._kind, obj)
        if not page["metadata"].get("continue"):
            concerned |= self.cache._prune(self._kind, self._namespace, self._listed, resource_version(page))
        return concerned


def _place(obj: Obj) -> _ObjectName:
    metadata = obj["metadata"]
    return _ObjectName(metadata.get("namespace") or "", metadata["name"])


def _unpacked(kept: _Kept) -> Obj:
    obj: Obj = marshal.loads(kept.packed)  # noqa: S302  # by none but us
    return obj
