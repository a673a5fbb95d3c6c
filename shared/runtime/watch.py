"""Watches of an operator: one reflector per collection, inside kopf's life cycle.

kopf is the shell: it starts the reflectors when it has started (`on.startup`), and ends them before it ends
(`on.cleanup`). Its own watch streams are not used, because they do not fail closed: an ERROR event other than 410, or a
404, ends kopf; a deletion during a broken watch is never reported; and each event costs eight times as much. The same
holds for its discovery of resources at the start, so that it gets no credentials and sends no request.
No other module imports kopf.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

from shared.runtime.imports import hidden

with hidden("kubernetes"):  # kopf imports it where it is installed, to accept its objects: 9 MiB, 0.25 s
    import kopf

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import Kind
from shared.kubernetes.streams import Streams
from shared.runtime import dependencies as named
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies, NamedContent
from shared.runtime.reflector import CachedContent, Loss, Reflector
from shared.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)

SHUTDOWN_GRACE_SECONDS = 2.0
"""Seconds allowed for kopf's tasks to end."""

MAX_BLIND_SECONDS = 300.0
"""Seconds without any observed collection after which the operator is not ready."""

RETURN_SECONDS = 5.0
"""Longest time after an outage of the API server until resources are reconciled, although some are not observed."""

MAX_LISTS = 4
"""Maximum number of collections that are listed at the same time: each page takes memory and time of the event loop."""

FIRST_READMIT_SECONDS, MAX_READMIT_SECONDS = 60.0, 600.0
"""First and longest pause until a kind of a namespace is listed again for what was left out: users can cause each."""

MAX_LISTED_LOSSES = 5
"""Maximum number of lost collections that readiness lists."""


class Watched(NamedTuple):
    """A controller with what its watches fill."""

    controller: Controller[Any, Any]
    cache: Cache
    dependencies: Dependencies


