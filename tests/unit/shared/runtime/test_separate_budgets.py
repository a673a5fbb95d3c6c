"""Requests to /metrics do not take the connections of the Lease: leadership outlasts a flood of them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from e2e.cluster.machine.network import free_ports
from shared.kubernetes.access_review import REVIEW_TIMEOUT_SECONDS, Guard
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.kinds import LEASE
from shared.kubernetes.transport import MAX_REVIEW_CONNECTIONS, Transports
from shared.observability import endpoints, http_server
from shared.observability.http_server import Limits
from shared.runtime.leader_election import Leadership, Times
from shared.status.events import Recorder

TIMES = Times(lease_duration=2, renew_deadline=1.0, retry_period=0.1)

CLIENTS = tuple(f"127.0.0.{number}" for number in range(2, 42))
"""Addresses of the loopback interface, each of which sends ten requests."""


class ApiServer:
    """An API server that grants the Lease, and never answers a review.

    Attributes:
        reviews: number of reviews in progress.
    """

    def __init__(self) -> None:
        self.reviews = 0

    async def handle(self, request: web.Request) -> web.Response:
        if "reviews" in request.path:
            self.reviews += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.reviews -= 1
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
        connector = aiohttp.TCPConnector(local_addr=(client, 0))
        headers = {"Authorization": f"Bearer forged-{client}-{number}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            try:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    answers[answer.status] += 1
            except aiohttp.ClientError:
                answers[0] += 1

    async with AsyncExitStack() as stack:
        guard = Guard(Kube(transports.reviews, manager="operator"))
        routes = [web.get("/metrics", guard.protect(endpoints.scrape))]
        await http_server.serve(stack, f"127.0.0.1:{port}", routes)
        lost = await stack.enter_async_context(leadership.term())
        flood = [asyncio.create_task(scrape(client, number)) for client in CLIENTS for number in range(10)]
        await asyncio.sleep(2 * TIMES.renew_deadline)
        assert not lost.done(), "the Lease is renewed"
        assert 0 < api_server.reviews <= MAX_REVIEW_CONNECTIONS
        await asyncio.sleep(REVIEW_TIMEOUT_SECONDS - 2 * TIMES.renew_deadline + 1)
        assert all(task.done() for task in flood)
        assert not lost.done()
    assert answers.total() == 400
    assert answers[503] >= Limits().requests, "reviews without an answer end, and further requests are refused"
    assert set(answers) <= {0, 429, 503}, "the rest gets no connection, or 429"
