"""Requests and responses of the transport, over a real connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import REGISTRY

from shared.kubernetes import transport as transport_module
from shared.kubernetes.client import APPLY_PATCH, Request, Response
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.errors import Forbidden, Unavailable
from shared.kubernetes.transport import HttpTransport

THING = {"kind": "Thing", "metadata": {"name": "ä"}}


class Server:
    """Sends the same response to every request, and records the requests."""

    url = ""

    def __init__(self) -> None:
        self.requests: list[tuple[web.Request, bytes]] = []
        self.status, self.text, self.headers = 200, json.dumps(THING), {"Content-Type": "application/json"}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request, await request.read()))
        return web.Response(status=self.status, text=self.text, headers=self.headers)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(application) as running:
        server.url = str(running.make_url("")).rstrip("/")
        yield server


@pytest.fixture
async def configuration(server: Server) -> Configuration:
    return Configuration(host=server.url, token="Bearer first")


@pytest.fixture
async def transport(configuration: Configuration) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(configuration)
    yield transport
    await transport.close()


async def test_request_is_sent_as_specified(server: Server, transport: HttpTransport) -> None:
    path, query = "/apis/example.com/v1/namespaces/a/things/b", {"force": "true", "labelSelector": "a=b"}
    answer = await transport.request(Request("PATCH", path, query, THING, APPLY_PATCH))
    assert answer[:3] == Response(200, THING)[:3]
    ((request, body),) = server.requests
    assert (request.method, request.path, dict(request.query)) == ("PATCH", path, query)
    assert request.headers["Content-Type"] == APPLY_PATCH
    assert request.headers["Accept"] == "application/json"
    assert json.loads(body) == THING


async def test_each_request_has_the_current_token(
    server: Server, transport: HttpTransport, configuration: Configuration
) -> None:
    await transport.request(Request("GET", "/"))
    configuration.api_key["BearerToken"] = "Bearer second"
    await transport.request(Request("GET", "/"))
    assert [request.headers["Authorization"] for request, _ in server.requests] == ["Bearer first", "Bearer second"]


async def test_response_that_is_not_json_is_shown_in_part(server: Server, transport: HttpTransport) -> None:
    server.status, server.text, server.headers = 503, "x" * 1000, {"Retry-After": "7"}
    assert (await transport.request(Request("GET", "/")))[:3] == (503, {"message": "x" * 200}, 7.0)


async def test_missing_response_raises_unavailable() -> None:
    transport = HttpTransport(Configuration(host="http://127.0.0.1:1"))
    with pytest.raises(Unavailable, match=r"no answer from the API server: .* \(GET /api\)"):
        await transport.request(Request("GET", "/api"))
    await transport.close()


@pytest.mark.parametrize(("exempt", "passed_by"), [("", False), ("127.0.0.1", True)])
async def test_proxy_of_the_environment_is_used_unless_excluded(
    server: Server, monkeypatch: pytest.MonkeyPatch, exempt: str, passed_by: bool
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", exempt)
    transport = HttpTransport(Configuration(host="http://127.0.0.1:1"))
    if passed_by:
        with pytest.raises(Unavailable):
            await transport.request(Request("GET", "/api"))
    else:
        assert (await transport.request(Request("GET", "/api"))).body == THING
    await transport.close()


class Feed:
    """Sends prepared pieces of a watch, and then ends it, breaks it, or sends nothing more."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.end = "in good order"
        self.headers: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers["Accept"])
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in self.pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if self.end == "never":
            await asyncio.sleep(5)
        if self.end == "broken" and request.transport is not None:
            request.transport.abort()
        return response


@pytest.fixture
async def feed() -> AsyncIterator[tuple[Feed, HttpTransport]]:
    feed = Feed()
    application = web.Application()
    application.router.add_get("/{path:.*}", feed.handle)
    async with TestServer(application) as running:
        transport = HttpTransport(Configuration(host=str(running.make_url("")).rstrip("/")), connections=0)
        yield feed, transport
        await transport.close()


