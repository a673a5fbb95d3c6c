"""Objects that reconciles read by name, such as the Secrets that a spec names, and whether they changed since.

What a reconcile reads while it observes a resource is noted with its version, so no operator declares anything. A watch
of the metadata of such objects reports a change within a second. It needs the verb `watch`, which RBAC cannot restrict
to some names without listing them. Without it, each noted object is read by name every few seconds: the operator may do
that anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError, NotFound
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.kubernetes.streams import DELETED, METADATA_ONLY, Event

MISSING, UNREAD = 0, -1
"""Versions of an object that does not exist, and of one that is being read."""

POLL_SECONDS = 10.0
"""Seconds between two reads of an object whose kind cannot be watched."""

MAX_CONCURRENT_READS = 4
"""Maximum number of concurrent reads, so that polling never competes with reconciles for connections."""

_Name = tuple[Kind, str, str]


class Dependencies:
    """Versions of the objects that the resources of a controller depend on.

    Args:
        kinds: kinds whose objects are noted.
        changed: called with the key of a resource after one of its objects changed.
    """

    def __init__(self, kinds: Iterable[Kind], changed: Callable[[Key], None]) -> None:
        self.kinds = tuple(kinds)
        self._changed = changed
        self._read: dict[Key, dict[_Name, int]] = {}
        self._readers: dict[_Name, set[Key]] = {}

    @contextlib.contextmanager
    def noting(self, key: Key, kube: Kube) -> Iterator[Kube]:
        """Yield a client that notes what it reads: the objects on which the resource depends from now on."""
        noting = _NotingKube(kube, self, key)
        try:
            yield noting
        finally:
            self._forget(key, self._read.get(key, {}).keys() - noting.names)

    def note(self, key: Key, name: _Name, version: int) -> None:
        """Note the version of an object that a resource depends on."""
        self._read.setdefault(key, {})[name] = version
        self._readers.setdefault(name, set()).add(key)

    def forget(self, key: Key) -> None:
        """Forget a resource, because it is deleted."""
        self._forget(key, set(self._read.get(key, ())))

    def names(self, kind: Kind, namespace: str | None) -> list[tuple[str, str]]:
        """Return namespace and name of every noted object of a kind, in a namespace or (None) in all."""
        return [(at, name) for of, at, name in self._readers if of == kind and namespace in (None, at)]

    def report(self, kind: Kind, namespace: str, name: str, version: int) -> None:
        """Report the resources that have read another version of an object."""
        noted = (kind, namespace, name)
        for key in list(self._readers.get(noted, ())):
            if self._read[key][noted] != version:
                self._read[key][noted] = version
                self._changed(key)

    def _forget(self, key: Key, names: AbstractSet[_Name]) -> None:
        for name in names:
            del self._read[key][name]
            self._readers[name].discard(key)
            if not self._readers[name]:
                del self._readers[name]
        if not self._read.get(key):
            self._read.pop(key, None)


class _NotingKube(Kube):
    """A client that notes the versions of the objects that it reads by name."""

    def __init__(self, kube: Kube, dependencies: Dependencies, key: Key) -> None:
        super().__init__(kube._transport, manager=kube.manager)
        self._dependencies = dependencies
        self._key = key
        self.names: set[_Name] = set()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        noted = (kind, namespace or "", name)
        if kind not in self._dependencies.kinds or noted in self.names:  # of two reads the first counts
            return await super().get(kind, namespace, name)
        self.names.add(noted)
        self._dependencies.note(self._key, noted, UNREAD)  # before the read, so that no event falls between the two
        try:
            found = await super().get(kind, namespace, name)
        except NotFound:
            self._dependencies.note(self._key, noted, MISSING)
            raise
        self._dependencies.note(self._key, noted, resource_version(found))
        return found


class NamedContent:
    """The objects of a collection on which resources depend; nothing of them is stored.

    Its watch begins with the present objects, so it needs no right to list.
    """

    accept = METADATA_ONLY

    def __init__(self, kind: Kind, dependencies: Iterable[Dependencies]) -> None:
        self._kind = kind
        self._dependencies = tuple(dependencies)

    async def load(self) -> int:
        return 0

    def take(self, event: Event) -> None:
        metadata = event.obj["metadata"]
        version = MISSING if event.type == DELETED else event.version
        for dependencies in self._dependencies:
            dependencies.report(self._kind, metadata.get("namespace") or "", metadata["name"], version)


async def poll(kube: Kube, kind: Kind, namespace: str | None, dependencies: Iterable[Dependencies]) -> None:
    """Read every noted object of a collection once, and report those that changed."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_READS)

    async def read(of: Dependencies, at: str, name: str) -> None:
        async with limit:
            try:
                version = resource_version(await kube.get(kind, at, name))
            except NotFound:
                version = MISSING
            except KubeError:
                return  # unknown is no change
        of.report(kind, at, name, version)

    await asyncio.gather(*(read(of, *noted) for of in dependencies for noted in of.names(kind, namespace)))
