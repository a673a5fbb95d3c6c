"""A receiver of OTLP traces over HTTP, like an OpenTelemetry collector, that decodes them with the official schema."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Span:
    """A received span.

    Attributes:
        resource: attributes of the process.
        parent: ID of the parent span; empty for a root span.
        is_client: whether its kind is CLIENT.
        failed: whether its status is ERROR.
        error: description of its error status; empty without an error.
        seconds: duration.
    """

    service: str
    resource: dict[str, str | int]
    trace: str
    id: str
    parent: str
    name: str
    attributes: dict[str, str | int]
    is_client: bool
    failed: bool
    error: str
    seconds: float


class Collector(ThreadingHTTPServer):
    """Accepts traces, or leaves requests unanswered.

    Attributes:
        hangs: whether requests stay unanswered.
        paths: paths of the received requests.
    """

    def __init__(self) -> None:
        self.hangs = False
        self.paths = list[str]()
        self.released = threading.Event()
        self._spans = list[Span]()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.hangs:
                    collector.released.wait(30)
                collector.paths.append(self.path)
                collector._spans += _read(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        """Return all spans received so far."""
        return list(self._spans)

    def parts(self, whole: Span) -> list[Span]:
        """Return the child spans of a span."""
        return [span for span in self._spans if (span.trace, span.parent) == (whole.trace, whole.id)]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a receiver on a free port while the context is open."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def _read(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        described = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                failed = span.status.code == Status.STATUS_CODE_ERROR
                yield Span(
                    service=str(described["service.name"]),
                    resource=described,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    name=span.name,
                    attributes=_attributes(span.attributes),
                    is_client=span.kind == Sent.SPAN_KIND_CLIENT,
                    failed=failed,
                    error=span.status.message if failed else "",
                    seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                )


def _attributes(found: Any) -> dict[str, str | int]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in found}