async def lines_of(transport: HttpTransport) -> list[bytes]:
    async with transport.stream(Request("GET", "/api/v1/pods", {"watch": "true"}), accept="text/x") as lines:
        return [line async for line in lines]


@pytest.mark.parametrize("pieces", [[b"a\nbc\n"], [b"a", b"\n", b"b", b"c\n"], [b"a\nb", b"c", b"\n"]])
async def test_lines_do_not_depend_on_how_a_watch_is_split(
    feed: tuple[Feed, HttpTransport], pieces: list[bytes]
) -> None:
    feed[0].pieces = pieces
    assert await lines_of(feed[1]) == [b"a", b"bc"]
    assert feed[0].headers == ["text/x"]


@pytest.mark.parametrize(("end", "pieces"), [("broken", [b"a\n"]), ("in good order", [b"a\nhalf an eve"])])
async def test_broken_watch_is_unavailable(feed: tuple[Feed, HttpTransport], end: str, pieces: list[bytes]) -> None:
    feed[0].end, feed[0].pieces = end, pieces
    with pytest.raises(Unavailable, match="the watch broke"):
        await lines_of(feed[1])


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_object_may_end_without_a_line_break(feed: tuple[Feed, HttpTransport], end: bytes) -> None:
    """A proxy may format JSON in another way."""
    feed[0].pieces = [b'{"a":', b"1}" + end]
    async with feed[1].stream(Request("GET", "/api/v1/namespaces/a/pods/b"), accept="text/x") as lines:
        assert b"".join([line async for line in lines]) == b'{"a":1}'


async def test_watch_that_sends_nothing_is_unavailable(
    feed: tuple[Feed, HttpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open connection: no event, no bookmark and no FIN."""
    monkeypatch.setattr(transport_module, "_STREAM_TIMEOUT", aiohttp.ClientTimeout(total=None, sock_read=0.1))
    feed[0].end, feed[0].pieces = "never", [b"a\n"]
    with pytest.raises(Unavailable, match="the watch broke"):
        await lines_of(feed[1])


async def test_refused_watch_has_the_servers_reason(server: Server, transport: HttpTransport) -> None:
    server.status, server.text = 403, json.dumps({"message": "secrets is forbidden", "reason": "Forbidden"})
    with pytest.raises(Forbidden, match="secrets is forbidden"):
        await lines_of(transport)


async def test_watch_of_an_unreachable_server_is_unavailable() -> None:
    transport = HttpTransport(Configuration(host="http://127.0.0.1:1"), connections=0)
    with pytest.raises(Unavailable):
        await lines_of(transport)
    await transport.close()


async def test_request_that_waits_for_a_connection_fails_when_the_pool_is_replaced(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool cancels each request that waits for a connection, although its task is not cancelled."""
    release, started = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        started.set()
        await release.wait()
        return web.json_response(THING)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", slow)
    async with TestServer(application) as running:
        configuration.host = str(running.make_url("")).rstrip("/")
        transport = HttpTransport(configuration, connections=1)
        first, *waiting = (asyncio.create_task(transport.request(Request("GET", "/"))) for _ in range(2))
        await started.wait()
        stream = asyncio.create_task(_opened(transport))
        await asyncio.sleep(0.05)
        configuration.tls.version += 1
        monkeypatch.setattr(type(configuration.tls), "reload", lambda _: None)
        assert await transport._renew()
        for task in (first, *waiting, stream):
            with pytest.raises(Unavailable):
                await task
        release.set()
        await transport.close()


async def _opened(transport: HttpTransport) -> None:
    async with transport.stream(Request("GET", "/"), accept="application/json"):
        pass


async def test_latency_includes_failed_requests_and_the_host_is_an_address(configuration: Configuration) -> None:
    configuration.host = "http://127.0.0.1:1"
    transport = HttpTransport(configuration)
    labels = {"verb": "GET", "host": "127.0.0.1:1"}

    def count() -> float:
        return REGISTRY.get_sample_value("rest_client_request_duration_seconds_count", labels) or 0

    before = count()
    with pytest.raises(Unavailable):
        await transport.request(Request("GET", "/"))
    assert count() == before + 1
    await transport.close()
