"""OpenTelemetry spans of an operator: reconcile > observe, plan, and each request to the API server and the database.

Disabled unless a collector is configured: OpenTelemetry is then not imported, and a span costs one function call.

Names and attributes follow the semantic conventions for HTTP and database clients, and for Kubernetes
(https://opentelemetry.io/docs/specs/semconv/). The variables of the OpenTelemetry SDK apply: OTEL_SERVICE_NAME,
OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER, ….
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

SHUTDOWN_GRACE_SECONDS = 2.0
"""Seconds allowed at exit to send spans."""

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""Version of the semantic conventions."""

Attributes = Mapping[str, str | int]

NAMESPACE, POD = "k8s.namespace.name", "k8s.pod.name"
OBJECT_KIND, OBJECT_NAME = "k8s.object.kind", "k8s.object.name"
ERROR_TYPE = "error.type"

_NO_SPAN: AbstractContextManager[Any] = contextlib.nullcontext()
_NO_HEADERS: Mapping[str, str] = {}
_tracer: Any = None


def trace(name: str, attributes: Attributes | None = None) -> AbstractContextManager[Any]:
    """Start a span as the root of a trace; an exception marks it as failed.

    Args:
        name: name of the operation, without its object, so that there are few names.
        attributes: object of the operation.
    """
    return _NO_SPAN if _tracer is None else _started(name, attributes)


def span(name: str, attributes: Attributes | None = None) -> AbstractContextManager[Any]:
    """Start a span within the current trace; without a trace, such as for Lease renewals, there is no span."""
    return _NO_SPAN if trace_id() is None else _started(name, attributes)


def http_span(method: str) -> AbstractContextManager[Any]:
    """Start a span for an HTTP request within the current trace; `sent` and `received` complete it."""
    return _NO_SPAN if trace_id() is None else _started(method, {"http.request.method": method}, is_client=True)


def database_span(
    system: str, operation: str, address: str, port: int, *, pod: str = "", commands: int = 1
) -> AbstractContextManager[Any]:
    """Start a span for a request to a database within the current trace.

    Args:
        system: name of the database system, such as redis.
        operation: name of the first command, without arguments.
        address: host name or IP address of the server.
        pod: name of the server's pod; empty if unknown.
        commands: number of commands in the request.
    """
    if trace_id() is None:
        return _NO_SPAN
    attributes: dict[str, str | int] = {
        "db.system.name": system,
        "db.operation.name": operation,
        "server.address": address,
        "server.port": port,
    }
    if pod:
        attributes[POD] = pod
    if commands > 1:  # the convention for a single command is to leave it out
        attributes["db.operation.batch.size"] = commands
    return _started(operation, attributes, is_client=True)


def sent(url: str) -> Mapping[str, str]:
    """Add the URL of a request to the current span; return the headers that continue the trace at the server."""
    if trace_id() is None:
        return _NO_HEADERS
    from opentelemetry import propagate

    address = urlsplit(url)
    port = address.port or (443 if address.scheme == "https" else 80)
    note({"url.full": url, "server.address": address.hostname or "", "server.port": port})
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def received(status: int) -> None:
    """Add the status of a response to the current span; an error of the server or of the request is a failure."""
    if _tracer is None:
        return
    note({"http.response.status_code": status})
    if status >= 400:
        fail(str(status))


def note(attributes: Attributes) -> None:
    """Add attributes to the current span."""
    if _tracer is not None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(attributes)


def fail(error_type: str) -> None:
    """Mark the current span as failed, if there was no exception.

    Args:
        error_type: class of the error, without details.
    """
    if _tracer is not None:
        from opentelemetry import trace

        trace.get_current_span().set_status(trace.StatusCode.ERROR)
        note({ERROR_TYPE: error_type})


def trace_id() -> str | None:
    """Return the ID of the current trace, for logs; None if there is none."""
    if _tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


def exemplar() -> dict[str, str] | None:
    """Return the exemplar that links a measurement to the current trace; None if the trace is not exported."""
    if _tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return {"trace_id": trace.format_trace_id(context.trace_id)} if context.trace_flags.sampled else None


@contextlib.contextmanager
def _started(name: str, attributes: Attributes | None, *, is_client: bool = False) -> Iterator[Any]:
    from opentelemetry import trace

    kind = trace.SpanKind.CLIENT if is_client else trace.SpanKind.INTERNAL
    with _tracer.start_as_current_span(name, kind=kind, attributes=attributes) as started:
        try:
            yield started
        except Exception as error:
            started.set_attribute(ERROR_TYPE, type(error).__qualname__)
            raise


@contextlib.asynccontextmanager
async def exported(
    endpoint: str, service: str, resource: Attributes | None = None, *, exporter: SpanExporter | None = None
) -> AsyncIterator[None]:
    """Record spans and export them in the background, until the context exits.

    Args:
        endpoint: base URL of a collector, such as http://collector:4318. OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, which is a
            full URL, takes precedence. Without either, tracing is disabled.
        service: name of the service: the operator. OTEL_SERVICE_NAME takes precedence.
        resource: attributes of the process. OTEL_RESOURCE_ATTRIBUTES takes precedence.
        exporter: exporter to use instead of OTLP.

    Raises:
        ValueError: a variable of OpenTelemetry is invalid.
    """
    url = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (endpoint and endpoint.rstrip("/") + "/v1/traces")
    if not url or _is_disabled():
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    global _tracer
    described = Resource.create({"service.name": service, **(resource or {})}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=described, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(endpoint=url)))
    _tracer = provider.get_tracer("platform", schema_url=SCHEMA)
    try:
        yield
    finally:
        _tracer = None
        sending = threading.Thread(target=provider.shutdown, daemon=True)  # on its own it waits up to 30 s
        sending.start()
        await asyncio.to_thread(sending.join, SHUTDOWN_GRACE_SECONDS)


def _is_disabled() -> bool:
    """Whether variables of OpenTelemetry disable tracing; values that have no effect here are logged."""
    variables = os.environ
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return True
    exporters = [name.strip() for name in variables.get("OTEL_TRACES_EXPORTER", "").split(",") if name.strip()]
    if exporters and "otlp" not in exporters:
        if exporters != ["none"]:
            log.warning("traces are not exported: OTEL_TRACES_EXPORTER=%s; use otlp or none", ",".join(exporters))
        return True
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := variables.get(name):
            if protocol != "http/protobuf":
                log.warning("%s=%s is ignored: traces are exported by http/protobuf (port 4318)", name, protocol)
            break
    return False
