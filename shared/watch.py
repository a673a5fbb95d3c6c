"""What an operator watches: kopf lists and watches, and the cache becomes as it hears.

kopf is the shell and this is the only module that imports it. It makes its requests through a session of ours, and so
the cache comes first: each list of kopf's becomes the cache's truth (kopf would tell of no deletion that happened while
a watch was broken), and of a watch kopf hears only what the cache does not know, which spares it the echo of our own
writes. That goes through its `on.event` handlers, which do nothing but enter it into the cache.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf
from aiohttp.connector import Connection
from kubernetes.aio.client import Configuration
from yarl import URL

from shared.cache import Cache, Relist
from shared.connection import authorization, open_session
from shared.kube import Kind, Kube, KubeError, Obj, complete
from shared.queue import Key
from shared.reconciler import Controller

log = logging.getLogger(__name__)

PAGE = 500
"""Objects that are listed at once: more would take memory for a moment, and keep it."""


class Watch:
    """Keeps a cache true to the API server.

    Args:
        controller: what is watched: its kind, and what it owns.
        cache: what is kept.
        namespaces: where; empty for all.
        changed: hears of every resource about which a list said something new.

    Attributes:
        synced: set once everything was listed.
    """

    def __init__(
        self,
        controller: Controller[Any, Any],
        cache: Cache,
        *,
        kube: Kube,
        configuration: Configuration,
        namespaces: tuple[str, ...],
        changed: Callable[[Key], None],
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._kube = kube
        self._configuration = configuration
        self._namespaces = namespaces
        self._changed = changed
        self._collections = {
            kind.path(namespace): (kind, namespace) for kind in controller.kinds for namespace in namespaces or (None,)
        }
        self._prefix = urlsplit(configuration.host).path.rstrip("/")  # of an API server behind a proxy
        self._relists: dict[str, Relist] = {}
        self._unlisted = set(self._collections)
        self.synced = asyncio.Event()

    @property
    def awaited(self) -> tuple[str, ...]:
        """Paths of the collections that were not listed yet."""
        return tuple(sorted(self._unlisted))

    async def refresh(self) -> None:
        """List everything anew: the net under all that could have been missed; tries until it succeeds."""
        for kind, namespace in self._collections.values():
            delay = 0.5
            while True:
                try:
                    await self._relist(kind, namespace)
                    break
                except KubeError as error:
                    log.warning("cannot list %s, trying again: %s", kind.plural, error)
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, 30.0)

    async def _relist(self, kind: Kind, namespace: str | None) -> None:
        relist, labels, after = Relist(self._cache, kind, namespace), self._controller.labels_of(kind), ""
        while True:
            page = await self._kube.list(kind, namespace, labels=labels, limit=PAGE, after=after)
            self._tell(relist.take(page))
            after = page["metadata"].get("continue") or ""
            if not after:
                return

    async def run(self, begun: Callable[[], None]) -> None:
        """Watch until told to stop.

        Args:
            begun: called once kopf has set its handlers of signals, so that the process can set its own: kopf would
                end every task there is, and at once.
        """
        others = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=self._settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        begun()
        await kopf.run_tasks(tasks, ignored=others)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for kind in self._controller.kinds:
            on_event = kopf.on.event(
                group=kind.group, version=kind.version, plural=kind.plural, id=kind.plural, registry=registry
            )
            on_event(self._handler(kind))
        return registry

    def _handler(self, kind: Kind) -> Callable[..., None]:
        async def enter(event: kopf.RawEvent, **_: Any) -> None:
            obj: Obj = dict(event["object"])
            obj.setdefault("apiVersion", kind.api_version)
            obj.setdefault("kind", kind.name)
            if event["type"] == "DELETED":
                self._cache.gone(kind, obj)
            else:
                self._cache.seen(kind, obj)

        return enter  # type: ignore[return-value]

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.posting.enabled = False
        settings.watching.server_timeout = 300
        settings.watching.chunk_size = PAGE
        settings.queueing.idle_timeout = 1.0  # what kopf keeps ready for an object takes more memory than the object
        settings.networking.request_timeout = 30
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        for kind in self._controller.owns:
            settings.watching.label_selectors[kind.group, kind.plural] = self._controller.labels_of(kind)
        return settings

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """The official client's credentials, in a session whose answers the cache hears first."""
        session = open_session(self._configuration, answers=self._answers())
        session.headers.update(await authorization(self._configuration))
        return kopf.AiohttpSession(server=self._configuration.host, aiohttp_session=session)

    def _answers(self) -> type[aiohttp.ClientResponse]:
        watch = self

        class Answer(aiohttp.ClientResponse):
            """What kopf asked for, without what the cache knows."""

            async def start(self, connection: Connection) -> aiohttp.ClientResponse:
                await super().start(connection)
                collection = watch._collection(self.url) if self.ok else None
                if collection and "watch" in self.url.query:
                    self.content = _News(self.content, watch._cache, collection[0])  # type: ignore[assignment]
                return self

            async def json(self, **options: Any) -> Any:
                found = await super().json(**options)
                collection = watch._collection(self.url) if self.ok else None
                return watch._listed(self.url, collection, found) if collection else found

        return Answer

    def _collection(self, url: URL) -> tuple[Kind, str | None] | None:
        """The kind and the namespace that a request asks for; None if it is for something else."""
        return self._collections.get(url.path.removeprefix(self._prefix))

    def _listed(self, url: URL, collection: tuple[Kind, str | None], page: Obj) -> Obj:
        """Make a list of kopf's the cache's truth, page by page.

        Returns:
            What is left for kopf to tell of: a page without items.
        """
        kind, namespace = collection
        if "continue" not in url.query:
            self._relists[url.path] = Relist(self._cache, kind, namespace)
        self._tell(self._relists[url.path].take(complete(kind, page)))
        if not page["metadata"].get("continue"):
            self._unlisted.discard(kind.path(namespace))
            if not self._unlisted:
                self.synced.set()
        return {**page, "items": []}

    def _tell(self, keys: set[Key]) -> None:
        for key in keys:
            self._changed(key)


class _News:
    """A watch's answer, of which only those lines are heard that tell what a cache does not know."""

    def __init__(self, content: aiohttp.StreamReader, cache: Cache, kind: Kind) -> None:
        self._content = content
        self._cache = cache
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not self._is_known(line):
                    yield line + b"\n"

    def _is_known(self, line: bytes) -> bool:
        event = json.loads(line)
        return event["type"] in ("ADDED", "MODIFIED") and self._cache.knows(self._kind, event["object"])


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf keeps nothing on objects: with `on.event` alone it needs nothing, and every write of its costs."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """As above, for the progress of handlers."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