class Watch:
    """Keeps caches in sync with the API server. A kind that several controllers read is watched once.

    Args:
        namespaces: namespaces to watch; empty for all.
        suspect: called when a collection is lost: the API server may be down.
        supervisor: restarts reflectors.

    Attributes:
        synced: set once every collection was tried, and some controller is observed in some namespace.
    """

    def __init__(
        self,
        watched: Sequence[Watched],
        *,
        kube: Kube,
        streams: Streams,
        namespaces: tuple[str, ...],
        suspect: Callable[[], None] = lambda: None,
        supervisor: Supervisor,
    ) -> None:
        self._watched = tuple(watched)
        self._suspect = suspect
        self._kube = kube
        self._streams = streams
        self._namespaces = namespaces
        self._supervisor = supervisor
        self._scopes: tuple[str | None, ...] = namespaces or (None,)
        self._cached = dict(self._collections())
        self._named = dict(self._named_collections())
        self._tasks: set[asyncio.Task[None]] = set()
        self._pauses: dict[tuple[Kind, str], tuple[float, float]] = {}  # of `readmit`: end, and the next one
        self.synced = asyncio.Event()

    def loss(self, controller: Controller[Any, Any], namespace: str | None) -> Loss | None:
        """Return the first collection that the resources of a namespace need and that is not observed, if any."""
        reflectors = (self._cached[_collection(kind, self._scope(namespace))] for kind in controller.kinds)
        return next((loss for reflector in reflectors if (loss := reflector.loss)), None)

    @property
    def is_blind(self) -> bool:
        """Whether no collection at all is observed, as while the API server is unreachable."""
        return all(reflector.loss for reflector in self._cached.values())

    @property
    def losses(self) -> list[Loss]:
        """The collections that are not observed."""
        return [loss for reflector in self._cached.values() if (loss := reflector.loss)]

    def unready(self) -> str | None:
        """Return why the operator is not ready; None if it is.

        It is ready once every kind was listed in some namespace, and as long as it observes anything. A namespace that
        is lost does not make it unready: the others, and the webhooks, are still served.
        """
        loaded = {kind for (kind, _), reflector in self._cached.items() if reflector.is_loaded}
        missing = [loss for (kind, _), each in self._cached.items() if kind not in loaded and (loss := each.loss)]
        if missing:
            return f"waiting for the lists of {_listed(missing)}"
        if self.is_blind and min(loss.seconds for loss in self.losses) > MAX_BLIND_SECONDS:
            return f"nothing is observed: {_listed(self.losses)}"
        return None

    def note(self) -> str | None:
        """Return which collections are not observed, although the operator is ready; None if all are."""
        return f"not observed: {_listed(self.losses)}" if self.losses else None

    async def refresh(self, seconds: float) -> None:
        """List everything again within a time in seconds, one collection after the other. The watches continue."""
        for reflector in self._cached.values():
            await reflector.refresh()
            await self.readmit()
            await asyncio.sleep(seconds / len(self._cached))

    async def readmit(self) -> None:
        """List the kinds, each of one namespace, of which objects were left out for which there is space now."""
        now = asyncio.get_running_loop().time()
        self._pauses = {of: pause for of, pause in self._pauses.items() if now < pause[0] + MAX_READMIT_SECONDS}
        for kind, at in {each for watched in self._watched for each in watched.cache.lacks()}:
            end, pause = self._pauses.get((kind, at), (now, FIRST_READMIT_SECONDS))
            if end <= now:
                self._pauses[kind, at] = now + pause, min(2 * pause, MAX_READMIT_SECONDS)
                await self._cached[_collection(kind, self._scope(at))].refresh(at)

    async def restart(self) -> None:
        """List everything again at once, because the API server is ready again after it was down.

        Returns when everything is observed, or after `RETURN_SECONDS`.
        """
        for reflector in (*self._cached.values(), *self._named.values()):
            reflector.restart()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETURN_SECONDS):
                while self.losses:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    async def run(self, begun: Callable[[], None]) -> None:
        """Run kopf until cancelled.

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
        raise KubeError(f"kopf stopped: {_cause(why) or 'no error'}")

    def start(self) -> None:
        """Start the reflectors, and the polling of objects that cannot be watched."""
        for reflector in (*self._cached.values(), *self._named.values()):
            self._tasks.add(self._supervisor.start(f"watch of {reflector.what}", reflector.run))
        for dependencies in self._dependencies:
            dependencies.are_observed = True
        if self._named:
            self._tasks.add(self._supervisor.start("polling of named objects", self._poll))

    async def stop(self) -> None:
        """End the reflectors."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=SHUTDOWN_GRACE_SECONDS)

    # Collections.

    def _collections(self) -> Iterator[tuple[tuple[Kind, str | None], Reflector]]:
        caches: dict[Kind, list[Cache]] = {}
        labels: dict[Kind, str] = {}
        for controller, cache, _ in self._watched:
            for kind in controller.kinds:
                caches.setdefault(kind, []).append(cache)
                selector = controller.labels_of(kind)
                labels[kind] = selector and labels.get(kind, selector)  # "": a controller needs all of them
        limit = asyncio.Semaphore(MAX_LISTS)
        for kind, namespace in dict.fromkeys(_collection(kind, at) for kind in caches for at in self._scopes):
            content = CachedContent(self._kube, kind, namespace, labels[kind], caches[kind], limit)
            changed = partial(self._note_change, kind, namespace)
            reflector = Reflector(self._streams, content, kind, namespace, labels=labels[kind], changed=changed)
            yield (kind, namespace), reflector

    def _named_collections(self) -> Iterator[tuple[tuple[Kind, str | None], Reflector]]:
        for kind in dict.fromkeys(kind for watched in self._watched for kind in watched.dependencies.kinds):
            content = NamedContent(kind, self._dependencies)
            for namespace in self._scopes:
                yield (kind, namespace), Reflector(self._streams, content, kind, namespace, is_vital=False)

    @property
    def _dependencies(self) -> list[Dependencies]:
        return [watched.dependencies for watched in self._watched]

    def _scope(self, namespace: str | None) -> str | None:
        return namespace if self._namespaces else None

    def _note_change(self, kind: Kind, namespace: str | None, is_reported: bool) -> None:
        """Update `synced`, and reconcile the resources whose status is to report a loss, or its end."""
        if not self.synced.is_set() and all(reflector.is_tried for reflector in self._cached.values()):
            observed = (not self.loss(watched.controller, at) for watched in self._watched for at in self._scopes)
            if any(observed):
                self.synced.set()
        if self._cached[kind, namespace].loss:
            self._suspect()
        if not is_reported or self.is_blind:
            return
        for controller, cache, _ in self._watched:
            if kind in controller.kinds:
                keys = cache.keys(controller.kind)
                cache.report(key for key in keys if namespace in (None, key.namespace))

    async def _poll(self) -> None:
        """Read named objects periodically while their collection cannot be watched."""
        while True:
            await asyncio.sleep(named.POLL_SECONDS)
            for (kind, namespace), reflector in self._named.items():
                if reflector.loss:
                    await named.poll(self._kube, kind, namespace, self._dependencies)

    # The shell.

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        logging.getLogger("kopf.activities.authentication").setLevel(logging.ERROR)  # it warns of the cancelled login
        kopf.on.login(registry=registry)(self._login)
        kopf.on.startup(registry=registry)(self._on_startup)
        kopf.on.cleanup(registry=registry)(self._on_cleanup)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.posting.enabled = False
        return settings

    async def _login(self, **_: Any) -> NoReturn:
        """Never log in: kopf's requests wait for credentials, and one with an unexpected answer would end kopf."""
        while True:
            await asyncio.Event().wait()

    async def _on_startup(self, **_: Any) -> None:
        self.start()

    async def _on_cleanup(self, **_: Any) -> None:
        await self.stop()


def _collection(kind: Kind, namespace: str | None) -> tuple[Kind, str | None]:
    return kind, namespace if kind.namespaced else None


def _listed(losses: Sequence[Loss]) -> str:
    shown = "; ".join(map(str, losses[:MAX_LISTED_LOSSES]))
    return shown if len(losses) <= MAX_LISTED_LOSSES else f"{shown}; and {len(losses) - MAX_LISTED_LOSSES} others"


def _cause(error: BaseException | None) -> BaseException | None:
    """Return the root cause of an error: kopf wraps errors of its tasks."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return error
