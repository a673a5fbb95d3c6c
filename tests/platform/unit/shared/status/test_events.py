"""Events are written in the background, and those of one object never delay those of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.kubernetes.client import Kube, Request, Response
from shared.status.events import MAX_BACKLOG, Event, Recorder
from tests.support.virtual_time import in_virtual_time


class DelayedServer:
    """An API server that delays responses about one object until released."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.go = asyncio.Event()

    async def request(self, request: Request) -> Response:
        body = request.body
        about = f"{body['involvedObject']['name']} {body['reason']}"
        if about.startswith("slow"):
            await self.go.wait()
        self.written.append(about)
        return Response(201, body)


@pytest.fixture
def server() -> DelayedServer:
    return DelayedServer()


@pytest.fixture
async def recorder(server: DelayedServer) -> AsyncIterator[Recorder]:
    recorder = Recorder(Kube(server, manager="op"), component="op")
    running = asyncio.create_task(recorder.run())
    yield recorder
    running.cancel()


def event(name: str, uid: str, reason: str, namespace: str = "default") -> Event:
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    return Event.about({"apiVersion": "v1", "kind": "Thing", "metadata": metadata}, reason, f"{reason}.")


async def test_the_events_of_one_object_come_in_order_and_wait_for_each_other_alone(
    server: DelayedServer, recorder: Recorder
) -> None:
    for reason in ("First", "Second", "Third"):
        recorder.record(event("slow", "1", reason))
    recorder.record(event("quick", "2", "First"))
    await recorder.flush(0.05)
    assert server.written == ["quick First"]
    server.go.set()
    await recorder.flush(1)
    assert server.written == ["quick First", "slow First", "slow Second", "slow Third"]


@in_virtual_time
async def test_events_of_a_namespace_with_a_slow_webhook_delay_no_others() -> None:
    server = DelayedServer()
    recorder = Recorder(Kube(server, manager="op"), component="op")
    running = asyncio.create_task(recorder.run())
    for number in range(1000):
        recorder.record(event("slow", f"slow-{number}", "First", "neighbour"))
    recorder.record(event("quick", "quick", "First"))
    await asyncio.sleep(1)
    assert server.written == ["quick First"]
    for number in range(2 * MAX_BACKLOG):
        recorder.record(event("slow", f"slow-{number}", "Second", "neighbour"))
    for number in range(1001):
        recorder.record(event("quick", "quick", f"Later {number}"))
    await asyncio.sleep(1)
    assert "quick Later 1000" in server.written, "a full backlog of the other namespace drops none"
    server.go.set()
    await recorder.flush(10)
    running.cancel()
    await asyncio.wait({running})
