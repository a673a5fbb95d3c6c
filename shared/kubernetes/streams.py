"""Watch requests: the events of a collection as plain dicts.

Everything that is not a well-formed event of a known type is a `KubeError`: an ERROR event, a line that is not JSON, an
object without a version, a connection that breaks or delivers nothing. A caller that lists again after each of them
misses nothing, as with client-go.

Large objects that a user changes many times a second delay the events of no other namespace: of a large event, only the
name of the object waits. When there is no small event, the objects are read by name, in turns by namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import orjson

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import MAX_QUOTED, Request, Response, error_of, leave_out
from shared.kubernetes.encoding import MAX_PARSED_BYTES, MAX_PARSED_VALUES, parsed_share
from shared.kubernetes.errors import NotFound, Unavailable
from shared.kubernetes.kinds import Kind, Obj

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"

LARGE_LINE_BYTES = 16 * 1024
"""Length above which an event is large: those of most objects have 2 to 12 KiB, and take less than 1 ms."""

LARGE_SHARE = 5
"""Large events of all watches together take this part of the event loop, a fifth."""

MAX_WAITING_LINES, READ_SECONDS = 64, 10.0
"""Number of small events that wait while a large object is read, and longest time that this takes."""

MAX_LAST_OBJECTS = 32
"""Number of large objects that are read when the API server has ended the watch: for more, the collection is listed."""

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
        watch = _Watch(streams, kind, request, accept, since)
        reading = asyncio.ensure_future(watch.read(lines))
        try:
            yield watch.events(reading)
        finally:
            _WATCHES.discard(watch)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class _Watch:
    """A watch, with the events that were read and not delivered yet.

    Attributes:
        large: events of large objects, without content, by namespace, in the order of their turns, and by name.
    """

    def __init__(self, streams: Streams, kind: Kind, request: Request, accept: str, since: int) -> None:
        self._streams, self._kind, self._request, self._accept, self._version = streams, kind, request, accept, since
        self._small = asyncio.Queue[bytes](MAX_WAITING_LINES)  # lines that are delivered in their order, before others
        self._changed = asyncio.Event()
        self.large: dict[str, dict[str, Event]] = {}
        _WATCHES.add(self)

    async def read(self, lines: AsyncIterator[bytes]) -> None:
        """Read lines until the stream ends."""
        try:
            async for line in lines:
                if len(line) > LARGE_LINE_BYTES and (event := _named(self._kind, line)):
                    metadata = event.obj["metadata"]
                    self.large.setdefault(metadata["namespace"], {})[metadata["name"]] = event
                else:
                    await self._small.put(line)
                self._changed.set()
        finally:
            self._changed.set()

    async def events(self, reading: asyncio.Future[None]) -> AsyncIterator[Event]:
        """Yield the events until `reading`, the task of `read`, has ended."""
        resumes = 0.0
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            if not self._small.empty():
                event = _event(self._kind, self._request, self._small.get_nowait())
                self._version = event.version
                yield event
            elif reading.done() and (not self.large or reading.exception() is not None):
                reading.result()
                return
            elif self.large and (reading.done() or loop.time() >= resumes):
                if reading.done() and sum(map(len, self.large.values())) > MAX_LAST_OBJECTS:
                    raise Unavailable(f"the watch ended before its large objects were read ({self._request})")
                try:
                    event, text = await self._take_large()
                except Unavailable:
                    if reading.done():
                        raise
                    resumes = loop.time() + READ_SECONDS
                    continue
                began = time.thread_time()
                if text:
                    event = _event(self._kind, self._request, b'{"type":"MODIFIED","object":%b}' % text)
                yield event._replace(version=self._version)  # the object may be newer
                shares = LARGE_SHARE * sum(each is self or bool(each.large) for each in _WATCHES)
                resumes = loop.time() + (shares - 1) * (time.thread_time() - began)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(resumes if self.large else None):
                        await self._changed.wait()

    async def _take_large(self) -> tuple[Event, bytes]:
        """Remove the next large event, and return it with the present object; without one if that is deleted.

        Raises:
            Unavailable: the object could not be read, and waits again.
        """
        namespace = next(iter(self.large))
        names = self.large.pop(namespace)
        event = names.pop(name := next(iter(names)))
        if names:
            self.large[namespace] = names
        if event.type == DELETED:
            return event, b""
        request = Request("GET", self._kind.path(namespace, name))
        try:
            async with asyncio.timeout(READ_SECONDS), self._streams.stream(request, accept=self._accept) as lines:
                return event, b"".join([line async for line in lines])
        except NotFound:
            return event._replace(type=DELETED), b""
        except (TimeoutError, Unavailable) as error:
            self.large.setdefault(namespace, {}).setdefault(name, event)
            raise Unavailable(f"{error or 'no answer in time'} ({request})") from None


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
