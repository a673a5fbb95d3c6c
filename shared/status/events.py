"""Kubernetes events: the history of a resource in `kubectl describe`.

An event is written when the reason of a resource changes, not on each reconcile. Repeating an event increments its
count. Writing is best effort and runs in the background: a failed write never fails a reconcile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass

from shared.kubernetes.accessors import now_rfc3339
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import AlreadyExists, KubeError, NotFound
from shared.kubernetes.fair_pool import FairPool
from shared.kubernetes.kinds import EVENT, Obj
from shared.observability import metrics
from shared.status.messages import shortened

log = logging.getLogger(__name__)

MAX_WRITERS = 16
MAX_BACKLOG, MAX_BACKLOG_OF_NAMESPACE = 4000, 2000
"""Limits of the recorder: concurrent writers, and events that wait, in all and of one namespace."""

MAX_REMEMBERED = 4096
MAX_MESSAGE_LENGTH = 1024
"""Maximum length of a message in characters: the limit of events.k8s.io on notes."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event about an object.

    Attributes:
        regarding: apiVersion, kind, name, namespace and uid of the object.
        warning: whether the type is Warning rather than Normal.
    """

    regarding: Obj
    reason: str
    message: str
    warning: bool = False

    @classmethod
    def about(cls, obj: Obj, reason: str, message: str, *, warning: bool = False) -> Event:
        metadata = obj["metadata"]
        regarding = {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        }
        return cls(regarding, reason, shortened(message, MAX_MESSAGE_LENGTH), warning)

    @property
    def kind(self) -> str:
        """Type of the event in Kubernetes: Normal or Warning."""
        return "Warning" if self.warning else "Normal"

    @property
    def name(self) -> str:
        """Name of the Event object; equal events have equal names, so that repeats match after a restart."""
        digest = hashlib.sha256(f"{self.regarding['uid']}\0{self.reason}\0{self.message}".encode()).hexdigest()
        return f"{self.regarding['name']}.{digest[:16]}"


class Recorder:
    """Writes events in the background; events of one object are written in order, and namespaces take turns.

    Args:
        component: name of the operator, reported as the source of the events.
    """

    def __init__(self, kube: Kube, *, component: str) -> None:
        self._kube = kube
        self._component = component
        self._pool = FairPool(self._write_next, MAX_WRITERS)
        self._pending: dict[str, deque[Event]] = {}  # by UID of the object
        self._backlog = Counter[str]()  # by namespace
        self._counts: OrderedDict[str, int] = OrderedDict()

    def record(self, event: Event) -> None:
        namespace, uid = event.regarding["namespace"], event.regarding["uid"]
        if self._backlog[namespace] >= MAX_BACKLOG_OF_NAMESPACE or self._backlog.total() >= MAX_BACKLOG:
            metrics.EVENTS_DROPPED.inc()
            return
        self._backlog[namespace] += 1
        self._pending.setdefault(uid, deque()).append(event)
        self._pool.add(uid, namespace)

    async def run(self) -> None:
        """Write events until cancelled."""
        await self._pool.run()

    async def _write_next(self, uid: str) -> None:
        """Write the first event about an object."""
        pending = self._pending[uid]
        event = pending.popleft()
        namespace = event.regarding["namespace"]
        try:
            await self._write(event)
            metrics.EVENTS.labels(event.regarding["kind"].lower(), event.kind, event.reason).inc()
        except KubeError as error:
            metrics.EVENTS_DROPPED.inc()
            log.debug("cannot write event %s: %s", event.reason, error)
        except Exception:
            metrics.EVENTS_DROPPED.inc()
            log.exception("internal error (a bug in the operator) while writing event %s", event.reason)
        finally:
            self._backlog[namespace] -= 1
            if not self._backlog[namespace]:
                del self._backlog[namespace]
            if pending:
                self._pool.add(uid, namespace)
            else:
                del self._pending[uid]

    async def flush(self, seconds: float) -> None:
        """Wait up to `seconds` for the backlog to be written."""
        try:
            async with asyncio.timeout(seconds):
                await self._pool.rest()
        except TimeoutError:
            log.debug("%d events were not written before shutdown", self._backlog.total())

    async def _write(self, event: Event) -> None:
        count = self._counts.get(event.name, 0)
        if count:
            try:
                await self._repeat(event, count + 1)
                return
            except NotFound:  # events expire after one hour by default
                pass
        try:
            await self._kube.create(EVENT, self._object(event))
            self._remember(event, 1)
        except AlreadyExists:
            known = await self._kube.get(EVENT, event.regarding["namespace"], event.name)
            await self._repeat(event, int(known.get("count") or 1) + 1)

    async def _repeat(self, event: Event, count: int) -> None:
        patch = {"count": count, "lastTimestamp": now_rfc3339()}
        await self._kube.merge(EVENT, event.regarding["namespace"], event.name, patch)
        self._remember(event, count)

    def _remember(self, event: Event, count: int) -> None:
        self._counts[event.name] = count
        self._counts.move_to_end(event.name)
        if len(self._counts) > MAX_REMEMBERED:
            self._counts.popitem(last=False)

    def _object(self, event: Event) -> Obj:
        now = now_rfc3339()
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"name": event.name, "namespace": event.regarding["namespace"]},
            "involvedObject": event.regarding,
            "type": event.kind,
            "reason": str(event.reason),
            "message": event.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
