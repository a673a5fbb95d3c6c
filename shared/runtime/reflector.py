"""Keeps one collection in sync with the API server: load it, then watch it, with the semantics of client-go.

    load ──ok──▶ watch ──ended in good order──▶ watch, from the last version
     ▲             │
     └── back off ◀┴── any error: refused, broken, stalled, unreadable, an older version

Every error leads to a full load after a delay with jitter; none ends the process. A load that recovers events which
were lost without an error leaves the watch open, which delivers events meanwhile. While a collection is not both loaded
and watched, it is lost: the operator does not observe it, and reports that. Collections do not affect each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn, Protocol

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError, Unavailable
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.streams import BOOKMARK, DELETED, Event, Streams, open_watch
from shared.observability import metrics
from shared.runtime.cache import Cache, Relist

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.8, 30.0
"""First and longest delay after an error, in seconds; up to the same again is added at random. As in client-go."""

MAX_OPTIONAL_RETRY_SECONDS = 600.0
"""Longest delay for a collection that is not vital, in seconds: by default the operator may not watch Secrets."""

CALM_SECONDS = 120.0
"""Seconds without an error, beyond the delays, after which the first delay applies again. As in client-go."""

MIN_WATCH_SECONDS = 300.0
"""Minimum duration of a watch, in seconds; up to the same again is added at random, to spread the ends of watches."""

MIN_STREAM_SECONDS = 1.0
"""Minimum duration of a watch without an event, in seconds; shorter ones count as errors. As in client-go."""

STORED_PER_TURN = 25
"""Number of objects that are stored in one turn of the event loop: 250 StatefulSets take 50 ms."""

LOSS_REPORTED_SECONDS = 10.0
"""Seconds after which the loss of a collection is reported: most watches are restored by the first retries."""


class Content(Protocol):
    """Destination of the objects of a collection."""

    accept: str
    """Media type of the watch."""

    async def load(self, namespace: str | None = None) -> int:
        """Load the collection, or a namespace; return the version, 0 if the watch begins with the present objects."""
        ...

    def take(self, event: Event) -> None:
        """Take an event about an object."""
        ...


def _parts(page: Obj) -> Iterator[Obj]:
    """Yield a page as several smaller ones, each of which is stored in one turn of the event loop; empty the page."""
    items, more = page.pop("items"), page["metadata"] | {"continue": "more"}
    while len(items) > STORED_PER_TURN:
        yield page | {"items": items[:STORED_PER_TURN], "metadata": more}
        del items[:STORED_PER_TURN]
    yield page | {"items": items}


class CachedContent:
    """A collection in the caches of the controllers that read it.

    Args:
        labels: label selector as text.
        limit: limits the number of collections that are listed at the same time.
    """

    accept = "application/json"

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        namespace: str | None,
        labels: str,
        caches: Iterable[Cache],
        limit: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._caches = tuple(caches)
        self._limit = limit or nullcontext()

    async def load(self, namespace: str | None = None) -> int:
        """Replace the content of the caches by a list, page by page.

        Without a resourceVersion in the request, the list is a consistent read: never older than what was read before.
        """
        namespace, version = namespace or self._namespace, 0
        async with self._limit:
            relists = [Relist(cache, self._kind, namespace) for cache in self._caches]
            async for page in self._kube.pages(self._kind, namespace, labels=self._labels):
                version = resource_version(page)
                for part in _parts(page):
                    await asyncio.sleep(0)
                    for relist in relists:
                        relist.cache.report(relist.take(part))
                    del part
        metrics.WATCH_LISTS.labels(self._kind.name, self._namespace or "").inc()
        return version

    def take(self, event: Event) -> None:
        for cache in self._caches:
            (cache.on_deleted if event.type == DELETED else cache.on_changed)(self._kind, event.obj)


@dataclass(frozen=True, slots=True)
class Loss:
    """A collection that the operator does not observe.

    Attributes:
        what: the collection, such as `pods in shop`.
        why: the last error.
        seconds: age of the loss.
    """

    what: str
    why: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Reflector:
    """Keeps a collection in sync until cancelled.

    Args:
        labels: label selector of the watch, as text.
        is_vital: whether the operator cannot do without it. The loss of another collection is neither a warning nor in
            the metric of observed collections: something else replaces it.
        changed: called after each attempt; with True when a loss has lasted for `LOSS_REPORTED_SECONDS`, and when one
            that did is over.
        clock: monotonic time in seconds.
        sleep: waits for a number of seconds.

    Attributes:
        is_tried: whether the collection was loaded once, or the attempt failed.
        is_loaded: whether the collection was ever loaded and watched.
    """

    def __init__(
        self,
        streams: Streams,
        content: Content,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str = "",
        is_vital: bool = True,
        changed: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.is_tried = self.is_loaded = False
        self._streams = streams
        self._content = content
        self._labels = labels
        self._is_vital = is_vital
        self._changed = changed
        self._clock = clock
        self._sleep = sleep
        self._version = 0
        self._problem = "not listed yet"
        self._lost_since: float | None = clock()
        self._is_reported = False
        self._failed_at, self._delay = clock(), 0.0
        self._attempt: asyncio.Timeout | None = None
        self._refreshing: asyncio.Future[int] | None = None

    @property
    def what(self) -> str:
        """The collection, for people."""
        return f"{self.kind.plural} in {self.namespace or 'all namespaces'}"

    @property
    def loss(self) -> Loss | None:
        """The loss of the collection; None while it is observed."""
        if self._lost_since is None:
            return None
        return Loss(self.what, self._problem, self._clock() - self._lost_since)

    async def refresh(self, namespace: str | None = None) -> None:
        """Load the collection, or a namespace, again while it is watched, to recover what was lost without an error.

        Nothing is lost if that fails: the next refresh tries again. The watch continues, unless the versions of the
        server went back, as after the restore of a control plane: the watch would deliver nothing more.
        """
        if self._lost_since is not None or self._refreshing is not None:
            return  # it is loaded anyway
        refreshing = self._refreshing = asyncio.ensure_future(self._content.load(namespace))
        try:
            await asyncio.wait({refreshing})
        finally:
            refreshing.cancel()
            self._refreshing = None
        if refreshing.cancelled():
            return
        if (error := refreshing.exception()) is not None:
            log.info("%s: not listed again: %s", self.what, error)
        elif refreshing.result() < self._version:
            self._end_attempt()

    def restart(self) -> None:
        """Load the collection again at once: the API server is ready again after it was down.

        What was in progress may wait for an answer that never comes. The loss counts from now on, because it was not
        one of this collection alone.
        """
        self._delay = 0.0
        self._problem, self._lost_since = "not listed again since the API server is back", self._clock()
        self._end_attempt()

    def _end_attempt(self) -> None:
        """End the present load, watch or delay, so that the collection is loaded at once."""
        if self._attempt is not None:
            self._attempt.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> NoReturn:
        """Load and watch until cancelled."""
        try:
            await self._keep()
        finally:
            self._problem, self._lost_since = "the watch ended", self._clock()
            self._publish(is_lost=True)

    async def _keep(self) -> NoReturn:
        delay = 0.0
        while True:
            error: Exception
            attempt = self._attempt = asyncio.timeout(None)
            try:
                async with attempt:
                    await self._load_and_watch(delay)
            except KubeError as found:
                error = found
            except Exception as found:  # an object that cannot be stored, for example: the collection is not observed
                if attempt.expired():
                    delay = 0.0
                    continue
                log.exception("internal error (a bug in the operator) while watching %s", self.what)
                error = found
            finally:
                self._attempt = None
            self._lose(error)
            delay = self._next_delay(error)
            del error  # its traceback refers to an event

    async def _load_and_watch(self, delay: float) -> NoReturn:
        if delay:
            await self._sleep(delay)
        if self._refreshing is not None:
            self._refreshing.cancel()  # its older pages would overwrite what is loaded now
        self._version = await self._content.load()
        waiting = dict[str, dict[str, Event]]()
        while True:
            await self._watch(waiting)

    async def _watch(self, waiting: dict[str, dict[str, Event]]) -> None:
        """Watch until the server ends the stream in good order."""
        began, has_events = self._clock(), False
        async with open_watch(
            self._streams,
            self.kind,
            self.namespace,
            labels=self._labels,
            since=self._version,
            seconds=MIN_WATCH_SECONDS * (1 + random.random()),
            accept=self._content.accept,
            waiting=waiting,
        ) as events:
            self._gain()
            async for event in events:
                has_events = True
                self._take(event)
                del event  # it may be large, and the next one far
        if not has_events and self._clock() - began < MIN_STREAM_SECONDS:
            raise Unavailable("the watch ended at once, without an event")

    def _take(self, event: Event) -> None:
        if event.version < self._version:
            raise Unavailable(f"resourceVersion {event.version} after {self._version}: the versions went back")
        if event.type != BOOKMARK:
            self._content.take(event)
        if self._version or event.type == BOOKMARK:  # a watch without a version begins with objects in any order
            self._version = event.version
        self._stamp()

    def _gain(self) -> None:
        """Note that the collection is observed."""
        if self._lost_since is not None and self.is_loaded:
            log.info("%s: watched again", self.what)
        self.is_loaded, self._lost_since = True, None
        self._stamp()
        self._publish(is_lost=False)

    def _lose(self, error: Exception) -> None:
        """Note that the collection is not observed."""
        self._problem = str(error)
        status = error.status if isinstance(error, KubeError) else 0
        labels = (self.kind.name, self.namespace or "", str(status or "<error>"))
        metrics.WATCH_ERRORS.labels(*labels).inc()
        if self._lost_since is None or not self.is_tried:
            if not self._is_vital and status == HTTPStatus.FORBIDDEN:  # the default
                log.info("%s: no permission to watch; objects that resources name are read regularly", self.what)
            else:
                log.log(logging.WARNING if self._is_vital else logging.INFO, "%s: not watched: %s", self.what, error)
            self._lost_since = self._clock()
        self._publish(is_lost=True)

    def _publish(self, *, is_lost: bool) -> None:
        self.is_tried = True
        if self._is_vital:
            metrics.WATCH_SYNCED.labels(self.kind.name, self.namespace or "").set(not is_lost)
        loss = self.loss
        is_due = loss is not None and loss.seconds >= LOSS_REPORTED_SECONDS
        is_new, self._is_reported = is_due is not self._is_reported, is_due
        self._changed(is_new)

    def _next_delay(self, error: Exception) -> float:
        now = self._clock()
        longest = MAX_RETRY_SECONDS if self._is_vital else MAX_OPTIONAL_RETRY_SECONDS
        is_calm = now - self._failed_at > CALM_SECONDS + 2 * self._delay
        self._delay = FIRST_RETRY_SECONDS if is_calm or not self._delay else min(2 * self._delay, longest)
        self._failed_at = now
        requested = error.retry_after if isinstance(error, KubeError) else None
        return max(self._delay * (1 + random.random()), requested or 0.0)

    def _stamp(self) -> None:
        if self._is_vital:
            metrics.WATCH_LAST_EVENT.labels(self.kind.name, self.namespace or "").set_to_current_time()
