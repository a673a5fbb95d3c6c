"""What an operator watches: kopf lists and watches, and what comes in enters the cache.

kopf is the shell and this is the only module that imports it: it finds out what is served, lists, watches, and begins
anew when a watch breaks. It does so through a session of ours, and what that brings goes to the cache and no further:

- A list becomes the cache's truth. kopf would tell of no deletion that happened while a watch was broken.
- An event is entered as it comes. On its way through kopf to a handler it would cost eight times the time (0.4 ms), and
  kopf would keep a task for the object for seconds and a memory of it for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf
from aiohttp.connector import Connection
from yarl import URL

from shared.kubernetes.client import Kube, complete
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.transport import Configuration, authorization, open_session
from shared.runtime.cache import Cache, Relist
from shared.runtime.controller import Controller

log = logging.getLogger(__name__)

SHUTDOWN_GRACE_SECONDS = 2.0
"""Seconds that kopf's tasks get to end."""

LIST_PAGE_ITEMS = 500
"""Objects that are listed at once: more would take memory for a moment, and keep it."""


class Watch:
    """Keeps caches true to the API server. What several controllers look at is watched once.

    Args:
        caches: what is kept, by the controller that it is kept for: of its kind, and of what it owns.
        namespaces: where; empty for all.

    Attributes:
        synced: set once everything was listed.
    """

    def __init__(
        self,
        caches: Sequence[tuple[Controller[Any, Any], Cache]],
        *,
        kube: Kube,
        configuration: Configuration,
        namespaces: tuple[str, ...],
    ) -> None:
        self._kube = kube
        self._configuration = configuration
        self._namespaces = namespaces
        self._takers: dict[Kind, list[Cache]] = {}
        self._labels: dict[Kind, str] = {}
        for controller, cache in caches:
            for kind in controller.kinds:
                self._takers.setdefault(kind, []).append(cache)
                labels = controller.labels_of(kind)
                self._labels[kind] = labels and self._labels.get(kind, labels)  # "": somebody wants all of them
        self._collections = {
            kind.path(namespace): (kind, namespace) for kind in self._takers for namespace in namespaces or (None,)
        }
        self._prefix = urlsplit(configuration.host).path.rstrip("/")  # of an API server behind a proxy
        self._relists: dict[str, list[Relist]] = {}
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
        relists, after = self._begin(kind, namespace), ""
        while True:
            page = await self._kube.list(kind, namespace, labels=self._labels[kind], limit=LIST_PAGE_ITEMS, after=after)
            _take(relists, page)
            after = page["metadata"].get("continue") or ""
            if not after:
                return

    async def run(self, begun: Callable[[], None]) -> None:
        """Watch until told to stop.

        Args:
            begun: called once kopf has set its handlers of signals, so that the process can set its own: kopf would
                end every task there is, and at once.

        Raises:
            KubeError: kopf ended by itself.
        """
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=self._settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        begun()
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:  # not by kopf.run_tasks: it may wait for ever, and it ends what is not kopf's
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=SHUTDOWN_GRACE_SECONDS)
        why = next((error for task in ended if not task.cancelled() and (error := task.exception())), None)
        raise KubeError(f"watching ended: {_cause(why) or 'kopf stopped'}. The operator ends, to be started again.")

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for kind in self._takers:
            on_event = kopf.on.event(
                group=kind.group, version=kind.version, plural=kind.plural, id=kind.plural, registry=registry
            )
            on_event(_nothing_is_left)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.posting.enabled = False
        settings.watching.server_timeout = 300
        settings.watching.chunk_size = LIST_PAGE_ITEMS
        settings.networking.request_timeout = 30
        settings.networking.error_backoffs = _Patience()
        for kind, labels in self._labels.items():
            if labels:
                settings.watching.label_selectors[kind.group, kind.plural] = labels
        return settings

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """The official client's credentials, in a session whose answers go to the cache."""
        session = open_session(self._configuration, answers=self._answers())
        session.headers.update(await authorization(self._configuration))
        return kopf.AiohttpSession(server=self._configuration.host, aiohttp_session=session)

    def _answers(self) -> type[aiohttp.ClientResponse]:
        watch = self

        class Answer(aiohttp.ClientResponse):
            """What is left of an answer when the cache has taken the objects in it."""

            async def start(self, connection: Connection) -> aiohttp.ClientResponse:
                await super().start(connection)
                collection = watch._collection(self.url) if self.ok else None
                if collection and "watch" in self.url.query:
                    self.content = Entered(self.content, watch._takers[collection[0]], collection[0])  # type: ignore[assignment]
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
            self._relists[url.path] = self._begin(kind, namespace)
        _take(self._relists[url.path], complete(kind, page))
        if not page["metadata"].get("continue"):
            self._unlisted.discard(kind.path(namespace))
            if not self._unlisted:
                self.synced.set()
        return {**page, "items": []}

    def _begin(self, kind: Kind, namespace: str | None) -> list[Relist]:
        return [Relist(cache, kind, namespace) for cache in self._takers[kind]]


class _Patience:
    """Seconds between tries of a request that got no answer or was forbidden, for ever.

    By its own measure kopf gives up after a minute, and then neither ends nor watches.
    """

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1, 2, 5)
        while True:
            yield 10.0


def _cause(error: BaseException | None) -> BaseException | None:
    """What began an error: kopf wraps what goes wrong inside its tasks."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return error


def _take(relists: Iterable[Relist], page: Obj) -> None:
    for relist in relists:
        relist.cache.report(relist.take(page))


def _nothing_is_left(**_: Any) -> None:
    """What there is a handler for is watched; the cache has taken all that a handler would be told."""


class Entered:
    """A watch's stream, whose objects enter caches as they are read; only bookmarks and errors are read further."""

    def __init__(self, content: aiohttp.StreamReader, caches: Sequence[Cache], kind: Kind) -> None:
        self._content = content
        self._caches = caches
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not _enter(self._caches, self._kind, json.loads(line)):
                    yield line + b"\n"


def _enter(caches: Sequence[Cache], kind: Kind, event: Obj) -> bool:
    """Enter what a watch tells of an object; False if it tells of something else."""
    if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
        return False
    for cache in caches:
        (cache.gone if event["type"] == "DELETED" else cache.seen)(kind, event["object"])
    return True
