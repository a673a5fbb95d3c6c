"""Authorization, cost and serving of scrapes and profiles."""

from __future__ import annotations

import asyncio
import cProfile
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from shared.kubernetes.access_review import MAX_VERDICTS, VERDICT_MAX_AGE_SECONDS, Guard
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import Obj
from shared.observability import endpoints, http_server, profiling
from shared.observability.http_server import Limits, Route
from tools.local.machine.network import free_ports

PATH = "/metrics"


class Reviewer:
    """An API server that knows two tokens and authorizes one of their users to GET /metrics."""

    def __init__(self) -> None:
        self.requested: Counter[str] = Counter()
        self.away = False
        self.refuses = False

    async def request(self, request: Request) -> Response:
        kind = request.body["kind"]
        self.requested[kind] += 1
        await asyncio.sleep(0.01)
        if self.away:
            raise Unavailable("no answer from the API server")
        if self.refuses:
            return Response(403, {"message": "cannot create resource tokenreviews"})
        return Response(201, request.body | {"status": self._tokens(request.body["spec"], kind)})

    def _tokens(self, spec: Obj, kind: str) -> Obj:
        if kind == "SubjectAccessReview":
            assert spec["nonResourceAttributes"] == {"path": PATH, "verb": "get"}
            assert spec["extra"] == {"pod": ["p"]}
            return {"allowed": spec["user"] == "prometheus" and spec["groups"] == ["monitoring"]}
        name = {"scraper": "prometheus", "other": "someone"}.get(spec["token"])
        if name is None:
            return {"error": "unknown token"}
        return {
            "authenticated": True,
            "user": {"username": name, "groups": ["monitoring"], "extra": {"pod": ["p"]}},
        }


class Scrape:
    """A server with a guard, and a client of it."""

    def __init__(self, base: str, session: aiohttp.ClientSession, reviewer: Reviewer) -> None:
        self.base = base
        self.reviewer = reviewer
        self.now = 0.0
        self._session = session

    async def __call__(self, token: str | None = None, scheme: str = "Bearer") -> tuple[int, str]:
        headers = {"Authorization": f"{scheme} {token}"} if token is not None else {}
        async with self._session.get(self.base + PATH, headers=headers) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def scrape() -> AsyncIterator[Scrape]:
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=Limits().requests // 2)  # more are refused
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        scrape = Scrape(f"http://127.0.0.1:{port}", session, Reviewer())
        guard = Guard(Kube(scrape.reviewer, manager="operator"), clock=lambda: scrape.now)
        await http_server.serve(stack, f"127.0.0.1:{port}", [Route("GET", PATH, guard.protect(endpoints.scrape))])
        yield scrape


async def test_request_without_token_is_not_reviewed(scrape: Scrape) -> None:
    for token, scheme in ((None, ""), ("scraper", "Basic"), ("", "Bearer")):
        status, text = await scrape(token, scheme)
        assert status == 401
        assert "Authorization: Bearer" in text
    assert not scrape.reviewer.requested


async def test_unknown_token_is_rejected(scrape: Scrape) -> None:
    status, text = await scrape("forged")
    assert (status, "rejects this token" in text) == (401, True)
    assert scrape.reviewer.requested == {"TokenReview": 1}


async def test_missing_permission_is_named_in_the_response(scrape: Scrape) -> None:
    status, text = await scrape("other")
    assert status == 403
    assert "someone may not GET /metrics: bind it to a ClusterRole with nonResourceURLs [/metrics]" in text


async def test_authorized_scrapes_cost_two_requests_in_ten_seconds(scrape: Scrape) -> None:
    for _ in range(3):
        status, text = await scrape("scraper")
        assert status == 200
        assert "python_info" in text
        scrape.now += VERDICT_MAX_AGE_SECONDS / 4
    assert scrape.reviewer.requested == {"TokenReview": 1, "SubjectAccessReview": 1}
    scrape.now = VERDICT_MAX_AGE_SECONDS
    assert (await scrape("scraper"))[0] == 200
    assert scrape.reviewer.requested == {"TokenReview": 2, "SubjectAccessReview": 2}


