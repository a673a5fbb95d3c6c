"""Watch requests of the in-memory API server, and their faults.

A stream behaves as that of a real API server: it sends what happened after the requested version; without a version, it
begins with the present objects, and ends these with a bookmark. Nothing up to the requested version is ever sent, even
if the server itself is behind that version, as after a restore. A compacted version is answered with an ERROR event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import Request, error_of
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.requests import Failure, TargetedRequest, named, selects
from simulator.api_server.server import ApiServer
from simulator.faults import strike

_END = object()


class WatchServer:
    """Serves watch requests on an in-memory API server (`shared.kubernetes.streams.Streams`).

    Args:
        server: API server; its `faults` strike when a watch is opened.

    Attributes:
        opened: paths of all watches that were opened, in order.
        compacted: version below which no watch can begin.
        is_silent: whether nothing is delivered although connections stay open, as on half-open ones.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._open: list[_Stream] = []
        self.opened: list[str] = []
        self.compacted = 0
        self.is_silent = False

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        await asyncio.sleep(0)
        if "watch" not in request.query:  # an object by name
            answer = await self._server.request(replace(request, accept=accept))
            if answer.status >= 400:
                raise error_of(answer, request)
            yield _garbled(answer.body)
            return
        try:
            target = TargetedRequest.at(self._server._by_path, request)
        except Failure as failure:
            raise error_of(failure.response(), request) from None
        if (fault := self._server.faults.next(request)) is not None:
            answer = strike(fault, request)
            if answer.status >= 400:
                raise error_of(answer, request)
            yield _garbled(answer.body)
            return
        opened = _Stream(target, is_metadata="PartialObjectMetadata" in accept)
        for event in self._first_events(opened):
            opened.send(event)
        self._server.subscribe(partial(self._deliver, opened), opened.kind)
        self._open.append(opened)
        self.opened.append(request.path)
        try:
            yield opened.lines()
        finally:
            self._open.remove(opened)

    def bookmark(self, path: str = "") -> None:
        """Send a bookmark with the version of the server on the streams whose path contains a text."""
        for each in self._matching(path):
            each.send(self._bookmark())

    def error(self, code: int, path: str = "") -> None:
        """Send an ERROR event on the streams whose path contains a text."""
        for each in self._matching(path):
            each.send(_error(code, f"injected: {code}"))

    def line(self, line: bytes, path: str = "") -> None:
        """Send a line as it is."""
        for each in self._matching(path):
            each.put(line)

    def cut(self, path: str = "") -> None:
        """Break the streams, as a lost connection does."""
        for each in self._matching(path):
            each.put(Unavailable("the watch broke: injected"))

    def end(self, path: str = "") -> None:
        """End the streams in good order."""
        for each in self._matching(path):
            each.put(_END)

    def _deliver(self, opened: _Stream, event: Obj) -> None:
        if not self.is_silent:
            opened.send(event)

    def _matching(self, path: str) -> list[_Stream]:
        return [each for each in self._open if path in each.path]

    def _bookmark(self) -> Obj:
        return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._server.version)}}}

    def _first_events(self, opened: _Stream) -> list[Obj]:
        if not opened.since:
            present = [{"type": "ADDED", "object": obj} for _, obj in self._server.objects(opened.kind)]
            return [*present, self._bookmark()]
        if opened.since < self.compacted:
            return [_error(410, f"too old resource version: {opened.since} ({self.compacted})")]
        return [event for kind, event in self._server.watches.history if kind == opened.kind]


class _Stream:
    """One open watch."""

    def __init__(self, target: TargetedRequest, *, is_metadata: bool) -> None:
        query = target.request.query
        self.kind: Kind = target.kind
        self.path = target.request.path
        self.since = int(query.get("resourceVersion") or 0)
        self._namespace = target.namespace
        self._selects: Callable[[Any], bool] = selects(query.get("labelSelector", ""))
        self._name = named(query.get("fieldSelector", ""))
        self._is_metadata = is_metadata
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, event: Obj) -> None:
        """Send an event that belongs to the collection and is newer than the requested version."""
        if event["type"] not in ("ERROR", "BOOKMARK"):
            metadata = event["object"]["metadata"]
            is_within = self._namespace in ("", metadata.get("namespace", ""))
            if not is_within or not self._selects(metadata.get("labels") or {}):
                return
            if self._name not in ("", metadata["name"]):
                return
            if self._is_metadata:
                event = {**event, "object": {"kind": "PartialObjectMetadata", "metadata": metadata}}
        if event["type"] == "ERROR" or resource_version(event["object"]) > self.since:
            self._queue.put_nowait(json.dumps(event).encode())

    def put(self, item: object) -> None:
        """Send a line as it is, raise an exception, or end the stream."""
        self._queue.put_nowait(item)

    async def lines(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not _END:
            if isinstance(item, Exception):
                raise item
            yield item


async def _garbled(body: Any) -> AsyncIterator[bytes]:
    """Yield a body that is no stream of events as one line, and end."""
    yield json.dumps(body).encode()


def _error(code: int, message: str) -> Obj:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return {"type": "ERROR", "object": status}
