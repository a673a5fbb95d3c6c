"""OpenTelemetry spans of an operator: reconcile > observe, plan, and each request to the API server and the database.

Disabled unless a collector is configured: OpenTelemetry is then not imported, and a span costs one function call. The
variables of the OpenTelemetry SDK apply: OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, ….
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

SHUTDOWN_GRACE_SECONDS = 2.0
"""Seconds allowed at exit to send spans."""

_NO_SPAN: AbstractContextManager[Any] = contextlib.nullcontext()
_tracer: Any = None


def trace(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """Start a span as the root of a trace; an exception marks it as failed.

    Args:
        name: name of the operation, without its object, so that there are few names.
        attributes: object of the operation.
    """
    return _NO_SPAN if _tracer is None else _tracer.start_as_current_span(name, attributes=attributes)


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """Start a span within the current trace; without a trace, such as for Lease renewals, there is no span."""
    return _NO_SPAN if trace_id() is None else trace(name, **attributes)


def note(**attributes: str | int) -> None:
    """Add attributes to the current span."""
    if _tracer is not None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(attributes)


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


@contextlib.asynccontextmanager
async def exported(endpoint: str, service: str, exporter: SpanExporter | None = None) -> AsyncIterator[None]:
    """Record spans and export them in the background, until the context exits.

    Args:
        endpoint: base URL of a collector, such as http://collector:4318; empty disables tracing.
        service: name of the service: the operator.
        exporter: exporter to use instead of OTLP.
    """
    if not endpoint:
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    global _tracer
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    sent_by = exporter or OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(sent_by))
    _tracer = provider.get_tracer("platform")
    try:
        yield
    finally:
        _tracer = None
        sending = threading.Thread(target=provider.shutdown, daemon=True)  # on its own it waits up to 30 s
        sending.start()
        await asyncio.to_thread(sending.join, SHUTDOWN_GRACE_SECONDS)
