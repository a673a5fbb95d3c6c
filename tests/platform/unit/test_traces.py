"""Spans for the requests of a reconcile to a database, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from operators.etcd.client import errors
from operators.etcd.client import server as etcd
from operators.memcached.client import server as memcached
from operators.redis.client import connection
from operators.redis.client import server as redis
from shared.kubernetes.kinds import Kind, Obj
from shared.observability import tracing
from shared.runtime.controller import Controller
from shared.runtime.plan import Call, Plan, Record
from shared.status.verdict import Verdict
from simulator.harness import Harness
from tests.etcd.unit.client.gateway_stub import STATUS, refusing
from tests.etcd.unit.client.gateway_stub import fake as etcd_server
from tests.memcached.unit.client.fake import fake as memcached_server
from tests.support.otlp import Collector, Span, collecting

THING = Kind("test.example.com", "v1", "Traced", "traceds")


@dataclass(frozen=True)
class Change(Call):
    """A step that changes a database."""

    def __str__(self) -> str:
        return "change something"


async def traced(query: Callable[[], Awaitable[Any]], change: Callable[[], Awaitable[Any]]) -> list[Span]:
    """Return the spans of one reconcile that queries a database, changes it, and queries it again."""
    changed = False

    async def observe(*_: Any) -> None:
        await query()

    async def call(_: Call, __: Record) -> None:
        nonlocal changed
        changed = True
        await change()

    controller: Controller[Obj, None] = Controller(
        operator="traced-operator",
        kind=THING,
        owns=(),
        parse=lambda obj: obj,
        observe=observe,
        plan=lambda *_: Plan(() if changed else ((Change(),),), Verdict(), {}),
        call=call,
    )
    with collecting() as collector:
        async with tracing.exported(collector.url, "traced-operator"):
            harness = Harness(controller)
            harness.apply("a")
            worker = asyncio.create_task(harness.reconciler.work())
            await asyncio.sleep(0)
            harness.queue.close()
            await harness.queue.rest()
            worker.cancel()
        return ordered(collector)


def ordered(collector: Collector) -> list[Span]:
    """Return all spans of the trace, parents before children."""
    [root] = [span for span in collector.spans if not span.parent]

    def tree(span: Span) -> list[Span]:
        return [span, *(found for part in collector.parts(span) for found in tree(part))]

    found = tree(root)
    assert len(found) == len(collector.spans), "all spans belong to one trace"
    return found


def expected(*, queries: list[str], changes: list[str]) -> list[str]:
    """Return the span names of a reconcile; it reads the resource again before an irreversible step."""
    observation = ["observe", *queries, "plan"]
    return ["reconcile", *observation, "GET", "call", *changes, *observation, "PATCH"]


async def test_each_memcached_command_has_a_span() -> None:
    async with memcached_server({"refresh_certs": b"OK\r\n"}) as to:

        @asynccontextmanager
        async def connected() -> AsyncIterator[memcached.Server]:
            server = await memcached.connect("127.0.0.1", to.port)
            yield server
            await server.aclose()

        async def query() -> None:
            async with connected() as server:
                await server.version()

        async def change() -> None:
            async with connected() as server:
                await server.refresh_certs()

        spans = await traced(query, change)
    greeting = "version"
    queries = [greeting, "version"]
    assert [span.name for span in spans] == expected(queries=queries, changes=[greeting, "refresh_certs"])
    [refresh] = [span for span in spans if span.name == "refresh_certs"]
    assert refresh.is_client
    assert refresh.attributes == {
        "db.system.name": "memcached",
        "db.operation.name": "refresh_certs",
        "server.address": "127.0.0.1",
        "server.port": to.port,
    }
    [call] = [span for span in spans if span.name == "call"]
    assert call.attributes == {"step": "change something"}


async def test_each_etcd_request_has_a_span_with_its_error() -> None:
    async with etcd_server(maintenance_status=STATUS, maintenance_defragment=refusing("not now")) as to:

        async def query() -> None:
            async with to.connected(etcd.Access()) as server:
                await server.status()

        async def change() -> None:
            async with to.connected(etcd.Access()) as server:
                with suppress(errors.EtcdError):
                    await server.defragment()

        spans = await traced(query, change)
    queries, changes = ["maintenance/status"], ["maintenance/defragment"]
    assert [span.name for span in spans] == expected(queries=queries, changes=changes)
    by_name = {span.name: span for span in spans}
    status, defragment = by_name["maintenance/status"], by_name["maintenance/defragment"]
    assert (status.is_client, defragment.is_client, by_name["call"].is_client) == (True, True, False)
    assert status.attributes == {
        "db.system.name": "etcd",
        "db.operation.name": "maintenance/status",
        "server.address": "127.0.0.1",
        "server.port": to.port,
        "k8s.pod.name": "demo-0",
    }
    assert "not now" in defragment.error
    assert str(defragment.attributes["error.type"]) in defragment.error
    assert not by_name["call"].failed, "a suppressed error does not fail the step"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Port of a server that replies OK to every Redis command."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while line := await reader.readline():
                for _ in range(int(line[1:])):
                    size = int((await reader.readline())[1:])
                    await reader.readexactly(size + 2)
                writer.write(b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_each_redis_round_trip_has_a_span_without_secrets(port: int) -> None:
    async def exchange(*commands: redis.Command) -> None:
        endpoint = redis.Endpoint("demo-0", "127.0.0.1", "demo-0.test", port)
        line = connection.connect(endpoint, redis.Access(password="12345"))
        await line.pipe(commands)
        await line.aclose()

    spans = await traced(
        lambda: exchange(("CLUSTER", "NODES"), ("INFO", "all")),
        lambda: exchange(("ACL", "SETUSER", "default", ">hunter2"), ("CONFIG", "SET", "masterauth", "hunter2")),
    )
    assert [span.name for span in spans] == expected(queries=["CLUSTER NODES"], changes=["ACL SETUSER"])
    by_name = {span.name: span for span in spans}
    assert by_name["CLUSTER NODES"].is_client
    assert by_name["CLUSTER NODES"].attributes == {
        "db.system.name": "redis",
        "db.operation.name": "CLUSTER NODES",
        "db.operation.batch.size": 2,
        "server.address": "127.0.0.1",
        "server.port": port,
        "k8s.pod.name": "demo-0",
    }
    assert "hunter2" not in str(spans)
    assert "12345" not in str(spans)
