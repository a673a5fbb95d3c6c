"""Cache of the watched objects, by owner; a reconcile reads from it.

A reconcile's own writes enter at once (`put` with the response of the API server), so that it never acts on a state
older than its last write. Objects are ordered by resourceVersion: an outdated event changes nothing, and tombstones
prevent late events from resurrecting deleted objects. A full list replaces everything, regardless of versions: a
control plane that was restored from a backup begins again with lower ones. Only what the operator wrote while the list
was read stays, if it is newer.

Objects are stored packed: as bytes that are compressed with the first object of their kind as the dictionary, because
the owned objects of two resources differ in a few names only. This takes a hundredth of the memory of dicts, and the
garbage collector skips it. Each read returns a new object.

A user with the right to create pods in a namespace can create many large ones with the labels of a resource. If the
objects of a resource would take too much memory together, they are therefore not read, and its status has the reason.
The queue limits the memory of a namespace's running reconciles by `memory`. Objects beyond a namespace's share of the
cache are left out, and the resource to which one belongs is not read either until a list has all of its objects, so
that nothing is decided without them.
"""

from __future__ import annotations

import logging
import marshal
import weakref
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from shared.kubernetes.accessors import is_current, resource_version
from shared.kubernetes.encoding import memory
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.kubernetes.kubectl import command
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, MAX_OWNED_BYTES, ForeignObject, require_small
from shared.observability import metrics

log = logging.getLogger(__name__)

MAX_TOMBSTONES = 10_000
"""Maximum number of tombstones; events in flight are never older than these."""

MAX_STORED_BYTES, MAX_RESOURCE_BYTES = 16 * 1024 * 1024, 20 * 1024 * 1024
"""Largest size of the stored objects of a namespace: those of about 3,000 resources. A resource that is left out has no
status, so that they get more space."""

ENTRY_BYTES = 320
"""Bytes that a stored object counts in addition to its content. It takes twice as many: those of 50,000 small objects
that a namespace may have, 32 MiB."""

MIN_OWNED_BYTES = 4 * 1024
"""Size with which the smallest object of a resource counts when it is read: 4,000 of them take 50 ms."""

MEMBER_BYTES = 32 * 1024
"""Memory for each server that a spec requests, beyond that of any resource: a pod with its claim takes 20 to 35 KiB."""

MAX_LEFT_OUT = 10_000
"""Number of names of left-out objects and their resources that are noted of a namespace; one more is for all others."""

_LEVEL, _RAW = 1, -15
"""Compression of packed objects: the fastest one, and without a checksum."""

_WINDOW = 32 * 1024
"""Bytes of a dictionary that compression can refer to."""


class _ObjectName(NamedTuple):
    namespace: str
    name: str


class _Kept(NamedTuple):
    """A stored object: version, the resource to which it belongs, and the whole object (`_Packing`).

    Attributes:
        memory: bytes of memory that the unpacked object takes.
    """

    version: int
    key: Key
    packed: bytes
    memory: int


class _Packing:
    """Packs the objects of a kind."""

    def __init__(self) -> None:
        self._dictionary = b""

    def pack(self, obj: Obj) -> bytes:
        packed = marshal.dumps(obj)
        self._dictionary = self._dictionary or packed[-_WINDOW:]
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=self._dictionary)
        return compressor.compress(packed) + compressor.flush()

    def unpack(self, packed: bytes) -> Obj:
        """Return a new object; safe from any thread."""
        decompressor = zlib.decompressobj(_RAW, zdict=self._dictionary)
        obj: Obj = marshal.loads(decompressor.decompress(packed))  # noqa: S302  # packed by this process
        return obj


