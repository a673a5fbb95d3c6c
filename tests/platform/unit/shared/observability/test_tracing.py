"""Spans describe a reconcile; without a collector there are none, and OpenTelemetry is not imported."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.transport import HttpTransport
from shared.observability import tracing
from shared.observability.logs import JsonFormatter
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.plan import Plan
from shared.status.verdict import Verdict
from simulator.harness import Harness
from tests.support.otlp import Collector, collecting

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
    """Run one reconcile by a worker, as in a process."""
    harness = Harness(CONTROLLER)
    harness.apply("a")
    if struck:
        harness.server.faults.answer(503)
    worker = asyncio.create_task(harness.reconciler.work())
    await asyncio.sleep(0)  # the worker takes the key
    harness.queue.close()  # its write of the status causes no second reconcile
    await harness.queue.rest()
    worker.cancel()


@contextlib.asynccontextmanager
async def recorded() -> AsyncIterator[dict[str, ReadableSpan]]:
    """Yield the spans by name, filled when the context exits."""
    exporter, spans = InMemorySpanExporter(), dict[str, ReadableSpan]()
    async with tracing.exported("http://unused", "thing-operator", exporter=exporter):
        yield spans
    spans |= {span.name: span for span in exporter.get_finished_spans()}


async def test_reconcile_is_a_trace_of_its_operations() -> None:
    async with recorded() as spans:
        await reconciled()
    assert list(spans) == ["observe", "plan", "PATCH", "reconcile"]
    root = spans["reconcile"]
    assert root.parent is None
    assert root.attributes == {
        "k8s.object.kind": "Thing",
        "k8s.namespace.name": "default",
        "k8s.object.name": "a",
        "result": "success",
    }
    assert root.kind is SpanKind.INTERNAL
    for part in ("observe", "plan", "PATCH"):
        parent = spans[part].parent
        assert parent is not None
        assert root.context is not None
        assert parent.span_id == root.context.span_id
    assert spans["PATCH"].attributes == {"http.request.method": "PATCH", "http.response.status_code": 200}
    assert spans["PATCH"].kind is SpanKind.CLIENT
    assert {span.status.status_code for span in spans.values()} == {StatusCode.UNSET}


async def test_failed_request_is_recorded_with_its_error() -> None:
    async with recorded() as spans:
        await reconciled(struck=True)
    assert spans["PATCH"].attributes == {
        "http.request.method": "PATCH",
        "http.response.status_code": 503,
        "error.type": "503",
    }
    assert (spans["reconcile"].attributes or {})["error.type"] == "error"
    for name in ("PATCH", "reconcile"):
        assert (spans[name].status.status_code, spans[name].status.description) == (StatusCode.ERROR, None)


async def test_request_without_a_response_is_recorded_with_its_error() -> None:
    transport = HttpTransport(Configuration(host="http://127.0.0.1:1"))
    async with recorded() as spans:
        with contextlib.suppress(Unavailable), tracing.trace("reconcile"):
            await Kube(transport, manager="thing-operator").list(THING)
    await transport.close()
    request = spans["GET"]
    assert request.attributes == {
        "http.request.method": "GET",
        "url.full": f"http://127.0.0.1:1{THING.path()}",
        "server.address": "127.0.0.1",
        "server.port": 1,
        "error.type": "Unavailable",
    }
    assert request.status.status_code is StatusCode.ERROR


async def test_trace_continues_at_the_api_server() -> None:
    headers = list[str | None]()

    async def handle(request: web.Request) -> web.Response:
        headers.append(request.headers.get("traceparent"))
        return web.json_response({"kind": f"{THING.name}List", "metadata": {"resourceVersion": "1"}})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(application) as server:
        transport = HttpTransport(Configuration(host=str(server.make_url("")).rstrip("/")))
        kube = Kube(transport, manager="thing-operator")
        async with recorded() as spans:
            with tracing.trace("reconcile"):
                await kube.list(THING)
            await kube.list(THING)
        await kube.list(THING)
        await transport.close()
    context = spans["GET"].context
    assert context is not None
    assert [header and header[:-3] for header in headers] == [
        f"00-{context.trace_id:032x}-{context.span_id:016x}",
        None,
        None,
    ]


async def test_log_line_has_its_trace_id() -> None:
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


async def test_no_span_without_a_collector() -> None:
    async with tracing.exported("", "thing-operator"):
        with tracing.span("reconcile", {"resource": "a"}) as span:
            tracing.note({"result": "success"})
            assert span is None
            assert tracing.trace_id() is None


def test_opentelemetry_is_not_imported_without_a_collector() -> None:
    code = "import shared.runtime.process, sys; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


async def test_spans_are_sent_to_a_collector_under_the_name_of_the_operator(collector: Collector) -> None:
    async with tracing.exported(f"{collector.url}/", "thing-operator"):
        await reconciled()
    assert collector.paths == ["/v1/traces"]
    assert {span.service for span in collector.spans} == {"thing-operator"}
    [root] = [span for span in collector.spans if not span.parent]
    assert root.name == "reconcile"
    assert [part.name for part in collector.parts(root)] == ["observe", "plan", "PATCH"]


async def test_variables_of_opentelemetry_take_precedence(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "caches")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,k8s.pod.name=mine")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/custom/path")
    pod = {"k8s.namespace.name": "platform-system", "k8s.pod.name": "pod"}
    async with tracing.exported("http://127.0.0.1:1", "thing-operator", pod):
        await reconciled()
    assert collector.paths == ["/custom/path"]
    [root] = [span for span in collector.spans if not span.parent]
    expected = {
        "service.name": "caches",
        "deployment.environment.name": "test",
        "k8s.namespace.name": "platform-system",
        "k8s.pod.name": "mine",
        "telemetry.sdk.language": "python",
    }
    assert expected.items() <= root.resource.items()


@pytest.mark.parametrize(
    "variables",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console"}],
)
async def test_variables_of_opentelemetry_disable_tracing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with tracing.exported("http://127.0.0.1:1", "thing-operator"):
        with tracing.trace("reconcile") as span:
            assert span is None
    assert ("use otlp or none" in caplog.text) == ("console" in variables.values())


async def test_other_protocol_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    async with recorded():
        pass
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is ignored" in caplog.text


async def test_unresponsive_collector_does_not_delay_shutdown(collector: Collector) -> None:
    collector.hangs = True
    async with tracing.exported(collector.url, "thing-operator"):
        await reconciled()
        before = time.monotonic()
    assert time.monotonic() - before < tracing.SHUTDOWN_GRACE_SECONDS + 1


async def test_lease_renewals_are_not_traced() -> None:
    """Renewals of a Lease, every two seconds, would hide other traces."""
    async with recorded() as spans:
        harness = Harness(CONTROLLER)
        await Kube(harness.server, manager="thing-operator").list(THING)
        with tracing.span("GET") as span:
            assert span is None
        with tracing.trace("reconcile"), tracing.span("observe"):
            pass
    assert list(spans) == ["observe", "reconcile"]


async def test_reconcile_time_has_an_exemplar_in_openmetrics() -> None:
    async with recorded() as spans:
        await reconciled()
    context = spans["reconcile"].context
    assert context is not None
    text = generate_latest(REGISTRY).decode()  # type: ignore[no-untyped-call]
    named = {
        family.name
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar and sample.exemplar.labels == {"trace_id": f"{context.trace_id:032x}"}
    }
    assert named == {
        "controller_runtime_reconcile_time_seconds",
        "platform_time_to_ready_seconds",
        "workqueue_work_duration_seconds",
    }


async def test_trace_that_is_not_sampled_has_no_exemplar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    async with recorded() as spans:
        with tracing.trace("reconcile"):
            assert tracing.exemplar() is None
    assert not spans


async def test_no_exemplar_without_a_collector() -> None:
    assert tracing.exemplar() is None
