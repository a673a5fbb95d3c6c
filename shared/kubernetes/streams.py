"""Watch requests: the events of a collection as plain dicts.

Everything that is not a well-formed event of a known type is a `KubeError`: an ERROR event, a line that is not JSON, an
object without a version, a connection that breaks or delivers nothing. A caller that lists again after each of them
misses nothing, as with client-go.

Large objects that a user changes many times a second delay the events of no other namespace: of a large event, only the
name of the object waits. Meanwhile, the objects are read by name, in turns by namespace; what is left when the API
server ends the watch, during the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import orjson

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import MAX_QUOTED, Request, Response, error_of, leave_out
from shared.kubernetes.encoding import MAX_PARSED_BYTES, MAX_PARSED_VALUES, parsed_share
from shared.kubernetes.errors import KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import Kind, Obj

log = logging.getLogger(__name__)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"

LARGE_LINE_BYTES = 16 * 1024
MAX_WAITING = 64  # small events of a watch, which take no turn of the event loop each
"""Length above which an event is large: those of most objects have 2 to 12 KiB, and take less than 1 ms."""

LARGE_SHARE = 5
"""Large events of all watches together take this part of the event loop, a fifth."""

READ_SECONDS = 10.0
"""Longest time for the read of a large object, and the time until others of its namespace are read if it fails."""

_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_LIST = rb'\[(?:[^\]]++|\]++(?!,"\w++":))*+\]++'
_OTHERS = rb'(?:"(?!(?:name|namespace|resourceVersion)")\w++":(?:%b|[-+.\w]++|\{(?:%b[:,]?)*+\}|%b),)*+' % (
    _TEXT,
    _TEXT,
    _LIST,
)
_IDENTITY = re.compile(
    rb'\{"type":"(?P<type>ADDED|MODIFIED|DELETED)","object":\{(?P<head>(?:"(?:apiVersion|kind)":"[^"\\]*+",){2})"metadata":\{'
    rb'%b"name":"(?P<name>[^"\\]++)",%b(?:"namespace":"(?P<namespace>[^"\\]++)",)?+%b"resourceVersion":"(?P<version>\d++)"'
    % (_OTHERS, _OTHERS, _OTHERS)
)
"""Begin of the event of an object, up to the last field that identifies it; matching takes little time with any object.

The API server writes apiVersion and kind before metadata, and the metadata of its own types in the order of Go's
fields, with the version before any list. That of custom resources is sorted. There, lists of texts or of objects come
first. The objects, in `managedFields` and `ownerReferences`, contain no lists, so that a `]` before a field is the end
of the whole list.
"""


class Streams(Protocol):
    """Opens watch requests on an API server; implemented by the HTTP transport and by the in-memory API server."""

    def stream(self, request: Request, *, accept: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream; the iterator yields its lines, and ends when the server ends the stream in good order.

        Args:
            accept: media type of the response.

        Raises:
            KubeError: the server refuses the request. While iterating, Unavailable: the connection broke, or
                delivered nothing for too long.
        """
        ...


class Event(NamedTuple):
    """A watch event.

    Attributes:
        type: ADDED, MODIFIED, DELETED or BOOKMARK.
        version: resourceVersion of the collection after this event, and those that came before it.
        obj: the object; of a bookmark, only its version is set.
    """

    type: str
    version: int
    obj: Obj


