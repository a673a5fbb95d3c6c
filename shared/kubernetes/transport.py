"""How requests reach the API server: over a pool of aiohttp's, with the official client's configuration.

`kubernetes.aio` reads kubeconfigs and service accounts, runs exec plugins, renews tokens and sets up TLS. Its models
are not used, and its `ApiClient` is passed by: at each request it looks for proxies, and in a thread for a .netrc.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.sslproto import SSLProtocol
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration as Configuration
from kubernetes.aio.client.rest import RESTClientObject

from shared.kubernetes.client import SERVICE_ACCOUNT, Request, Response, Transport
from shared.kubernetes.errors import KubeError, Unavailable
from shared.observability import metrics

AGENT = "platform-operators"

MAX_CONNECTIONS = 48
MAX_REQUESTS_AT_ONCE = 32
"""Requests under way at most, and those of the workers among them: a Lease's renewal does not stand in line."""

REQUEST_TIMEOUT_SECONDS = 30.0
"""Seconds until a request that got no answer counts as failed."""

TOKEN_MAX_AGE_SECONDS = 300.0
"""Seconds after which credentials of a kubeconfig are read anew."""

_TIMEOUT = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)

SSLProtocol.max_size = 64 * 1024  # each connection holds a buffer of that size; asyncio's own 256 KiB are for downloads


class HttpTransport:
    """Requests over a pool of connections, each with the credentials of the moment."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._host: str = configuration.host
        self._session = open_session(configuration, connections=MAX_CONNECTIONS)

    async def request(self, request: Request) -> Response:
        method, body = request.method, request.body
        url = self._host + request.path + ("?" + urlencode(request.query) if request.query else "")
        headers = {"Content-Type": request.content_type, **await authorization(self._configuration)}
        try:
            sent = None if body is None else json.dumps(body).encode()
            async with self._session.request(method, url, data=sent, headers=headers, timeout=_TIMEOUT) as answer:
                text = await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            metrics.REST_REQUESTS.labels(code="<error>", method=method, host=self._host).inc()
            why = str(error) or type(error).__name__
            raise Unavailable(f"no answer from the API server: {why} ({request})") from None
        metrics.REST_REQUESTS.labels(code=str(answer.status), method=method, host=self._host).inc()
        return Response(answer.status, _decode(text), _seconds(answer.headers.get("Retry-After")))

    async def close(self) -> None:
        await self._session.close()


class Bounded:
    """A transport for those who come in crowds: the rest wait here, so that others find a connection.

    Args:
        requests: under way at most.
    """

    def __init__(self, transport: Transport, requests: int = MAX_REQUESTS_AT_ONCE) -> None:
        self._transport = transport
        self._places = asyncio.Semaphore(requests)

    async def request(self, request: Request) -> Response:
        async with self._places:
            return await self._transport.request(request)


def open_session(
    configuration: Configuration,
    *,
    connections: int = 0,
    answers: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
) -> aiohttp.ClientSession:
    """A pool of connections to the API server.

    Args:
        connections: at most so many at once; 0 for no bound.
        answers: what it answers with.
    """
    tls = RESTClientObject(configuration).ssl_context
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=tls),
        headers={"Accept": "application/json", "User-Agent": AGENT},
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=configuration.proxy or _proxy(configuration.host),
        response_class=answers,
    )


def _proxy(url: str) -> str | None:
    """The proxy that the environment names (HTTPS_PROXY, NO_PROXY) for an address."""
    address = urlsplit(url)
    return None if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)


async def authorization(configuration: Configuration) -> dict[str, str]:
    """The header that says who we are, with the token as it is now; none where a client certificate says it."""
    bearer = (await configuration.auth_settings()).get("BearerToken")
    return {"Authorization": str(bearer["value"])} if bearer else {}


def _decode(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return {"message": text[:200].decode(errors="replace")}


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdigit() else None


async def load_configuration(kubeconfig: str | None) -> Configuration:
    """Where the API server is and how to prove who we are.

    Args:
        kubeconfig: path of a kubeconfig file; None or empty uses the pod's service account, or else the default file
            (`~/.kube/config`).

    Raises:
        KubeError: there is no usable configuration; the message says what was tried.
    """
    configuration = Configuration()
    in_pod = not kubeconfig and (SERVICE_ACCOUNT / "token").exists()
    try:
        if in_pod:
            _loader.load_incluster_config(client_configuration=configuration)
        else:
            await _read_kubeconfig(kubeconfig, configuration)
    except (config.ConfigException, OSError) as error:
        where = kubeconfig or "the pod's service account or the default kubeconfig"
        raise KubeError(f"no Kubernetes to talk to: {where}: {error}. Give --kubeconfig or set KUBECONFIG.") from None
    if not in_pod:
        _keep_fresh(configuration, kubeconfig)
    return configuration


_loader: Any = config  # it is not typed


async def _read_kubeconfig(kubeconfig: str | None, configuration: Configuration) -> None:
    await _loader.load_kube_config(config_file=kubeconfig or None, client_configuration=configuration)


def _keep_fresh(configuration: Any, kubeconfig: str | None) -> None:
    """Read a kubeconfig anew now and then: tokens of exec plugins live for minutes. In a pod the client does so."""
    renewed = time.monotonic()

    async def renew(current: Configuration) -> None:
        nonlocal renewed
        if time.monotonic() - renewed > TOKEN_MAX_AGE_SECONDS:
            renewed = time.monotonic()  # first, so that requests meanwhile do not renew it again
            await _read_kubeconfig(kubeconfig, current)

    configuration.refresh_api_key_hook = renew
