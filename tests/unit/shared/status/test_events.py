"""Events are written in the background, and those of one object never delay those of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.kubernetes.client import Kube, Request, Response
from shared.status.events import Event, Recorder


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


def event(name: str, uid: str, reason: str) -> Event:
    metadata = {"name": name, "namespace": "default", "uid": uid}
    return Event.about({"apiVersion": "v1", "kind": "Thing", "metadata": metadata}, reason, f"{reason}.")


def of_another_writer(uid: str) -> str:
    """Return a UID whose events another writer handles (it depends on a hash that differs by process)."""
    return next(other for other in map(str, range(1000)) if hash(other) % 8 != hash(uid) % 8)


async def test_the_events_of_one_object_come_in_order_and_wait_for_each_other_alone(
    server: DelayedServer, recorder: Recorder
) -> None:
    for reason in ("First", "Second", "Third"):
        recorder.record(event("slow", "1", reason))
    recorder.record(event("quick", of_another_writer("1"), "First"))
    await recorder.flush(0.05)
    assert server.written == ["quick First"]
    server.go.set()
    await recorder.flush(1)
    assert server.written == ["quick First", "slow First", "slow Second", "slow Third"]
