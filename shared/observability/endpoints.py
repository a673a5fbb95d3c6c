"""HTTP endpoints of an operator: probes and metrics.

A probe never queries the API server: an operator whose API server is unavailable must wait, not restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import prometheus_client
from aiohttp import web
from prometheus_client.exposition import choose_encoder

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[], str | None]
"""Returns the problem; None if there is none."""


def probe(*checks: Check) -> Handler:
    """Return a handler that responds 200, or 500 with the problems."""

    async def answer(_: web.Request) -> web.Response:
        wrong = [found for check in checks if (found := check())]
        return web.Response(status=500 if wrong else 200, text="; ".join(wrong) or "ok")

    return answer


async def scrape(request: web.Request) -> web.Response:
    """Return all metrics, in the Prometheus text format or in OpenMetrics with exemplars, as the client accepts."""
    encode, content_type = choose_encoder(", ".join(request.headers.getall("Accept", ())))
    body = await asyncio.to_thread(encode, prometheus_client.REGISTRY)  # encoding thousands of resources is slow
    return web.Response(body=body, headers={"Content-Type": content_type})
