"""An API server that only lists: objects of a prepared kind, over a real connection, from a process of its own.

The cost of a list is that of the client alone (tests/harness/cost.py).
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import multiprocessing
import multiprocessing.connection
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shared.kubernetes.kinds import Kind, Obj

Make = Callable[[int], Obj]
"""Returns the object of a number; a function of a module, which the process of the server imports."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, kind: Kind, texts: Sequence[Callable[[], bytes]], *args: Any) -> None:
        self._kind = kind
        self._texts = texts
        super().__init__(*args)

    def log_message(self, *_: Any) -> None:
        pass

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        begin = int(query.get("continue") or 0)
        end = min(begin + int(query.get("limit") or len(self._texts)), len(self._texts))
        of, items = self._kind, [make() for make in self._texts[begin:end]]
        api_version, name = of.api_version, f"{of.name}List"
        key = "items"
        if "as=PartialObjectMetadataList" in self.headers["Accept"]:
            api_version, name = "meta.k8s.io/v1", "PartialObjectMetadataList"
            items = [_encoded({"metadata": each["metadata"]}) for each in map(_decoded, items)]
        elif "as=Table" in self.headers["Accept"]:
            api_version, name, key = "meta.k8s.io/v1", "Table", "rows"
            assert query["includeObject"] == "None"
            items = [
                _encoded({"cells": [each["metadata"]["name"], 0], "object": None}) for each in map(_decoded, items)
            ]
        metadata = {"resourceVersion": "5"} | ({"continue": str(end)} if end < len(self._texts) else {})
        head = f'{{"apiVersion":"{api_version}","{key}":['.encode()  # as of a custom resource: sorted
        tail = f'],"kind":"{name}","metadata":{json.dumps(metadata)}}}'.encode()
        body = head + b",".join(items) + tail
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a client may refuse the rest
            self.wfile.write(body)


def _encoded(value: object) -> bytes:
    """Return a value as JSON, in which half a surrogate pair is a byte that is not UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogateescape")


def _decoded(text: bytes) -> Any:
    return json.loads(text.decode(errors="surrogateescape"))


def _serve(pipe: multiprocessing.connection.Connection, kind: Kind, make: Make, count: int) -> None:
    sys.setrecursionlimit(20_000)
    encoded = functools.lru_cache(maxsize=None)(lambda number: _encoded(make(number)))
    texts = [functools.partial(encoded, number) for number in range(count)]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, kind, texts)) as server:
        pipe.send(server.server_address[1])
        server.serve_forever()


@contextlib.contextmanager
def listing(kind: Kind, make: Make, count: int) -> Iterator[str]:
    """Serve a number of objects; yield the address of the server."""
    context = multiprocessing.get_context("spawn")
    own_end, other_end = context.Pipe()
    process = context.Process(target=_serve, args=(other_end, kind, make, count), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{own_end.recv()}"
    finally:
        process.kill()
        process.join()
