"""The check of `helm test`: it passes if a Memcached works, names the cause if not, and deletes its resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from operators.memcached import check as checking
from operators.memcached.check import CHECK
from shared.cli.check import LABEL, Failed
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.kinds import Obj
from tests.harness import ApiServer
from tests.support.memcached.server import Forgetting, Unresponsive, serving

KIND = CHECK.kind
NAME = "check-platform-memcached-operator"
SUCCESS = "{0} of {0} servers stored and returned a value"


def status(generation: int, ready: str, message: str, servers: tuple[str, ...]) -> Obj:
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Tested",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": generation,
    }
    return {"observedGeneration": generation, "servers": list(servers), "conditions": [condition]}


@pytest.fixture
def server() -> ApiServer:
    return ApiServer([KIND])


@asynccontextmanager
async def operator(server: ApiServer, *servers: str, message: str = "") -> AsyncIterator[None]:
    """Write the status of each Memcached: ready with these servers, or not ready with the message."""
    actor = server.actor("operator")

    async def work() -> None:
        while True:
            for obj in actor.list(KIND, "default"):
                if "status" not in obj:
                    reported = status(obj["metadata"]["generation"], "False" if message else "True", message, servers)
                    actor.merge(KIND, "default", obj["metadata"]["name"], {"status": reported}, subresource="status")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(work())
    yield
    task.cancel()


def remaining(server: ApiServer) -> list[str]:
    return [obj["metadata"]["name"] for obj in server.actor("reader").list(KIND, "default")]


def memcached(**metadata: Any) -> Obj:
    metadata = {"name": NAME, "namespace": "default", **metadata}
    return {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": metadata, "spec": {"size": 1}}


async def run(transport: Any, *, within: float = 2.0) -> str:
    return await CHECK.run(Kube(transport, manager="check"), "default", NAME, within=within, pause=0.01)


async def test_every_server_is_checked_and_the_resource_is_deleted(server: ApiServer) -> None:
    with serving() as one, serving() as other:
        async with operator(server, one, other):
            assert await run(server) == SUCCESS.format(2)
    assert remaining(server) == []


async def test_server_that_loses_items_is_named(server: ApiServer) -> None:
    with serving() as good, serving(Forgetting) as bad:
        async with operator(server, good, bad):
            with pytest.raises(Failed, match=f"{bad} returned .*STORED.* instead of .*VALUE"):
                await run(server)
    assert remaining(server) == []


async def test_unresponsive_server_is_named(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "TIMEOUT_SECONDS", 0.05)

    with serving(Unresponsive) as address:
        async with operator(server, address):
            with pytest.raises(Failed, match=f"{address} does not respond: TimeoutError"):
                await run(server)
    async with operator(server, address):  # the server is stopped
        with pytest.raises(Failed, match=f"{address} does not respond"):
            await run(server)
    assert remaining(server) == []


async def test_resource_that_does_not_become_ready_is_reported_with_its_message(server: ApiServer) -> None:
    async with operator(server, message="No further pod can be created: quota"):
        with pytest.raises(Failed, match="is not Ready: No further pod can be created: quota"):
            await run(server, within=0.05)
    assert remaining(server) == []


async def test_cluster_without_an_operator_is_reported(server: ApiServer) -> None:
    with pytest.raises(Failed, match="No operator has reported a status"):
        await run(server, within=0.05)
    assert remaining(server) == []


async def test_resource_of_a_killed_check_is_replaced(server: ApiServer) -> None:
    server.actor("check").create(KIND, memcached(labels=LABEL))
    with serving() as address:
        async with operator(server, address):
            assert await run(server) == SUCCESS.format(1)
    assert remaining(server) == []


async def test_foreign_resource_of_the_same_name_is_not_changed(server: ApiServer) -> None:
    server.actor("person").create(KIND, memcached())
    with pytest.raises(Failed, match="exists but belongs to no check"):
        await run(server)
    assert remaining(server) == [NAME]


async def test_cancelled_check_deletes_its_resource(server: ApiServer) -> None:
    task = asyncio.create_task(run(server))
    await asyncio.sleep(0.1)
    assert remaining(server) == [NAME]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert remaining(server) == []


async def test_creation_is_retried_while_a_webhook_is_unavailable(server: ApiServer) -> None:
    class Starting:
        """Fails the first creation, like an API server whose webhook is unavailable."""

        refusals = 1

        async def request(self, request: Request) -> Response:
            if request.method == "POST" and self.refusals:
                self.refusals -= 1
                return Response(500, {"message": "failed calling webhook: connection refused"})
            return await server.request(request)

    with serving() as address:
        async with operator(server, address):
            assert await run(Starting()) == SUCCESS.format(1)
