"""OpenTelemetry spans of what an operator does: reconcile > observe, plan, each request to the API and the database.

Off unless a collector is named; then OpenTelemetry is not even imported, and a span costs a function call. The usual
variables of OpenTelemetry's SDK hold too: OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, ….
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
"""Seconds that spans get at exit to be sent."""

_NO_SPAN: AbstractContextManager[Any] = contextlib.nullcontext()
_tracer: Any = None


def trace(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """A span that begins a trace; an exception that leaves it is its error.

    Args:
        name: what is done, without what it is done to: there are few names.
        attributes: what it is done to.
    """
    return _NO_SPAN if _tracer is None else _tracer.start_as_current_span(name, attributes=attributes)


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """A span around a part of what a trace is of; none outside of any, such as around the renewal of a Lease."""
    return _NO_SPAN if trace_id() is None else trace(name, **attributes)


def note(**attributes: str | int) -> None:
    """Say more of the current span, once it is known."""
    if _tracer is not None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(attributes)


def trace_id() -> str | None:
    """The current trace, as logs name it; None outside of any."""
    if _tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


def exemplar() -> dict[str, str] | None:
    """What leads from a measurement to the current trace; None if there is none, or it is not sent anywhere."""
    if _tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return {"trace_id": trace.format_trace_id(context.trace_id)} if context.trace_flags.sampled else None


@contextlib.asynccontextmanager
async def exported(endpoint: str, service: str, exporter: SpanExporter | None = None) -> AsyncIterator[None]:
    """Make spans, and send them in the background, until the context is left.

    Args:
        endpoint: a collector's base URL, such as http://collector:4318; empty for no spans at all.
        service: the service's name: the operator's.
        exporter: where they go instead.
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
        sending = threading.Thread(target=provider.shutdown, daemon=True)  # itself it waits for half a minute
        sending.start()
        await asyncio.to_thread(sending.join, SHUTDOWN_GRACE_SECONDS)
