"""What an operator answers over HTTP: probes and metrics, and who may ask.

A probe never asks the API server: an operator whose API server is away must wait, not be restarted.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple

import prometheus_client
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from shared.kubernetes.client import Kind, Kube, KubeError, Obj, Unavailable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[], str | None]
"""Says what is wrong; None if nothing is."""

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)

VERDICT_AGE = 10.0
"""Seconds for which the API server's word on a token is believed."""

VERDICTS = 256
"""Tokens whose verdicts are remembered at most."""


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


class Verdict(NamedTuple):
    """What is answered to a request before it is handled: 200 lets it pass, anything else says why not."""

    status: int
    text: str = ""


class Guard:
    """Lets those pass whom the API server knows (TokenReview) and lets GET the path (SubjectAccessReview).

    Who scrapes every few seconds is asked about once in `VERDICT_AGE`, so a scrape costs two requests at most, and
    usually none. Rights that are withdrawn end after that time.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._verdicts: OrderedDict[tuple[bytes, str], tuple[float, asyncio.Task[Verdict]]] = OrderedDict()

    def protect(self, handler: Handler) -> Handler:
        """The handler, for those who may."""

        async def answer(request: web.Request) -> web.StreamResponse:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                verdict = Verdict(401, "send a service account's token as `Authorization: Bearer …`")
            else:
                verdict = await self._verdict(token.strip(), request.path)
            if verdict.status == 200:
                return await handler(request)
            headers = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else {}
            return web.Response(status=verdict.status, text=verdict.text + "\n", headers=headers)

        return answer

    async def _verdict(self, token: str, path: str) -> Verdict:
        key = (hashlib.sha256(token.encode()).digest(), path)  # no token is kept
        expiry, asked = self._verdicts.get(key, (0.0, None))
        if asked is None or self._clock() >= expiry:
            asked = asyncio.create_task(self._ask(token, path))
            self._verdicts[key] = (self._clock() + VERDICT_AGE, asked)
            self._verdicts.move_to_end(key)
            if len(self._verdicts) > VERDICTS:
                self._verdicts.popitem(last=False)
        try:
            return await asyncio.shield(asked)  # others may wait for the same
        except KubeError as error:
            self._verdicts.pop(key, None)  # no verdict: the next one asks anew
            status = 503 if isinstance(error, Unavailable) else 500
            return Verdict(status, f"the API server did not say whether you may: {error}")

    async def _ask(self, token: str, path: str) -> Verdict:
        reviewed = (await self._review(TOKEN_REVIEW, {"token": token})).get("status") or {}
        if not reviewed.get("authenticated"):
            return Verdict(401, "the API server does not know this token; it may have expired")
        user = reviewed["user"]
        wanted = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        access = (await self._review(ACCESS_REVIEW, wanted)).get("status") or {}
        if not access.get("allowed"):
            name = wanted["user"]
            return Verdict(403, f"{name} may not GET {path}: bind it to a ClusterRole with nonResourceURLs [{path}]")
        return Verdict(200)

    async def _review(self, kind: Kind, spec: Obj) -> Obj:
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}, "spec": spec}
        return await self._kube.create(kind, body)


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
