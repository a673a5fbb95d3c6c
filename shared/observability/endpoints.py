"""HTTP endpoints of an operator: probes and metrics.

A probe never queries the API server: an operator whose API server is unavailable must wait, not restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import prometheus_client
from prometheus_client.exposition import choose_encoder

from shared.observability import metrics
from shared.observability.http_messages import Request, Response
from shared.observability.http_server import Handler, Limits

log = logging.getLogger(__name__)

PROBE_LIMITS = Limits(body_bytes=0, header_seconds=3.0, idle_seconds=0.0, request_seconds=5.0)
"""Limits of the probes' server. The kubelet opens a connection for each probe, and sends its request at once."""

SCRAPE_LIMITS = Limits(body_bytes=0)
"""Limits of the metrics' server."""

Check = Callable[[], str | None]
"""Returns the problem; None if there is none."""


def probe(*checks: Check, note: Check = lambda: None, is_liveness: bool = False) -> Handler:
    """Return a handler that responds 200, or 500 with the problems.

    Args:
        note: returns a problem that does not fail the probe, and that the response names.
        is_liveness: whether to log problems: the kubelet restarts the container without naming them.
    """
    was_well = True

    async def answer(_: Request) -> Response:
        nonlocal was_well
        wrong = "; ".join(found for check in checks if (found := check()))
        if wrong and was_well and is_liveness:
            log.error("the liveness probe fails, so that the kubelet restarts the operator: %s", wrong)
        was_well = not wrong
        noted = note()
        return Response.text(wrong or (f"ok; {noted}" if noted else "ok"), status=500 if wrong else 200)

    return answer


_ENCODER = ThreadPoolExecutor(1, "scrapes")
"""Thread that encodes metrics, for one client after the other."""


async def scrape(request: Request) -> Response:
    """Return all metrics, in the Prometheus text format or in OpenMetrics with exemplars, as the client accepts.

    With thousands of resources, encoding takes seconds and megabytes. A thread does it for one client after the other.
    """
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    body = await asyncio.get_running_loop().run_in_executor(_ENCODER, encode, prometheus_client.REGISTRY)
    return Response(body=body, content_type=content_type)


def count_refusal(what: str) -> None:
    """Count a connection or a request that a limit of a server refused or ended."""
    metrics.HTTP_REFUSED.labels(what=what).inc()
