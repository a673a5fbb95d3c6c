"""Watch requests: the events of a collection as plain dicts.

Everything that is not a well-formed event of a known type is a `KubeError`: an ERROR event, a line that is not JSON, an
object without a version, a connection that breaks or delivers nothing. A caller that lists again after each of them
misses nothing, as with client-go.
"""

from __future__ import annotations

import contextlib
import re
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
        version: resourceVersion of the collection after this event.
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
        yield _events(kind, request, lines)


async def _events(kind: Kind, request: Request, lines: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    async for line in lines:
        yield _event(kind, request, line)


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