async def test_concurrent_scrapes_are_reviewed_once(scrape: Scrape) -> None:
    answers = await asyncio.gather(*(scrape("scraper") for _ in range(5)))
    assert {status for status, _ in answers} == {200}
    assert scrape.reviewer.requested == {"TokenReview": 1, "SubjectAccessReview": 1}


async def test_unavailable_api_server_gives_no_verdict_and_none_is_cached(scrape: Scrape) -> None:
    scrape.reviewer.away = True
    status, text = await scrape("scraper")
    assert (status, "no answer from the API server" in text) == (503, True)
    scrape.reviewer.away = False
    assert (await scrape("scraper"))[0] == 200


async def test_missing_permission_of_the_operator_is_reported(scrape: Scrape) -> None:
    scrape.reviewer.refuses = True
    status, text = await scrape("scraper")
    assert (status, "cannot create resource tokenreviews" in text) == (500, True)


async def test_number_of_cached_verdicts_is_limited(scrape: Scrape) -> None:
    assert (await scrape("scraper"))[0] == 200
    await asyncio.gather(*(scrape(f"forged-{number}") for number in range(MAX_VERDICTS)))
    scrape.reviewer.requested.clear()
    assert (await scrape(f"forged-{MAX_VERDICTS - 1}"))[0] == 401
    assert not scrape.reviewer.requested
    assert (await scrape("scraper"))[0] == 200
    assert scrape.reviewer.requested == {"TokenReview": 1, "SubjectAccessReview": 1}


# Probes.


async def test_failed_liveness_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The kubelet's event does not have the text of the response."""
    problem = [""]
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        routes = [Route("GET", "/healthz", endpoints.probe(lambda: problem[0] or None, is_liveness=True))]
        await http_server.serve(stack, f"127.0.0.1:{port}", routes)
        session = await stack.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{port}"))
        for text, status in (("", 200), ("stuck for 1 s", 500), ("stuck for 2 s", 500), ("", 200)):
            problem[0] = text
            async with session.get("/healthz") as answer:
                assert (answer.status, await answer.text()) == (status, text or "ok")
    expected = "the liveness probe fails, so that the kubelet restarts the operator: stuck for 1 s"
    assert caplog.messages == [expected]


# Profiles.


@pytest.fixture
async def debug() -> AsyncIterator[aiohttp.ClientSession]:
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        await http_server.serve(stack, f"127.0.0.1:{port}", profiling.Profiler().routes)
        yield await stack.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{port}"))


async def busy_work() -> None:
    while True:
        sum(range(1000))
        await asyncio.sleep(0)


async def test_profile_names_the_functions_that_used_the_time(debug: aiohttp.ClientSession) -> None:
    work = asyncio.create_task(busy_work())
    async with debug.get("/debug/profile?seconds=0.3") as answer:
        text = await answer.text()
    work.cancel()
    assert answer.status == 200
    assert "busy_work" in text
    with cProfile.Profile():  # the first profiler has stopped: a second one would fail
        pass


async def test_only_one_profile_runs_at_a_time(debug: aiohttp.ClientSession) -> None:
    async with asyncio.TaskGroup() as group:
        requested = [group.create_task(debug.get("/debug/profile?seconds=0.3")) for _ in range(2)]
    assert sorted(task.result().status for task in requested) == [200, 409]


@pytest.mark.parametrize("seconds", ["0", "-1", "ten", "301", "nan"])
async def test_profile_without_duration_is_rejected(debug: aiohttp.ClientSession, seconds: str) -> None:
    async with debug.get(f"/debug/profile?seconds={seconds}") as answer:
        assert (answer.status, f"seconds={seconds}: use a number" in await answer.text()) == (400, True)


async def test_memory_profile_requires_tracing(debug: aiohttp.ClientSession) -> None:
    async with debug.get("/debug/memory") as answer:
        assert (answer.status, "PYTHONTRACEMALLOC=1" in await answer.text()) == (409, True)
    tracemalloc.start()
    try:
        kept = [bytes(1000) for _ in range(1000)]
        async with debug.get("/debug/memory") as answer:
            text = await answer.text()
    finally:
        tracemalloc.stop()
    assert len(kept) == 1000
    assert "test_endpoints.py" in text
