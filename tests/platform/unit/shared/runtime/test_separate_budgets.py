"""Requests to /metrics do not take the connections of the Lease: leadership outlasts a flood of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.kubernetes.access_review import REVIEW_TIMEOUT_SECONDS, Guard
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.kinds import LEASE
from shared.kubernetes.transport import MAX_REVIEW_CONNECTIONS, Transports
from shared.observability import endpoints, http_server
from shared.observability.http_server import Limits, Route
from shared.runtime.leader_election import Leadership, Times
from shared.status.events import Recorder
from tools.local.machine.network import free_ports

TIMES = Times(lease_duration=6, renew_deadline=4.0, retry_period=0.2)

CLIENTS = tuple(f"127.0.0.{number}" for number in range(2, 42))
"""Addresses of the loopback interface, each of which sends ten requests."""


class ApiServer:
    """An API server that grants the Lease, and never answers a review.

    Attributes:
        most_reviews: maximum number of reviews in progress at once.
    """

    def __init__(self) -> None:
        self._reviews = self.most_reviews = 0

    async def handle(self, request: web.Request) -> web.Response:
        if "reviews" in request.path:
            self._reviews += 1
            self.most_reviews = max(self.most_reviews, self._reviews)
            try:
                await asyncio.Event().wait()
            finally:
                self._reviews -= 1
        if request.method == "GET":
            return web.json_response({"message": "no Lease"}, status=404)
        body = json.loads(await request.read())
        metadata = {**body["metadata"], "resourceVersion": "1", "uid": "u"}
        return web.json_response({"apiVersion": LEASE.api_version, "kind": LEASE.name, **body, "metadata": metadata})


@pytest.fixture
async def server() -> AsyncIterator[tuple[ApiServer, Transports]]:
    server = ApiServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(TestServer(application, handler_cancellation=True))
        configuration = Configuration(host=str(running.make_url("")).rstrip("/"))
        yield server, await stack.enter_async_context(Transports.open(configuration))


async def test_leadership_outlasts_400_requests_to_metrics(server: tuple[ApiServer, Transports]) -> None:
    api_server, transports = server
    (port,) = free_ports(1)
    lease = Kube(transports.lease, manager="operator")
    leadership = Leadership(
        lease, Recorder(lease, component="operator"), name="operator", namespace="default", times=TIMES
    )
    answers = Counter[int]()

    async def scrape(client: str, number: int) -> None:
        head = f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer forged-{client}-{number}\r\n\r\n"
        status = 0
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(client, 0))
            writer.write(head.encode())
            if line := await reader.readline():
                status = int(line.split()[1])
            writer.transport.abort()
        answers[status] += 1

    async with AsyncExitStack() as stack:
        guard = Guard(Kube(transports.reviews, manager="operator"))
        routes = [Route("GET", "/metrics", guard.protect(endpoints.scrape))]
        await http_server.serve(stack, f"127.0.0.1:{port}", routes)
        lost = await stack.enter_async_context(leadership.term())
        flood = [asyncio.create_task(scrape(client, number)) for client in CLIENTS for number in range(10)]
        await asyncio.wait(flood, timeout=4 * REVIEW_TIMEOUT_SECONDS)
        assert not lost.done(), "the Lease is renewed"
        assert all(task.done() for task in flood)
        assert 0 < api_server.most_reviews <= MAX_REVIEW_CONNECTIONS
    assert answers.total() == 400
    assert answers[503] >= Limits().requests, "reviews without an answer end, and further requests are refused"
    assert set(answers) <= {0, 429, 503}, "the rest gets no connection, or 429"