class Cache:
    """Objects by kind, and by the resource to which they belong.

    Args:
        key_of: returns the resource to which an object belongs; None for none (the object is not stored).
        changed: called with the key of every resource with a new observation.
        trim: reduces an object before it is stored (managedFields of other managers are most of its size).
        name: name of the controller, for metrics.

    Attributes:
        outdated: resources of the first kind whose status does not describe their spec.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        key_of: Callable[[Kind, Obj], Key | None],
        changed: Callable[[Key], None],
        trim: Callable[[Kind, Obj], Obj] = lambda _, obj: obj,
        name: str = "",
    ) -> None:
        self.kinds = tuple(kinds)
        self.outdated: set[Key] = set()
        self._key_of = key_of
        self._changed = changed
        self._trim = trim
        self._packings = {kind: _Packing() for kind in self.kinds}
        self._kept: dict[Kind, dict[_ObjectName, _Kept]] = {kind: {} for kind in self.kinds}
        self._names: dict[Kind, dict[Key, set[_ObjectName]]] = {kind: {} for kind in self.kinds}
        self._stored: Counter[str] = Counter()  # bytes by namespace
        self._memory: Counter[Key] = Counter()  # that the objects of a resource take when they are read
        self._limits: dict[Key, int] = {}  # of that memory, by resource
        self._most = dict.fromkeys(self.kinds, MAX_STORED_BYTES) | {self.kinds[0]: MAX_RESOURCE_BYTES}
        self._left_out: dict[str, dict[Kind, dict[Key, int]]] = {}  # by namespace; the last list that began before
        self._smallest: dict[str, int] = {}  # bytes of those, by namespace
        self._lists = 0
        self._uids: dict[Key, str] = {}  # of resources
        self._by_uid: dict[str, Key] = {}
        self._tombstones: dict[tuple[Kind, _ObjectName], int] = {}
        # By object that is being written: resources with events to report.
        self._pending: dict[tuple[Kind, _ObjectName], set[Key]] = {}
        self._writes: Counter[tuple[Kind, _ObjectName]] = Counter()  # number of writes in progress, by object
        self._relists: weakref.WeakSet[Relist] = weakref.WeakSet()
        for kind, kept in self._kept.items():
            metrics.CACHED_OBJECTS.labels(controller=name, kind=kind.name).set_function(kept.__len__)

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return an object; None if it does not exist.

        Raises:
            ForeignObject: the object may have been left out.
        """
        kept = self._kept[kind].get(_ObjectName(namespace, name))
        if kept is None and kind != self.kinds[0] and self._is_left_out(kind, Key(namespace, name)):
            raise _too_much(self.kinds, namespace)
        return None if kept is None else self._unpacked(kind, kept)

    def fingerprint(self, kind: Kind, namespace: str, name: str) -> int:
        """Return a number that changes with the content of an object; 0 if it does not exist or is not watched."""
        kept = self._kept.get(kind, {}).get(_ObjectName(namespace, name))
        return 0 if kept is None else hash(kept.packed)

    def fingerprint_of(self, kind: Kind, obj: Obj) -> int:
        """Return the fingerprint of an object; 0 unless exactly this version is stored."""
        object_name = _object_name(obj)
        kept = self._kept.get(kind, {}).get(object_name)
        return hash(kept.packed) if kept is not None and kept.version == resource_version(obj) else 0

    def owned(self, kind: Kind, key: Key) -> list[Obj]:
        """Return the resource's objects of a kind, sorted by name.

        Raises:
            ForeignObject: the objects of all kinds that have the labels of the resource take too much memory.
        """
        kept = self._kept[kind]
        self._require_small(key)
        return [self._unpacked(kind, kept[object_name]) for object_name in sorted(self._names[kind].get(key, ()))]

    def memory(self, key: Key) -> int:
        """Return the bytes of memory that the objects of a resource take together when they are read."""
        return self._memory.get(key, 0)

    def _require_small(self, key: Key) -> None:
        if any(self._is_left_out(kind, key) for kind in self.kinds[1:]):
            raise _too_much(self.kinds, key.namespace)
        limit = self._limits.get(key, MAX_OWNED_BYTES)
        if (size := self.memory(key)) <= limit:
            return
        found = ((kind, each) for kind in self.kinds[1:] for each in self._names[kind].get(key, ()))
        kind, largest = max(found, key=lambda each: self._kept[each[0]][each[1]].memory)
        listing = command("get", kind.plural, key.namespace, f"-l {INSTANCE}={key.name}")
        advice = f"A large one is {kind.name} {largest.name}. Delete those that the operator did not make: {listing}"
        require_small(size, advice, limit)

    def _is_left_out(self, kind: Kind, key: Key) -> bool:
        left_out = self._left_out.get(key.namespace, {}).get(kind, {})
        return key in left_out or Key(key.namespace, "") in left_out

    def lacks(self) -> set[tuple[Kind, str]]:
        """Return the kinds, with the namespaces, of which objects were left out for which there is space now."""
        found = ((kind, at) for at, kinds in self._left_out.items() for kind in kinds)
        return {(kind, at) for kind, at in found if self._stored[at] + self._smallest[at] <= self._most[kind]}

    def all(self, kind: Kind, *, of: Callable[[Key], bool] = lambda _: True) -> Iterator[Obj]:
        """Iterate over the current objects of a kind; safe from any thread.

        Args:
            of: whether to return the objects of a resource.
        """
        return (self._unpacked(kind, kept) for kept in list(self._kept[kind].values()) if of(kept.key))

    def keys(self, kind: Kind) -> list[Key]:
        """Return every resource that has an object of the kind."""
        return list(self._names[kind])

    def key_of_uid(self, uid: str) -> Key | None:
        """Return the resource with a UID; None if it is not known."""
        return self._by_uid.get(uid)

    def knows(self, kind: Kind, obj: Obj) -> bool:
        """Whether this version of an object, or a newer one, was already observed or deleted."""
        object_name, version = _object_name(obj), resource_version(obj)
        kept, deleted = self._kept[kind].get(object_name), self._tombstones.get((kind, object_name), -1)
        return max(deleted, kept.version if kept else -1) >= version

    def on_changed(self, kind: Kind, obj: Obj) -> None:
        """Store an object from a watch event; reports its resource if the object is new."""
        concerned = self.put(kind, obj)
        pending = self._pending.get((kind, _object_name(obj)))
        if pending is None:
            self.report(concerned)
        else:
            pending |= concerned

    def on_deleted(self, kind: Kind, obj: Obj) -> None:
        """Remove an object after a watch event; `obj` is the last state of the object."""
        self.report(self.drop(kind, obj))

    def put(self, kind: Kind, obj: Obj) -> set[Key]:
        """Store an object, unless a newer version is known.

        Returns:
            The affected resources: none if nothing changed, two if the object has a new owner.
        """
        if self.knows(kind, obj):
            return set()
        object_name = _object_name(obj)
        self._note_change(kind, object_name)
        return self._store(kind, object_name, obj)

    def _store(self, kind: Kind, object_name: _ObjectName, obj: Obj) -> set[Key]:
        concerned = self._remove(kind, object_name)
        key = self._key_of(kind, obj)
        if key is not None:
            kept = self._trim(kind, obj)
            packed, size = self._packings[kind].pack(kept), max(memory(kept), MIN_OWNED_BYTES)
            if self._stored[key.namespace] + (added := len(packed) + ENTRY_BYTES) > self._most[kind]:
                return concerned | self._leave_out(kind, key, object_name, added)
            self._stored[key.namespace] += added
            self._memory[key] += size
            self._kept[kind][object_name] = _Kept(resource_version(obj), key, packed, size)
            self._names[kind].setdefault(key, set()).add(object_name)
            concerned.add(key)
            if kind == self.kinds[0]:
                self._uids[key] = uid = obj["metadata"].get("uid", "")
                self._by_uid[uid] = key
                self._limits[key] = MAX_OWNED_BYTES + MEMBER_BYTES * _members(obj)
                if not is_current(obj):
                    self.outdated.add(key)
        return concerned

    def _leave_out(self, kind: Kind, key: Key, object_name: _ObjectName, size: int) -> set[Key]:
        kinds = self._left_out.setdefault(key.namespace, {})
        left_out = kinds.setdefault(kind, {})
        self._smallest[key.namespace] = min(size, self._smallest.get(key.namespace, size))
        for each in (key, Key(*object_name)):
            is_known = each in left_out or sum(map(len, kinds.values())) < MAX_LEFT_OUT
            left_out[each if is_known else Key(key.namespace, "")] = self._lists
        if kind == self.kinds[0]:
            log.error("%s: not observed: objects of operators in its namespace take too much memory", key)
            metrics.OVERSIZED_OBJECTS.labels(kind.name).inc()
        return {key}

    async def written(self, kind: Kind, namespace: str, name: str, write: Awaitable[Obj]) -> Obj:
        """Wait for the response to a write by this operator, and store it.

        The watch event of the write may arrive first. It is not reported, unless it has a newer version.
        """
        object_name = _ObjectName(namespace, name)
        pending = self._pending.setdefault((kind, object_name), set())
        self._writes[kind, object_name] += 1
        try:
            answer = await write
            kept = self._kept[kind].get(object_name)
            if kept is None or kept.version <= resource_version(answer):
                pending.clear()
            self.put(kind, answer)
        finally:
            self._writes[kind, object_name] -= 1
            if not self._writes[kind, object_name]:  # of several writes at once, the last one reports
                del self._writes[kind, object_name], self._pending[kind, object_name]
                self.report(pending)
        return answer

    def drop(self, kind: Kind, obj: Obj) -> set[Key]:
        """Remove an object as of its resourceVersion; nothing happens if a newer version is known."""
        object_name, version = _object_name(obj), resource_version(obj)
        known = self._kept[kind].get(object_name)
        if known is not None and known.version > version:
            return set()
        self._note_change(kind, object_name)
        self._add_tombstone(kind, object_name, version)
        return self._remove(kind, object_name)

    def _note_change(self, kind: Kind, object_name: _ObjectName) -> None:
        for relist in self._relists:
            relist.note_change(kind, object_name)

    def _replace_one(self, kind: Kind, object_name: _ObjectName, obj: Obj) -> set[Key]:
        """Store an object of a list, regardless of known versions; reports nothing if its content is the same."""
        self._tombstones.pop((kind, object_name), None)
        kept = self._kept[kind].get(object_name)
        is_same = (
            kept is not None
            and kept.version == resource_version(obj)
            and self._unpacked(kind, kept) == self._trim(kind, obj)
        )
        return set() if is_same else self._store(kind, object_name, obj)

    def _prune(
        self, kind: Kind, namespace: str | None, listed: set[_ObjectName], changed: set[_ObjectName], version: int
    ) -> set[Key]:
        """Remove the objects that a list of this version does not contain.

        Args:
            changed: objects that were stored or removed while the list was read; newer ones stay as they are.
        """
        concerned: set[Key] = set()
        for object_name, kept in list(self._kept[kind].items()):
            is_newer = object_name in changed and kept.version > version
            if object_name not in listed and namespace in (None, object_name.namespace) and not is_newer:
                self._add_tombstone(kind, object_name, version)
                concerned |= self._remove(kind, object_name)
        for known, object_name in list(self._tombstones):
            is_present = object_name in listed or object_name in changed
            if known == kind and namespace in (None, object_name.namespace) and not is_present:
                self._tombstones[known, object_name] = version  # deleted as of this list, in its versions
        return concerned

    def _readmit(self, kind: Kind, namespace: str | None, number: int) -> set[Key]:
        """Return the resources all of whose objects a list has stored, and read them again.

        Args:
            number: number of the list.
        """
        concerned: set[Key] = set()
        for at in [namespace] if namespace else list(self._left_out):
            kinds = self._left_out.get(at, {})
            left_out = kinds.pop(kind, {})
            stored = {key for key, last in left_out.items() if last < number}
            concerned |= {key for key in stored if key in self._names[kind] or key in self._names[self.kinds[0]]}
            if remaining := {key: last for key, last in left_out.items() if key not in stored}:
                kinds[kind] = remaining
            if not kinds and self._left_out.pop(at, None) is not None:
                del self._smallest[at]
        return concerned

    def report(self, concerned: Iterable[Key]) -> None:
        """Report resources with new observations."""
        for key in concerned:
            self._changed(key)

    def _unpacked(self, kind: Kind, kept: _Kept) -> Obj:
        return self._packings[kind].unpack(kept.packed)

    def _remove(self, kind: Kind, object_name: _ObjectName) -> set[Key]:
        kept = self._kept[kind].pop(object_name, None)
        if kept is None:
            return set()
        if kind == self.kinds[0]:
            self.outdated.discard(kept.key)
            self._by_uid.pop(self._uids.pop(kept.key, ""), None)
            self._limits.pop(kept.key, None)
        self._stored[kept.key.namespace] -= len(kept.packed) + ENTRY_BYTES
        if not self._stored[kept.key.namespace]:
            del self._stored[kept.key.namespace]
        self._memory[kept.key] -= kept.memory
        if not self._memory[kept.key]:
            del self._memory[kept.key]
        siblings = self._names[kind][kept.key]
        siblings.remove(object_name)
        if not siblings:
            del self._names[kind][kept.key]
        return {kept.key}

    def _add_tombstone(self, kind: Kind, object_name: _ObjectName, version: int) -> None:
        earlier = self._tombstones.pop((kind, object_name), version)
        self._tombstones[(kind, object_name)] = max(earlier, version)
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.pop(next(iter(self._tombstones)))


