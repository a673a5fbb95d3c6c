"""What an operator watches: kopf tells what happens, and lists of ours say what is.

kopf is the shell and this is the only module that imports it. Its `on.event` handlers do nothing but enter what they
are told into the cache. kopf tells of no deletion that happened while a watch was broken; so each list that it makes
is followed by one of ours, which becomes the cache's truth. The first of these fill the cache.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from shared.cache import Cache
from shared.kube import Kind, Kube, KubeError, Obj
from shared.queue import Key
from shared.reconciler import Controller

log = logging.getLogger(__name__)


class Watch:
    """Keeps a cache true to the API server.

    Args:
        controller: what is watched: its kind, and what it owns.
        cache: what is kept.
        namespaces: where; empty for all.
        changed: hears of every resource about which a list said something new.
        start: starts a task in the background; its failure is the process's.

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
        start: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._kube = kube
        self._configuration = configuration
        self._namespaces = namespaces
        self._changed = changed
        self._start = start
        self._collections = {
            kind.path(namespace): (kind, namespace) for kind in controller.kinds for namespace in namespaces or (None,)
        }
        self._prefix = urlsplit(configuration.host).path.rstrip("/")  # of an API server behind a proxy
        self._unlisted = set(self._collections)
        self.synced = asyncio.Event()

    @property
    def awaited(self) -> tuple[str, ...]:
        """Paths of the collections that were not listed yet."""
        return tuple(sorted(self._unlisted))

    async def refresh(self) -> None:
        """List everything anew: the net under all that could have been missed."""
        for path in self._collections:
            await self._refresh(path)

    async def run(self) -> None:
        """Watch until told to stop."""
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )

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
        settings.networking.request_timeout = 30
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        for kind in self._controller.owns:
            settings.watching.label_selectors[kind.group, kind.plural] = self._controller.labels_of(kind)
        return settings

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """The official client's credentials, in a session that tells us of kopf's lists."""
        configuration = self._configuration
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._on_request)
        bearer = (await configuration.auth_settings()).get("BearerToken")
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context),
            headers={"Authorization": str(bearer["value"])} if bearer else {},
            trace_configs=[trace],
        )
        return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)

    async def _on_request(self, _: Any, __: Any, request: aiohttp.TraceRequestEndParams) -> None:
        path = request.url.path.removeprefix(self._prefix)
        listed = request.method == "GET" and request.response.status == 200 and "watch" not in request.url.query
        if listed and path in self._collections:
            self._start(self._refresh(path), f"list {path}")

    async def _refresh(self, path: str) -> None:
        """Make a list of ours the cache's truth; tries until it succeeds."""
        kind, namespace = self._collections[path]
        delay = 0.5
        while True:
            try:
                listing = await self._kube.list(kind, namespace, labels=self._controller.labels_of(kind))
                break
            except KubeError as error:
                log.warning("cannot list %s, trying again: %s", kind.plural, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, 30.0)
        for key in self._cache.replace(kind, namespace, listing):
            self._changed(key)
        self._unlisted.discard(path)
        if not self._unlisted and not self.synced.is_set():
            self.synced.set()


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf keeps nothing on objects: with `on.event` alone it needs nothing, and every write of its costs."""

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
