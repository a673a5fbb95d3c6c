"""Watches of an operator: kopf lists and watches, and the objects enter the cache.

No other module imports kopf. It discovers the served kinds, lists, watches, and reconnects broken watches. It does so
through a session that passes all objects to the cache and none to kopf:

- A list replaces the content of the cache. kopf itself would not report deletions during a broken watch.
- An event enters the cache directly. Through kopf's handlers it would take eight times as long (0.4 ms), and kopf would
  keep a task per object for seconds, and its memory permanently.
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
from shared.kubernetes.credentials import Configuration, authorization
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.transport import open_session
from shared.runtime.cache import Cache, Relist
from shared.runtime.controller import Controller

log = logging.getLogger(__name__)

SHUTDOWN_GRACE_SECONDS = 2.0
"""Seconds allowed for kopf's tasks to end."""

LIST_PAGE_ITEMS = 500
"""Number of objects per page of a list, which limits the memory that a list takes."""


class Watch:
    """Keeps caches in sync with the API server. A kind that several controllers read is watched once.

    Args:
        caches: caches by controller; each receives the controller's kind and the kinds that it owns.
        namespaces: namespaces to watch; empty for all.

    Attributes:
        synced: set after the initial lists.
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
                self._labels[kind] = labels and self._labels.get(kind, labels)  # "": a controller needs all of them
        self._collections = {
            kind.path(namespace): (kind, namespace) for kind in self._takers for namespace in namespaces or (None,)
        }
        self._prefix = urlsplit(configuration.host).path.rstrip("/")  # if the API server is behind a proxy
        self._relists: dict[str, list[Relist]] = {}
        self._unlisted = set(self._collections)
        self.synced = asyncio.Event()

    @property
    def awaited(self) -> tuple[str, ...]:
        """Paths of the collections that have not been listed yet."""
        return tuple(sorted(self._unlisted))

    async def refresh(self) -> None:
        """List everything again, to recover missed events; retries until it succeeds."""
        for kind, namespace in self._collections.values():
            delay = 0.5
            while True:
                try:
                    await self._relist(kind, namespace)
                    break
                except KubeError as error:
                    log.warning("cannot list %s, retrying: %s", kind.plural, error)
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
        """Watch until cancelled.

        Args:
            begun: called after kopf has set its signal handlers, so that the process can replace them: kopf's would
                cancel every task at once.

        Raises:
            KubeError: kopf stopped unexpectedly.
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
        finally:  # kopf.run_tasks may hang, and cancels tasks that are not kopf's
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=SHUTDOWN_GRACE_SECONDS)
        why = next((error for task in ended if not task.cancelled() and (error := task.exception())), None)
        raise KubeError(f"watching failed: {_cause(why) or 'kopf stopped'}. The operator exits, to be restarted.")

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
        """Return a session with the official client's credentials, whose responses go to the cache."""
        session = open_session(self._configuration, answers=self._answers())
        session.headers.update(await authorization(self._configuration))
        return kopf.AiohttpSession(server=self._configuration.host, aiohttp_session=session)

    def _answers(self) -> type[aiohttp.ClientResponse]:
        watch = self

        class Answer(aiohttp.ClientResponse):
            """A response without the objects that the cache has taken."""

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
        """Return kind and namespace of a request for a watched collection; None for other requests."""
        return self._collections.get(url.path.removeprefix(self._prefix))

    def _listed(self, url: URL, collection: tuple[Kind, str | None], page: Obj) -> Obj:
        """Replace the content of the cache by a list of kopf's, page by page.

        Returns:
            The page without items, for kopf.
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
    """Endless delays in seconds between retries of a request that got no response or was forbidden.

    By default kopf gives up after a minute, and then neither exits nor watches.
    """

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1, 2, 5)
        while True:
            yield 10.0


def _cause(error: BaseException | None) -> BaseException | None:
    """Return the root cause of an error: kopf wraps errors of its tasks."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return error


def _take(relists: Iterable[Relist], page: Obj) -> None:
    for relist in relists:
        relist.cache.report(relist.take(page))


def _nothing_is_left(**_: Any) -> None:
    """Handle nothing: a handler makes kopf watch its kind, and the cache receives the events."""


class Entered:
    """The stream of a watch: its objects enter the caches; only bookmarks and errors are passed on."""

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
    """Pass an event about an object to the caches; return False for other events."""
    if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
        return False
    for cache in caches:
        (cache.on_deleted if event["type"] == "DELETED" else cache.on_changed)(kind, event["object"])
    return True