@contextlib.asynccontextmanager
async def open_watch(
    streams: Streams,
    kind: Kind,
    namespace: str | None,
    *,
    labels: str = "",
    name: str = "",
    since: int,
    seconds: float,
    accept: str = "application/json",
    waiting: dict[str, dict[str, Event]] | None = None,
) -> AsyncIterator[AsyncIterator[Event]]:
    """Watch a collection; the context is entered when the API server has accepted the request.

    Args:
        namespace: namespace to watch; None for all.
        labels: label selector as text.
        name: name of the only object to watch, for which RBAC can grant the verb (`resourceNames`); empty for all.
        since: resourceVersion after which events are sent; 0 begins with an ADDED event for each present object.
        seconds: time after which the API server ends the watch in good order.
        accept: media type of the response.
        waiting: large objects that the last watch has not read (`_Watch.large`); at the end, those for the next one.

    Raises:
        KubeError: the watch is refused or broken.
    """
    query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(int(seconds))}
    query |= {"labelSelector": labels} if labels else {}
    query |= {"fieldSelector": f"metadata.name={name}"} if name else {}
    query |= {"resourceVersion": str(since)} if since else {}
    request = Request("GET", kind.path(namespace), query)
    async with streams.stream(request, accept=accept) as lines:
        watch = _Watch(streams, kind, request, accept, since)
        watch.large = watch.large if waiting is None else waiting
        tasks = [asyncio.ensure_future(work) for work in (watch.read(lines), watch.read_large())]
        for task in tasks:
            task.add_done_callback(watch.queue.put_nowait)
        try:
            yield watch.events()
        finally:
            _WATCHES.discard(watch)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Watch:
    """A watch, with the events that were not delivered yet.

    Attributes:
        large: events of large objects, without content, by namespace, in the order of their turns, and by name.
        queue: the next events, and at last a task that has ended.
    """

    def __init__(self, streams: Streams, kind: Kind, request: Request, accept: str, since: int) -> None:
        self._streams, self._kind, self._request, self._accept, self._version = streams, kind, request, accept, since
        self._has_large = asyncio.Event()
        self.large: dict[str, dict[str, Event]] = {}
        self.queue = asyncio.Queue[Event | asyncio.Future[None]]()
        _WATCHES.add(self)

    async def read(self, lines: AsyncIterator[bytes]) -> None:
        """Read lines, and deliver small events, until the stream ends."""
        async for line in lines:
            if len(line) > LARGE_LINE_BYTES and (event := _named(self._kind, line)):
                metadata = event.obj["metadata"]
                self.large.setdefault(metadata["namespace"], {})[metadata["name"]] = event
                self._has_large.set()
            else:
                event = _event(self._kind, self._request, line)
                self._version = event.version
                self.queue.put_nowait(event)
                if self.queue.qsize() >= MAX_WAITING:
                    await self.queue.join()
            del line, event  # they may be large, and the next line may be late

    async def read_large(self) -> None:
        """Read large objects, and deliver them, until cancelled."""
        loop, resumes = asyncio.get_running_loop(), dict[str, float]()  # after an error, by namespace
        while True:
            self._has_large.clear()
            namespace = next((each for each in self.large if resumes.get(each, 0.0) <= loop.time()), None)
            if namespace is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min((resumes[each] for each in self.large), default=None)):
                        await self._has_large.wait()
                continue
            names = self.large[namespace] = self.large.pop(namespace)  # others have the next turn
            name, event = next(iter(names.items()))
            names[name] = names.pop(name)
            try:
                seconds = await self._deliver_present(event)
            except (TimeoutError, KubeError) as error:
                why = str(error) or f"no answer in {READ_SECONDS:.0f} s"
                log.warning("%s %s/%s: not read after an event, and retried: %s", self._kind, namespace, name, why)
                resumes[namespace] = loop.time() + READ_SECONDS
                continue
            if names[name] is event:
                del names[name]
            if not names:
                del self.large[namespace]
            shares = LARGE_SHARE * sum(each is self or bool(each.large) for each in _WATCHES)
            await asyncio.sleep((shares - 1) * seconds)

    async def _deliver_present(self, event: Event) -> float:
        """Deliver a large event with the present object; return the CPU time that this took, in seconds."""
        metadata, line = event.obj["metadata"], None
        request = Request("GET", self._kind.path(metadata["namespace"], metadata["name"]))
        with contextlib.suppress(NotFound):
            if event.type != DELETED:
                async with asyncio.timeout(READ_SECONDS), self._streams.stream(request, accept=self._accept) as lines:
                    line = b'{"type":"MODIFIED","object":%b}' % b"".join([part async for part in lines])
        began = time.thread_time()
        event = event._replace(type=DELETED) if line is None else _event(self._kind, request, line)
        found = event.obj["metadata"]
        if (found["name"], found.get("namespace", "")) != (metadata["name"], metadata["namespace"]):
            raise Unavailable(f"the API server answered with another object ({request})")
        self.queue.put_nowait(event._replace(version=self._version))  # the object may be newer
        await self.queue.join()
        return time.thread_time() - began

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events until a task has ended."""
        while isinstance(event := await self.queue.get(), Event):
            yield event
            del event
            self.queue.task_done()
        event.result()


_WATCHES = set[_Watch]()  # that are open


def _event(of: Kind, request: Request, line: bytes) -> Event:
    try:
        frame = _frame(of, line)
        kind, obj = str(frame["type"]), dict(frame["object"])
        if kind == ERROR:
            raise error_of(Response(int(obj.get("code") or 500), obj), request)
        version = resource_version(obj)
        if kind not in (ADDED, MODIFIED, DELETED, BOOKMARK) or not version or not _is_expected(of, kind, obj):
            raise ValueError(f"unexpected event {kind} of {obj.get('kind')}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unavailable(f"unreadable watch event: {error} ({request})") from None
    return Event(kind, version, obj)


def _frame(kind: Kind, line: bytes) -> Obj:
    """Return an event; that of an object that cannot be parsed, or not at once, as that of its deletion."""
    if len(line) <= MAX_PARSED_VALUES or (len(line) <= MAX_PARSED_BYTES and parsed_share(line) <= 1):
        with contextlib.suppress(ValueError):  # too many levels, or bytes that are not text
            frame: Obj = orjson.loads(line)
            return frame
    if (event := _named(kind, line)) is None:
        raise ValueError(f"it cannot be parsed: {line[:MAX_QUOTED]!r}")
    leave_out(kind, event.obj["metadata"])
    return {"type": DELETED, "object": event.obj}


def _named(kind: Kind, line: bytes) -> Event | None:
    """Return an event without the content of the object; None for one of another kind, or that cannot be read."""
    if (found := _IDENTITY.match(line)) is None:
        return None
    with contextlib.suppress(ValueError):
        type_, head, name, namespace, version = (each.decode() for each in found.groups(b""))
        metadata = {"name": name, "namespace": namespace, "resourceVersion": version}
        obj = {**orjson.loads(f"{{{head[:-1]}}}"), "metadata": metadata}
        return Event(type_, int(version), obj) if _is_expected(kind, type_, obj) else None
    return None


def _is_expected(of: Kind, kind: str, obj: Obj) -> bool:
    """Whether the object of an event is one of the watched kind."""
    is_kind = obj.get("kind") in (of.name, "PartialObjectMetadata")
    return kind == BOOKMARK or (is_kind and isinstance(obj["metadata"].get("name"), str))