class Relist:
    """A paged list that replaces the content of the cache; removals follow its last page.

    The list must be a consistent read that begins after this object is created. The objects in the cache at that time
    are then older than the list, regardless of their versions.

    Args:
        namespace: the listed namespace; None for all.
    """

    def __init__(self, cache: Cache, kind: Kind, namespace: str | None) -> None:
        self.cache = cache
        self._kind = kind
        self._namespace = namespace
        self._listed: set[_ObjectName] = set()
        self._changed: set[_ObjectName] = set()
        cache._relists.add(self)
        cache._lists += 1
        self._number = cache._lists

    def note_change(self, kind: Kind, object_name: _ObjectName) -> None:
        """Note that an object was written or deleted while the list is read."""
        if kind == self._kind:
            self._changed.add(object_name)

    def take(self, page: Obj) -> set[Key]:
        """Store a page; after the last page, remove the objects that no page contained.

        Returns:
            The resources affected by the page.
        """
        concerned: set[Key] = set()
        for obj in page.get("items") or ():
            object_name = _object_name(obj)
            self._listed.add(object_name)
            if object_name in self._changed:
                concerned |= self.cache.put(self._kind, obj)
            else:
                concerned |= self.cache._replace_one(self._kind, object_name, obj)
        if not page["metadata"].get("continue"):
            self.cache._relists.discard(self)
            version = resource_version(page)
            concerned |= self.cache._prune(self._kind, self._namespace, self._listed, self._changed, version)
            concerned |= self.cache._readmit(self._kind, self._namespace, self._number)
        return concerned


def _too_much(kinds: Iterable[Kind], namespace: str) -> ForeignObject:
    listing = command("get", ",".join(kind.plural for kind in kinds), namespace, f"-l {MANAGED_BY}")
    return ForeignObject(
        f"The objects of operators in namespace {namespace} take more than {MAX_STORED_BYTES / 2**20:.0f} MiB of "
        f"memory, so that those of this resource are not read. Delete those that no operator made: {listing}"
    )


def _members(resource: Obj) -> int:
    """Return the number of servers that a spec requests, or that exist, up to the most that any schema accepts."""
    parts = [each for field in ("spec", "status") if isinstance(each := resource.get(field), dict)]
    numbers = [each.get(field) for each in parts for field in ("replicas", "size")]
    return min(max((each for each in numbers if isinstance(each, int)), default=0), 1_000)


def _object_name(obj: Obj) -> _ObjectName:
    metadata = obj["metadata"]
    return _ObjectName(metadata.get("namespace") or "", metadata["name"])
