"""HTTP endpoints of an operator: probes and metrics.

A probe never queries the API server: an operator whose API server is unavailable must wait, not restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import prometheus_client
from aiohttp import web
from prometheus_client.exposition import choose_encoder

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[], str | None]
"""Returns the problem; None if there is none."""


def probe(*checks: Check, note: Check = lambda: None, is_liveness: bool = False) -> Handler:
    """Return a handler that responds 200, or 500 with the problems.

    Args:
        note: returns a problem that does not fail the probe, and that the response names.
        is_liveness: whether to log problems: the kubelet restarts the container without naming them.
    """
    was_well = True

    async def answer(_: web.Request) -> web.Response:
        nonlocal was_well
        wrong = "; ".join(found for check in checks if (found := check()))
        if wrong and was_well and is_liveness:
            log.error("the liveness probe fails, so that the kubelet restarts the operator: %s", wrong)
        was_well = not wrong
        noted = note()
        return web.Response(status=500 if wrong else 200, text=wrong or (f"ok; {noted}" if noted else "ok"))

    return answer


async def scrape(request: web.Request) -> web.Response:
    """Return all metrics, in the Prometheus text format or in OpenMetrics with exemplars, as the client accepts."""
    encode, content_type = choose_encoder(", ".join(request.headers.getall("Accept", ())))
    body = await asyncio.to_thread(encode, prometheus_client.REGISTRY)  # encoding thousands of resources is slow
    return web.Response(body=body, headers={"Content-Type": content_type})
