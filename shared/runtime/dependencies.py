"""Objects that reconciles read by name, such as the Secrets that a spec names, and whether they changed since.

What a reconcile reads while it observes a resource is noted with its version, so no operator declares anything. A watch
of the metadata of such objects reports a change within a second. It needs the verb `watch`, which RBAC cannot restrict
to some names without listing them. Without it, each noted object is read by name every few seconds: the operator may do
that anyway.

As long as nothing is reported, a copy of what was read is still current, so that the regular reconciles of an unchanged
resource do not read it again. One reconcile reads each object once, however often it observes the resource: it knows
what it writes itself, and other changes are reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from weakref import WeakValueDictionary

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import METADATA_ONLY, Kube
from shared.kubernetes.encoding import memory
from shared.kubernetes.errors import Conflict, KubeError, NotFound, TooLarge
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Key, Kind, Obj
from shared.kubernetes.ownership import require_small
from shared.kubernetes.secrets import UNREAD_DATA, reduce
from shared.kubernetes.streams import DELETED, Event

MISSING, UNREAD = 0, -1
"""Versions of an object that does not exist, and of one that is being read."""

POLL_SECONDS = 10.0
"""Seconds between two reads of an object whose kind cannot be watched."""

MAX_CONCURRENT_READS = 4
"""Maximum number of concurrent reads, so that polling never competes with reconciles for connections."""

MAX_COPIES_BYTES, MAX_COPY_BYTES = 16 * 1024 * 1024, 64 * 1024
"""Maximum size of all copies, and of one; objects that are not kept are read at each reconcile."""

LARGE_READS_BYTES = 64 * 1024
"""Memory of what a reconcile has read live from which it is the only such one of its namespace, until it ends."""

_Name = tuple[Kind, str, str]


class Dependencies:
    """Versions of the objects that the resources of a controller depend on, and copies of them.

    Args:
        kinds: kinds whose objects are noted.
        changed: called with the key of a resource after one of its objects changed.
        leads: whether this replica reconciles a resource: for others it polls nothing.

    Attributes:
        are_observed: whether every change is reported within seconds; copies are not used before.
    """

    def __init__(
        self, kinds: Iterable[Kind], changed: Callable[[Key], None], leads: Callable[[Key], bool] = lambda _: True
    ) -> None:
        self.kinds = tuple(kinds)
        self.are_observed = False
        self._changed = changed
        self._leads = leads
        self._read: dict[Key, dict[_Name, int]] = {}
        self._readers: dict[_Name, set[Key]] = {}
        self._copies: defaultdict[str, dict[_Name, bytes]] = defaultdict(dict)  # by namespace, the oldest first
        self._sizes: Counter[str] = Counter()  # of the copies of each namespace, in bytes
        self._copies_bytes = 0
        self._settled: dict[Key, object] = {}
        self._own: set[_Name] = set()
        self._known: dict[Key, dict[_Name, Obj | None]] = {}  # what the running reconciles have read and written
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by namespace
        self._turn_of: dict[Key, asyncio.Lock] = {}  # of the running reconciles that have read much
        self._conflicts: set[_Name] = set()  # objects whose last write was refused: others have written them
        self._writing: dict[_Name, int | None] = {}  # objects being written, with the version reported meanwhile

    @contextlib.contextmanager
    def reconcile(self, key: Key) -> Iterator[None]:
        """Remember what a reconcile reads and writes until the context exits."""
        self._known[key] = {}
        try:
            yield
        finally:
            self._known.pop(key, None)
            if (turn := self._turn_of.pop(key, None)) is not None:
                turn.release()

    async def take_turn(self, key: Key) -> None:
        """Wait until no other running reconcile of the namespace has read much, which ends with this one."""
        known = self._known.get(key)
        if known is not None and key not in self._turn_of:
            turn = self._turns.setdefault(key.namespace, asyncio.Lock())
            await turn.acquire()
            if self._known.get(key) is not known:  # the reconcile has failed meanwhile, and left this read behind
                turn.release()
                return
            self._turn_of[key] = turn

    def has_turn(self, key: Key) -> bool:
        """Whether a reconcile may read much, or is not limited by others: it is not running."""
        return key not in self._known or key in self._turn_of

    async def written(self, key: Key, kind: Kind, namespace: str, name: str, write: Awaitable[Obj]) -> Obj:
        """Wait for the response to a write by a reconcile, and note it.

        The watch event of the write may arrive first. It is not reported, unless it has another version.
        """
        noted = (kind, namespace, name)
        if kind not in self.kinds or noted in self._writing:
            return await write
        self._writing[noted] = None
        version = None
        try:
            answer = await write
            self._conflicts.discard(noted)
            version = self._read.setdefault(key, {})[noted] = resource_version(answer)
            self._readers.setdefault(noted, set()).add(key)
            self._known.get(key, {})[noted] = answer
            self.keep(noted, answer)
        except Conflict:
            self._conflicts.add(noted)
            raise
        finally:
            reported = self._writing.pop(noted)
            if reported is not None and reported != version:
                self.report(kind, namespace, name, reported)
            elif version is not None:
                self.report(kind, namespace, name, version)  # to other readers
        return answer

    def has_conflict(self, name: _Name) -> bool:
        """Whether the last write of an object found it in another state than observed."""
        return name in self._conflicts

    def known(self, key: Key) -> dict[_Name, Obj | None]:
        """Return what the running reconcile of a resource has read and written; nothing is kept outside of one."""
        return self._known.get(key, {})

    def settle(self, key: Key, spec: object) -> None:
        """Note that a reconcile has read everything after its last change: the next one may use the copies.

        Args:
            spec: identifies the spec; a reconcile of another one reads everything again, because users often change a
                Secret together with the resource.
        """
        self._settled[key] = spec

    @contextlib.contextmanager
    def noting(self, key: Key, kube: Kube, spec: object = None) -> Iterator[Kube]:
        """Yield a client that notes what it reads: the objects on which the resource depends from now on.

        Args:
            spec: identifies the spec (`settle`); None always reads live.
        """
        is_settled = spec is not None and self._settled.pop(key, None) == spec
        noting = _NotingKube(kube, self, key, uses_copies=is_settled and self.are_observed)
        try:
            yield noting
        finally:
            self._forget(key, self._read.get(key, {}).keys() - noting.names)

    def note(self, key: Key, name: _Name, version: int) -> int | None:
        """Note the version of an object that a resource depends on; return the one that was noted before."""
        versions = self._read.setdefault(key, {})
        before, versions[name] = versions.get(name), version
        self._readers.setdefault(name, set()).add(key)
        return before

    def notes(self, key: Key, name: _Name) -> bool:
        """Whether a version of an object is noted for a resource."""
        return name in self._read.get(key, {})

    def has_copy(self, name: _Name) -> bool:
        """Whether what was last read of an object is kept, and still current."""
        return name in self._copies.get(name[1], ())

    def copy(self, name: _Name) -> Obj | None:
        """Return what was last read of an object; None if it did not exist."""
        found: Obj | None = marshal.loads(self._copies[name[1]][name])  # noqa: S302  # packed by this process
        return found

    def keep(self, name: _Name, obj: Obj | None) -> None:
        """Keep what was read of an object (None: it does not exist).

        Not kept is one that is too large, or beyond MAX_COPIES_BYTES if no other namespace has more copies.
        """
        self._drop(name)
        if not self.are_observed or len(packed := marshal.dumps(obj)) > MAX_COPY_BYTES:
            return
        while self._copies_bytes + len(packed) > MAX_COPIES_BYTES:
            largest = max(self._sizes, key=self._sizes.__getitem__, default=name[1])
            if self._sizes[largest] <= self._sizes[name[1]]:
                return
            self._drop(next(iter(self._copies[largest])))
        self._copies[name[1]][name] = packed
        self._resize(name, len(packed))

    def drop_copies(self, kind: Kind) -> None:
        """Drop the copies of a kind, because a deletion may have been missed."""
        for name in [name for copies in self._copies.values() for name in copies if name[0] == kind]:
            self._drop(name)

    def _drop(self, name: _Name) -> None:
        if self.has_copy(name):
            self._resize(name, -len(self._copies[name[1]].pop(name)))

    def _resize(self, name: _Name, by: int) -> None:
        """Count the bytes of a copy that was added or dropped."""
        namespace = name[1]
        self._sizes[namespace] += by
        self._copies_bytes += by
        if not self._copies[namespace]:
            del self._copies[namespace], self._sizes[namespace]

    def forget(self, key: Key) -> None:
        """Forget a resource, because it is deleted."""
        self._settled.pop(key, None)
        self._forget(key, set(self._read.get(key, ())))

    def forget_all(self, owns: Callable[[Key], bool]) -> None:
        """Forget resources, because another replica may have reconciled them."""
        for key in [key for key in {**self._read, **self._settled} if owns(key)]:
            self.forget(key)

    def names(self, kind: Kind, namespace: str | None) -> list[tuple[str, str]]:
        """Return namespace and name of every object of a kind to poll, in a namespace or (None) in all in turns."""
        found: list[tuple[int, str, str]] = []
        turns = Counter[str]()
        for of, at, name in self._readers.keys() - self._own:
            if of == kind and namespace in (None, at) and any(map(self._leads, self._readers[of, at, name])):
                found.append((turns[at], at, name))
                turns[at] += 1
        return [(at, name) for _, at, name in sorted(found)]

    def note_own(self, name: _Name) -> None:
        """Note that the operator itself writes an object, so that it is not polled."""
        self._own.add(name)

    def drop_own_copies(self, kind: Kind) -> None:
        """Drop the copies of objects that are not polled, because a change may have been missed."""
        for name in [name for name in self._own if name[0] == kind]:
            self._drop(name)

    def report(self, kind: Kind, namespace: str, name: str, version: int) -> None:
        """Report the resources that have read another version of an object."""
        noted = (kind, namespace, name)
        if noted in self._writing:
            self._writing[noted] = version
            return
        for key in list(self._readers.get(noted, ())):
            if self._read[key][noted] != version:
                self._read[key][noted] = version
                self._drop(noted)
                self._changed(key)

    def _forget(self, key: Key, names: AbstractSet[_Name]) -> None:
        for name in names:
            del self._read[key][name]
            self._readers[name].discard(key)
            if not self._readers[name]:
                del self._readers[name]
                self._own.discard(name)
                self._conflicts.discard(name)
                self._drop(name)
        if not self._read.get(key):
            self._read.pop(key, None)


class _NotingKube(Kube):
    """A client that notes the versions of the objects that it reads by name.

    It reads a few at a time, and those that are not noted, such as volume claims, only as long as they take little
    memory together: other users may create objects of the names that a resource would have. Those of a namespace take
    turns to read more than a little. Of one that is noted and too large, it returns the UID and `UNREAD_DATA`.

    Args:
        uses_copies: whether a copy is returned instead of a read.
    """

    def __init__(self, kube: Kube, dependencies: Dependencies, key: Key, *, uses_copies: bool) -> None:
        super().__init__(kube._transport, manager=kube.manager)
        self._dependencies = dependencies
        self._key = key
        self._uses_copies = uses_copies
        self._reconcile = dependencies.known(key)
        self._turn = asyncio.Semaphore(MAX_CONCURRENT_READS)
        self._asking, self._alone = asyncio.Lock(), asyncio.Lock()
        self._size, self._advice = 0, ""
        self.names: set[_Name] = set()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        noted = (kind, namespace or "", name)
        if kind not in self._dependencies.kinds or noted in self.names:  # of two reads the first counts
            return await self._read(kind, namespace, name)
        self.names.add(noted)
        dependencies, key = self._dependencies, self._key
        known = dependencies.known(key)
        if noted in known:
            if not dependencies.notes(key, noted):
                dependencies.note(key, noted, _version(known[noted]))
            return _existing(noted, known[noted])
        if self._uses_copies and dependencies.has_copy(noted):
            found = dependencies.copy(noted)
            dependencies.note(key, noted, _version(found))
            return _existing(noted, found)
        dependencies.note(key, noted, UNREAD)  # before the read, so that no event falls between the two
        try:
            found = await self._read(kind, namespace, name)
        except NotFound:
            found = None
        if dependencies.note(key, noted, _version(found)) == UNREAD:  # no event since
            dependencies.keep(noted, found)
        known[noted] = found
        return _existing(noted, found)

    async def _read(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        is_large = self._size > LARGE_READS_BYTES
        async with self._turn, self._alone if is_large else contextlib.nullcontext():
            require_small(self._size, self._advice)  # others wait for their turn after the one that was too much
            try:
                found = await super().get(kind, namespace, name)
            except TooLarge:
                if kind not in self._dependencies.kinds:
                    raise
                metadata = await self.metadata(kind, namespace, name)
                found = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
                reduce(found, UNREAD_DATA)
            if kind.namespaced and kind not in (*self._dependencies.kinds, POD):  # those do not stay in memory
                is_much = self._size + memory(found) > LARGE_READS_BYTES
                if is_much and not self._dependencies.has_turn(self._key):
                    del found  # the wait may be long
                    await self._take_turn()
                    found = await super().get(kind, namespace, name)
                self._size += memory(found)
                self._advice = f"One is {kind.name} {name}: remove its annotations."
                require_small(self._size, self._advice)
        return found

    async def _take_turn(self) -> None:
        async with self._asking:  # several reads at once have one turn
            if self._dependencies.known(self._key) is self._reconcile:  # else it has failed, and left this read behind
                await self._dependencies.take_turn(self._key)

    async def pages(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> AsyncIterator[Obj]:
        if kind == PERSISTENT_VOLUME_CLAIM:  # the caller keeps all of them
            await self._take_turn()
        async for page in super().pages(kind, namespace, labels=labels):
            yield page

    async def find_own(self, kind: Kind, namespace: str, name: str, *, is_new: bool) -> Obj | None:
        if kind in self._dependencies.kinds:
            noted = (kind, namespace, name)
            self._dependencies.note_own(noted)
            if is_new and not self._dependencies.has_conflict(noted):
                self._dependencies.known(self._key).setdefault(noted, None)
        return await self.find(kind, namespace, name)


def _version(found: Obj | None) -> int:
    return MISSING if found is None else resource_version(found)


def _existing(name: _Name, found: Obj | None) -> Obj:
    if found is None:
        raise NotFound(f"{name[0]} {name[2]} does not exist", status=404)
    return found


class NamedContent:
    """The objects of a collection on which resources depend; only what reconciles have read is stored.

    Its watch begins with the present objects, so it needs no right to list.
    """

    accept = METADATA_ONLY

    def __init__(self, kind: Kind, dependencies: Iterable[Dependencies]) -> None:
        self._kind = kind
        self._dependencies = tuple(dependencies)

    async def load(self, namespace: str | None = None) -> int:  # noqa: ARG002
        for dependencies in self._dependencies:
            dependencies.drop_copies(self._kind)
        return 0

    def take(self, event: Event) -> None:
        metadata = event.obj["metadata"]
        version = MISSING if event.type == DELETED else resource_version(event.obj)
        for dependencies in self._dependencies:
            dependencies.report(self._kind, metadata.get("namespace") or "", metadata["name"], version)


async def poll(kube: Kube, kind: Kind, namespace: str | None, dependencies: Sequence[Dependencies]) -> None:
    """Read every noted object of a collection once, and report those that changed.

    Objects that the operator itself writes are read at the next reconcile instead: otherwise each resource would cost a
    request every few seconds.
    """
    limit = asyncio.Semaphore(MAX_CONCURRENT_READS)
    for each in dependencies:
        each.drop_own_copies(kind)

    async def read(of: Dependencies, at: str, name: str) -> None:
        async with limit:
            try:
                version = int((await kube.metadata(kind, at, name))["resourceVersion"])
            except NotFound:
                version = MISSING
            except KubeError:
                return  # unknown is no change
        of.report(kind, at, name, version)

    await asyncio.gather(*(read(of, *noted) for of in dependencies for noted in of.names(kind, namespace)))
