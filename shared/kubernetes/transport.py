"""Transport to the API server: a connection pool of aiohttp, with the configuration of the official client.

`kubernetes.aio` reads kubeconfigs and service accounts, runs exec plugins, renews tokens and sets up TLS. Its models
and its `ApiClient` are not used: the latter resolves proxies on each request, and a .netrc in a thread.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration as Configuration
from kubernetes.aio.client.rest import RESTClientObject

from shared.kubernetes.client import SERVICE_ACCOUNT, Request, Response, Transport, error_of
from shared.kubernetes.errors import KubeError, Unavailable
from shared.observability import metrics

AGENT = "platform-operators"

MAX_CONNECTIONS = 48
MAX_REQUESTS_AT_ONCE = 32
"""Maximum number of connections, and of concurrent requests by workers: Lease renewals never wait for a connection."""

REQUEST_TIMEOUT_SECONDS = 30.0
"""Seconds after which a request without a response fails."""

TOKEN_MAX_AGE_SECONDS = 300.0
"""Seconds after which the credentials of a kubeconfig are read again."""

MAX_SILENCE_SECONDS = 150.0
"""Seconds without a byte after which a watch counts as broken: API servers send a bookmark about every minute."""

_TIMEOUT = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
_STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_SECONDS, sock_read=MAX_SILENCE_SECONDS)

SSLProtocol.max_size = 64 * 1024  # buffer per connection; asyncio's default of 256 KiB is for downloads


class HttpTransport:
    """Sends requests over a pool of connections, each with the current credentials.

    Args:
        connections: maximum number of connections; 0 for no limit, as watches need, which occupy one each.
    """

    def __init__(self, configuration: Configuration, *, connections: int = MAX_CONNECTIONS) -> None:
        self._configuration = configuration
        self._host: str = configuration.host
        self._session = open_session(configuration, connections=connections)

    async def request(self, request: Request) -> Response:
        method, body = request.method, request.body
        headers = {"Content-Type": request.content_type, **await authorization(self._configuration)}
        started = time.perf_counter()
        try:
            sent = None if body is None else json.dumps(body).encode()
            async with self._session.request(
                method, self._url(request), data=sent, headers=headers, timeout=_TIMEOUT
            ) as answer:
                text = await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            metrics.REST_REQUESTS.labels(code="<error>", method=method, host=self._host).inc()
            why = str(error) or type(error).__name__
            raise Unavailable(f"no answer from the API server: {why} ({request})") from None
        metrics.REST_REQUESTS.labels(code=str(answer.status), method=method, host=self._host).inc()
        metrics.REST_LATENCY.labels(verb=method, host=self._host).observe(time.perf_counter() - started)
        return Response(answer.status, _decode(text), _seconds(answer.headers.get("Retry-After")))

    @asynccontextmanager
    async def stream(self, request: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines (`shared.kubernetes.streams.Streams`)."""
        headers = {"Accept": accept, **await authorization(self._configuration)}
        try:
            async with self._session.get(self._url(request), headers=headers, timeout=_STREAM_TIMEOUT) as answer:
                metrics.REST_REQUESTS.labels(code=str(answer.status), method="GET", host=self._host).inc()
                if answer.status != 200:
                    refused = _decode(await answer.read())
                    raise error_of(
                        Response(answer.status, refused, _seconds(answer.headers.get("Retry-After"))), request
                    )
                yield _lines(answer.content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the watch broke: {str(error) or type(error).__name__} ({request})") from None

    def _url(self, request: Request) -> str:
        return self._host + request.path + ("?" + urlencode(request.query) if request.query else "")

    async def close(self) -> None:
        await self._session.close()


class Bounded:
    """Limits concurrent requests, so that other users of the pool find a free connection.

    Args:
        requests: maximum number of concurrent requests.
    """

    def __init__(self, transport: Transport, requests: int = MAX_REQUESTS_AT_ONCE) -> None:
        self._transport = transport
        self._limit = asyncio.Semaphore(requests)

    async def request(self, request: Request) -> Response:
        async with self._limit:
            return await self._transport.request(request)


def open_session(configuration: Configuration, *, connections: int = 0) -> aiohttp.ClientSession:
    """Open a pool of connections to the API server.

    Args:
        connections: maximum number of connections; 0 for no limit.
    """
    tls = RESTClientObject(configuration).ssl_context
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=tls),
        headers={"Accept": "application/json", "User-Agent": AGENT},
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=configuration.proxy or _proxy(configuration.host),
    )


def _proxy(url: str) -> str | None:
    """Return the proxy for a URL from the environment (HTTPS_PROXY, NO_PROXY)."""
    address = urlsplit(url)
    return None if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)


async def authorization(configuration: Configuration) -> dict[str, str]:
    """Return the Authorization header with the current token; empty if a client certificate authenticates."""
    bearer = (await configuration.auth_settings()).get("BearerToken")
    return {"Authorization": str(bearer["value"])} if bearer else {}


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length.

    Raises:
        aiohttp.ClientPayloadError: the stream ends within a line.
    """
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for part in others:
            yield b"".join(parts)
            parts = [part]
    if any(parts):
        raise aiohttp.ClientPayloadError("the stream ends within an event")


def _decode(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return {"message": text[:200].decode(errors="replace")}


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdigit() else None


async def load_configuration(kubeconfig: str | None) -> Configuration:
    """Return the address and the credentials of the API server.

    Args:
        kubeconfig: path of a kubeconfig; None or empty uses the service account of the pod, or else the default file
            (`~/.kube/config`).

    Raises:
        KubeError: there is no usable configuration; the message lists the tried sources.
    """
    configuration = Configuration()
    in_pod = not kubeconfig and (SERVICE_ACCOUNT / "token").exists()
    try:
        if in_pod:
            _loader.load_incluster_config(client_configuration=configuration)
        else:
            await _read_kubeconfig(kubeconfig, configuration)
    except (config.ConfigException, OSError) as error:
        where = kubeconfig or "the service account of the pod or the default kubeconfig"
        raise KubeError(f"cannot connect to Kubernetes: {where}: {error}. Set --kubeconfig or KUBECONFIG.") from None
    if not in_pod:
        _keep_fresh(configuration, kubeconfig)
    return configuration


_loader: Any = config  # the module has no type hints


async def _read_kubeconfig(kubeconfig: str | None, configuration: Configuration) -> None:
    await _loader.load_kube_config(config_file=kubeconfig or None, client_configuration=configuration)


def _keep_fresh(configuration: Any, kubeconfig: str | None) -> None:
    """Read a kubeconfig again periodically: tokens of exec plugins are short-lived. In a pod the client does so."""
    renewed = time.monotonic()

    async def renew(current: Configuration) -> None:
        nonlocal renewed
        if time.monotonic() - renewed > TOKEN_MAX_AGE_SECONDS:
            renewed = time.monotonic()  # set first, so that concurrent requests do not renew as well
            await _read_kubeconfig(kubeconfig, current)

    configuration.refresh_api_key_hook = renew
