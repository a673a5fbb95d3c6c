"""What an operator answers over HTTP: probes and metrics.

A probe never asks the API server: an operator whose API server is away must wait, not be restarted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import prometheus_client
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.Response]]
Check = Callable[[], str | None]
"""Says what is wrong; None if nothing is."""


def probe(*checks: Check) -> Handler:
    """A handler that answers 200, or 500 with what is wrong."""

    async def answer(_: web.Request) -> web.Response:
        wrong = [found for check in checks if (found := check())]
        return web.Response(status=500 if wrong else 200, text="; ".join(wrong) or "ok")

    return answer


async def scrape(_: web.Request) -> web.Response:
    """All metrics in Prometheus's text format."""
    return web.Response(
        body=prometheus_client.generate_latest(), headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
    )


async def serve(address: str, routes: Mapping[str, Handler]) -> web.AppRunner | None:
    """Start answering; `cleanup()` of what is returned ends it.

    Args:
        address: host:port, :port for every address, or "0" for not at all.

    Raises:
        ValueError: the address has another form.
        OSError: the address cannot be bound.
    """
    if address == "0":
        return None
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{address!r} is no address: write host:port, :port, or 0 for none")
    application = web.Application()
    application.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise OSError(
            f"cannot listen on {address}: {error.strerror or error}. Give another address, or 0 for none."
        ) from None
    return runner
