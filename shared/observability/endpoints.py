"""What an operator answers over HTTP: probes and metrics.

A probe never asks the API server: an operator whose API server is away must wait, not be restarted.
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
"""Says what is wrong; None if nothing is."""


def probe(*checks: Check) -> Handler:
    """A handler that answers 200, or 500 with what is wrong."""

    async def answer(_: web.Request) -> web.Response:
        wrong = [found for check in checks if (found := check())]
        return web.Response(status=500 if wrong else 200, text="; ".join(wrong) or "ok")

    return answer


async def scrape(request: web.Request) -> web.Response:
    """All metrics in Prometheus's text format, or in OpenMetrics', with exemplars, for who asks for it."""
    encode, content_type = choose_encoder(", ".join(request.headers.getall("Accept", ())))
    body = await asyncio.to_thread(encode, prometheus_client.REGISTRY)  # thousands of resources take a moment
    return web.Response(body=body, headers={"Content-Type": content_type})


async def serve(
    stack: AsyncExitStack, address: str, routes: Iterable[web.RouteDef], *, tls: ssl.SSLContext | None = None
) -> None:
    """Start answering, until the stack is left.

    Args:
        address: host:port, :port for every address, or "0" for not at all.
        tls: the serving certificate; what is loaded into it later holds for connections from then on. None: no TLS.

    Raises:
        ValueError: the address has another form.
        OSError: the address cannot be bound.
    """
    if address == "0":
        return
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{address!r} is no address: write host:port, :port, or 0 for none")
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=tls).start()
    except OSError as error:
        raise OSError(
            f"cannot listen on {address}: {error.strerror or error}. Give another address, or 0 for none."
        ) from None
