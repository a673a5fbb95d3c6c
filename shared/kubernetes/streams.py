"""Watch requests: the events of a collection as plain dicts.

Everything that is not a well-formed event of a known type is a `KubeError`: an ERROR event, a line that is not JSON, an
object without a version, a connection that breaks or delivers nothing. A caller that lists again after each of them
misses nothing, as with client-go.

A large object that a user changes many times a second delays the events of no other namespace: large events wait while
there are small ones, take turns by namespace, and only the last one of an object is delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import orjson

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import MAX_QUOTED, Request, Response, error_of, leave_out
from shared.kubernetes.encoding import MAX_PARSED_BYTES, MAX_PARSED_VALUES, parsed_share
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import Kind, Obj

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"

LARGE_LINE_BYTES = 16 * 1024
"""Length above which an event is large: those of most objects have 2 to 12 KiB, and take less than 1 ms."""

LARGE_PAUSE = 4
"""How many times the CPU time of a large event the next one of the watch waits: they take a fifth of the event loop."""

MAX_WAITING_BYTES = 2 * 1024 * 1024
"""Size of the waiting events of a watch above which no more are read, and the large ones do not pause."""

_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_LIST = rb'\[(?:[^\]]++|\]++(?!,"\w++":))*+\]++'
_OTHERS = rb'(?:"(?!(?:name|namespace|resourceVersion)")\w++":(?:%b|[-+.\w]++|\{(?:%b[:,]?)*+\}|%b),)*+' % (
    _TEXT,
    _TEXT,
    _LIST,
)
_IDENTITY = re.compile(
    rb'\{"type":"(?:ADDED|MODIFIED|DELETED)","object":\{(?P<type>(?:"(?:apiVersion|kind)":"[^"\\]*+",){2})"metadata":\{'
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
) -> AsyncIterator[AsyncIterator[Event]]:
    """Watch a collection; the context is entered when the API server has accepted the request.

    Args:
        namespace: namespace to watch; None for all.
        labels: label selector as text.
        name: name of the only object to watch, for which RBAC can grant the verb (`resourceNames`); empty for all.
        since: resourceVersion after which events are sent; 0 begins with an ADDED event for each present object.
        seconds: time after which the API server ends the watch in good order.
        accept: media type of the response.

    Raises:
        KubeError: the watch is refused or broken.
    """
    query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(int(seconds))}
    query |= {"labelSelector": labels} if labels else {}
    query |= {"fieldSelector": f"metadata.name={name}"} if name else {}
    query |= {"resourceVersion": str(since)} if since else {}
    request = Request("GET", kind.path(namespace), query)
    async with streams.stream(request, accept=accept) as lines:
        backlog = _Backlog()
        reading = asyncio.ensure_future(backlog.read(lines))
        try:
            yield _events(kind, request, backlog, reading)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class _Backlog:
    """The lines of a watch that were read and not delivered yet.

    Attributes:
        small: lines that are delivered in their order, before others.
        large: other lines by namespace, in the order of their turns, and by name.
        changed: set when a line was read.
    """

    def __init__(self) -> None:
        self.small = deque[bytes]()
        self.large: dict[bytes, dict[bytes, bytes]] = {}
        self.changed = asyncio.Event()
        self._size = 0
        self._has_room = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more lines are read."""
        return self._size > MAX_WAITING_BYTES

    async def read(self, lines: AsyncIterator[bytes]) -> None:
        """Read lines until the stream ends."""
        try:
            async for line in lines:
                self._add(line)
                self.changed.set()
                while self.is_full:
                    self._has_room.clear()
                    await self._has_room.wait()
        finally:
            self.changed.set()

    def _add(self, line: bytes) -> None:
        found = _IDENTITY.match(line) if len(line) > LARGE_LINE_BYTES else None
        if found is None:
            self.small.append(line)
        else:
            names = self.large.setdefault(found["namespace"] or b"", {})
            self._size -= len(names.get(found["name"], b""))
            names[found["name"]] = line
        self._size += len(line)

    def take(self) -> bytes:
        """Remove and return the next line."""
        if self.small:
            line = self.small.popleft()
        else:
            namespace = next(iter(self.large))
            names = self.large.pop(namespace)
            line = names.pop(next(iter(names)))
            if names:
                self.large[namespace] = names
        self._size -= len(line)
        self._has_room.set()
        return line


async def _events(
    kind: Kind, request: Request, backlog: _Backlog, reading: asyncio.Future[None]
) -> AsyncIterator[Event]:
    version, resumes = 0, 0.0
    loop = asyncio.get_running_loop()
    while True:
        backlog.changed.clear()
        if backlog.small:
            event = _event(kind, request, backlog.take())
            version = event.version
            yield event
        elif reading.done() and (not backlog.large or reading.exception() is not None):
            reading.result()
            return
        elif backlog.large and (loop.time() >= resumes or backlog.is_full):
            began = time.thread_time()
            event = _event(kind, request, backlog.take())
            version = max(event.version, version)
            yield event._replace(version=version)
            resumes = loop.time() + LARGE_PAUSE * (time.thread_time() - began)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(resumes if backlog.large else None):
                    await backlog.changed.wait()


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
    found = _IDENTITY.match(line)
    if found is None:
        raise ValueError(f"it cannot be parsed: {line[:MAX_QUOTED]!r}")
    named = {"name": found["name"], "namespace": found["namespace"] or b"", "resourceVersion": found["version"]}
    metadata = {key: text.decode() for key, text in named.items()}
    leave_out(kind, metadata)
    return {"type": DELETED, "object": orjson.loads(b"{%b}" % found["type"][:-1]) | {"metadata": metadata}}


def _is_expected(of: Kind, kind: str, obj: Obj) -> bool:
    """Whether the object of an event is one of the watched kind."""
    is_kind = obj.get("kind") in (of.name, "PartialObjectMetadata")
    return kind == BOOKMARK or (is_kind and isinstance(obj["metadata"].get("name"), str))
