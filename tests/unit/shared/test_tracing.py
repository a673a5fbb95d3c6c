"""Spans tell what a reconcile did; without a collector there are none, and nothing of OpenTelemetry is there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared import tracing
from shared.cache import Cache
from shared.controller import Controller
from shared.kube import Kind, Kube, Obj
from shared.logs import JsonFormatter
from shared.plan import Plan, Verdict
from shared.testing.harness import Harness

THING = Kind("test.example.com", "v1", "Thing", "things")
log = logging.getLogger(__name__)


async def observe(_: Obj, __: Cache, ___: Kube) -> Obj:
    log.warning("observing")
    return {}


CONTROLLER: Controller[Obj, Obj] = Controller(
    operator="thing-operator",
    kind=THING,
    owns=(),
    parse=lambda obj: obj,
    observe=observe,
    plan=lambda _, __, ___: Plan((), Verdict(message="All is well."), {}),
)


async def reconciled(*, struck: bool = False) -> None:
    """One reconcile, by a worker as it is in a process."""
    harness = Harness(CONTROLLER)
    harness.apply("a")
    if struck:
        harness.server.faults.answer(503)
    worker = asyncio.create_task(harness.reconciler.work())
    await asyncio.sleep(0)  # it takes the key
    harness.queue.close()  # and the status that it writes is no news
    await harness.queue.rest()
    worker.cancel()


@contextlib.asynccontextmanager
async def recorded() -> AsyncIterator[dict[str, ReadableSpan]]:
    """The spans by name, filled when the context is left."""
    exporter, spans = InMemorySpanExporter(), dict[str, ReadableSpan]()
    async with tracing.exported("http://unused", "thing-operator", exporter):
        yield spans
    spans |= {span.name: span for span in exporter.get_finished_spans()}


async def test_a_reconcile_is_a_trace_of_what_it_did() -> None:
    async with recorded() as spans:
        await reconciled()
    assert list(spans) == ["observe", "plan", "PATCH", "reconcile"]
    root = spans["reconcile"]
    assert root.parent is None
    assert root.attributes == {"namespace": "default", "resource": "a", "result": "success"}
    for part in ("observe", "plan", "PATCH"):
        parent = spans[part].parent
        assert parent is not None
        assert root.context is not None
        assert parent.span_id == root.context.span_id
    assert spans["PATCH"].attributes == {"path": THING.path("default", "a", "status")}


async def test_a_request_that_fails_is_told_with_its_error() -> None:
    async with recorded() as spans:
        await reconciled(struck=True)
    assert "503" in (spans["PATCH"].status.description or "")
    assert (spans["reconcile"].attributes or {})["result"] == "error"


async def test_a_log_line_names_its_trace() -> None:
    formatted = list[Obj]()
    handler = logging.Handler()
    handler.emit = lambda record: formatted.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        async with recorded() as spans:
            await reconciled()
            log.warning("outside")
        await reconciled()
    finally:
        log.removeHandler(handler)
    context = spans["reconcile"].context
    assert context is not None
    assert [line.get("trace_id") for line in formatted] == [f"{context.trace_id:032x}", None, None]


async def test_without_a_collector_there_is_no_span() -> None:
    async with tracing.exported("", "thing-operator"):
        with tracing.span("reconcile", resource="a") as span:
            tracing.note(result="success")
            assert span is None
            assert tracing.trace_id() is None


def test_without_a_collector_opentelemetry_is_not_even_imported() -> None:
    code = "import shared.process, sys; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Collector(ThreadingHTTPServer):
    """Takes traces as an OpenTelemetry collector does, by OTLP over HTTP; or keeps everybody waiting."""

    def __init__(self) -> None:
        self.received = list[tuple[str, ExportTraceServiceRequest]]()
        self.hangs = False
        self.released = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.hangs:
                    collector.released.wait(30)
                collector.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


async def test_spans_arrive_at_a_collector_under_the_operators_name(collector: Collector) -> None:
    async with tracing.exported(f"http://127.0.0.1:{collector.server_port}/", "thing-operator"):
        await reconciled()
    [(path, request)] = collector.received
    assert path == "/v1/traces"
    [resource] = request.resource_spans
    names = {found.key: found.value.string_value for found in resource.resource.attributes}
    assert names["service.name"] == "thing-operator"
    assert {span.name for span in resource.scope_spans[0].spans} == {"reconcile", "observe", "plan", "PATCH"}


async def test_a_collector_that_does_not_answer_holds_up_no_end(collector: Collector) -> None:
    collector.hangs = True
    async with tracing.exported(f"http://127.0.0.1:{collector.server_port}", "thing-operator"):
        await reconciled()
        before = time.monotonic()
    assert time.monotonic() - before < tracing.FAREWELL + 1
