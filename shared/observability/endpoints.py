"""HTTP endpoints of an operator: probes and metrics.

A probe never queries the API server: an operator whose API server is unavailable must wait, not restart.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack

import prometheus_client
from aiohttp import web
from prometheus_client.exposition import choose_encoder

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[], str | None]
"""Returns the problem; None if there is none."""


def probe(*checks: Check, note: Check = lambda: None) -> Handler:
    """Return a handler that responds 200, or 500 with the problems.

    Args:
        note: returns a problem that does not fail the probe, and that the response names.
    """

    async def answer(_: web.Request) -> web.Response:
        wrong = [found for check in checks if (found := check())]
        noted = note()
        return web.Response(status=500 if wrong else 200, text="; ".join(wrong) or (f"ok; {noted}" if noted else "ok"))

    return answer


async def scrape(request: web.Request) -> web.Response:
    """Return all metrics, in the Prometheus text format or in OpenMetrics with exemplars, as the client accepts."""
    encode, content_type = choose_encoder(", ".join(request.headers.getall("Accept", ())))
    body = await asyncio.to_thread(encode, prometheus_client.REGISTRY)  # encoding thousands of resources is slow
    return web.Response(body=body, headers={"Content-Type": content_type})


async def serve(
    stack: AsyncExitStack, address: str, routes: Iterable[web.RouteDef], *, tls: ssl.SSLContext | None = None
) -> None:
    """Start serving, until the stack is closed.

    Args:
        address: host:port, :port for all addresses, or "0" to disable.
        tls: serving certificate; a certificate loaded later applies to new connections. None disables TLS.

    Raises:
        ValueError: the address has another form.
        OSError: the address cannot be bound.
    """
    if address == "0":
        return
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{address!r} is not an address: use host:port, :port, or 0 to disable")
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=tls).start()
    except OSError as error:
        raise OSError(
            f"cannot listen on {address}: {error.strerror or error}. Use another address, or 0 to disable."
        ) from None
