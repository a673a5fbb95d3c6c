"""Requests and responses of the transport, over a real connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.kubernetes.client import APPLY_PATCH, Request, Response
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.transport import Bounded, HttpTransport

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
    return Configuration(host=server.url, api_key={"authorization": "Bearer first"})


@pytest.fixture
async def transport(configuration: Configuration) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(configuration)
    yield transport
    await transport.close()


async def test_request_is_sent_as_specified(server: Server, transport: HttpTransport) -> None:
    path, query = "/apis/example.com/v1/namespaces/a/things/b", {"force": "true", "labelSelector": "a=b"}
    answer = await transport.request(Request("PATCH", path, query, THING, APPLY_PATCH))
    assert answer == Response(200, THING)
    ((request, body),) = server.requests
    assert (request.method, request.path, dict(request.query)) == ("PATCH", path, query)
    assert request.headers["Content-Type"] == APPLY_PATCH
    assert request.headers["Accept"] == "application/json"
    assert json.loads(body) == THING


async def test_each_request_has_the_current_token(
    server: Server, transport: HttpTransport, configuration: Configuration
) -> None:
    await transport.request(Request("GET", "/"))
    configuration.api_key["authorization"] = "Bearer second"
    await transport.request(Request("GET", "/"))
    assert [request.headers["Authorization"] for request, _ in server.requests] == ["Bearer first", "Bearer second"]


async def test_response_that_is_not_json_is_shown_in_part(server: Server, transport: HttpTransport) -> None:
    server.status, server.text, server.headers = 503, "x" * 1000, {"Retry-After": "7"}
    assert await transport.request(Request("GET", "/")) == Response(503, {"message": "x" * 200}, 7.0)


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


class Slow:
    """A transport that responds when a test lets it."""

    def __init__(self) -> None:
        self.in_progress = 0
        self.go = asyncio.Event()

    async def request(self, request: Request) -> Response:
        self.in_progress += 1
        await self.go.wait()
        self.in_progress -= 1
        return Response(200, request.path)


async def test_concurrent_requests_are_limited() -> None:
    slow = Slow()
    crowd = Bounded(slow, requests=2)
    answers = [asyncio.ensure_future(crowd.request(Request("GET", f"/{number}"))) for number in range(5)]
    await asyncio.sleep(0)
    assert slow.in_progress == 2
    slow.go.set()
    assert [answer.body for answer in await asyncio.gather(*answers)] == ["/0", "/1", "/2", "/3", "/4"]
