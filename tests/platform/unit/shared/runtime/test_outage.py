"""After an outage of the API server, everything is observed within seconds, and healthy resources cost no request.

Time is simulated. The resources are polled, as those of etcd and Redis are, so that their reconciles fail meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import pytest

from shared.cli.options import parse_options
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, Key, Kind, Obj
from shared.kubernetes.reachability import INTERVAL_SECONDS, READY, Reachability, Reported
from shared.kubernetes.transport import Transports
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.pacing import Pace
from shared.runtime.plan import Plan
from shared.runtime.process import Lane, Process, RunningController
from shared.runtime.reflector import Loss
from shared.runtime.shards import Shard
from shared.runtime.supervisor import Supervisor
from shared.runtime.watch import Watch, Watched
from shared.status.events import Recorder
from shared.status.verdict import Verdict
from simulator.api_server.streams import WatchServer
from tests.harness import ApiServer
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
RESOURCES = 1000
OUTAGE_SECONDS, MAX_OBSERVED_SECONDS = 60.0, 5.0
POLL_SECONDS = 20.0
BOXES = 200
FLAGS = [
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
    "--leader-elect",
    "--leader-elect-namespace=default",
]
RENEWAL = Request("PATCH", "/apis/coordination.k8s.io/v1/namespaces/platform/leases/box-operator")
FREE = {RENEWAL.path, READY.path}
"""Paths of requests whose number does not depend on that of the resources."""


class Wire:
    """The connection to an API server, which an outage interrupts.

    Attributes:
        requests: requests since they were last cleared.
        hangs: whether requests of the outage have no answer at all, until the client waits no longer.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._streams = WatchServer(server)
        self.is_down = False
        self.hangs = False
        self.requests: list[Request] = []

    @property
    def reads_of_secrets(self) -> list[str]:
        """Paths of the Secrets that were read by name."""
        return [request.path for request in self.requests if "/secrets/" in request.path]

    def fail(self) -> None:
        self.is_down = True
        if not self.hangs:
            self._streams.cut()

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        await self._pass()
        if request in (READY, RENEWAL):
            return Response(200, {})
        return await self._server.request(request)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._pass()
        async with self._streams.stream(request, accept=accept) as lines:
            yield lines

    async def _pass(self) -> None:
        await asyncio.sleep(0.01)
        if self.is_down:
            await asyncio.sleep(30 if self.hangs else 0)
            raise Unavailable("no answer from the API server")


class World:
    """An operator of boxes.

    Attributes:
        reconciled: boxes that were observed since they were last cleared.
    """

    def __init__(self) -> None:
        self.server = ApiServer([BOX])
        self.wire = Wire(self.server)
        self.reconciled: set[str] = set()
        self.reachability = Reachability(self.wire, self._return)
        self._reported = Reported(self.wire, self.reachability.suspect)
        kube = Kube(self._reported, manager="box-operator")
        self.recorder = Recorder(kube, component="box-operator")
        controller: Controller[Obj, None] = Controller(
            "box-operator", BOX, (CONFIG_MAP,), dict, self._observe, self._plan
        )

        def lane(running: RunningController, shard: Shard) -> Lane:
            return Lane(running, shard, kube, self.recorder, self._loss, Pace(), 256, Supervisor())

        running = RunningController(controller, [Shard()], lane)
        self.lane = running.lanes[0]
        self.watch = Watch(
            [Watched(controller, running.cache, running.dependencies)],
            kube=kube,
            streams=self.wire,
            namespaces=(),
            supervisor=Supervisor(),
            suspect=self.reachability.suspect,
        )

    async def renew(self) -> None:
        """Renew a Lease, as the leader does: its requests notice an outage without broken connections."""
        while True:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(5):
                    await self._reported.request(RENEWAL)
            await asyncio.sleep(2.5)

    def _loss(self, controller: Controller[Obj, None], namespace: str) -> Loss | None:
        loss = self.watch.loss(controller, namespace)
        return replace(loss, seconds=0.0) if loss and self.reachability.is_down else loss

    async def _return(self) -> None:
        await self.watch.restart()
        self.lane.queue.retry_now()

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> None:
        self.reconciled.add(resource["metadata"]["name"])

    def _plan(self, _: Obj, __: None, ___: datetime) -> Plan:
        return Plan((), Verdict(message="All is well."), {}, poll=POLL_SECONDS)


@pytest.mark.parametrize("hangs", [False, True], ids=["refused", "no answer"])
@in_virtual_time
async def test_everything_is_observed_soon_after_an_outage_at_no_cost(hangs: bool) -> None:
    world = World()
    user = world.server.actor("user")
    for number in range(RESOURCES):
        metadata = {"name": f"box-{number}", "namespace": f"shop-{number % 10}"}
        user.create(BOX, {"apiVersion": BOX.api_version, "kind": BOX.name, "metadata": metadata, "spec": {}})
    world.watch.start()
    background = (world.reachability.run(), world.recorder.run(), world.renew())
    tasks = [asyncio.create_task(each) for each in background]
    await world.watch.synced.wait()
    tasks += await world.lane.open()
    await asyncio.sleep(40)
    assert len(world.reconciled) == RESOURCES
    version = world.server.version
    world.wire.requests.clear()
    await asyncio.sleep(100)
    assert {request.path for request in world.wire.requests} == {RENEWAL.path}, "nothing else is sent"
    world.wire.hangs = hangs
    world.wire.fail()
    await asyncio.sleep(OUTAGE_SECONDS)
    assert world.reachability.is_down
    world.wire.is_down = False
    world.wire.requests.clear()
    world.reconciled.clear()
    clock = asyncio.get_running_loop().time
    began = clock()
    while world.watch.losses or len(world.reconciled) < RESOURCES:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert clock() - began <= MAX_OBSERVED_SECONDS
    await asyncio.sleep(100)
    lists = [request.path for request in world.wire.requests if request.path not in FREE]
    assert set(lists) == {BOX.path(), CONFIG_MAP.path()}
    assert len(lists) <= 10
    assert world.server.version == version, "no status and no event is written"
    assert not any(world.lane.queue.failures(Key(f"shop-{n % 10}", f"box-{n}")) for n in range(RESOURCES))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await world.watch.stop()
    world.lane.queue.close()


class Owners:
    """Processes of an operator of boxes, which elect a leader. Each box has a Secret.

    Args:
        may_watch_secrets: whether the API server admits watches of Secrets.
        makes_secrets: whether the operator made the Secrets; otherwise users did, and it polls those it may not watch.

    Attributes:
        observed: boxes that were observed since they were last cleared.
    """

    def __init__(self, *, may_watch_secrets: bool, makes_secrets: bool = True) -> None:
        self._makes_secrets = makes_secrets
        self.server = ApiServer([BOX])
        self.user = self.server.actor("user")
        self.observed: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        if not may_watch_secrets:
            self.server.faults.answer(403, when=lambda _, path: path.endswith("/secrets"), times=None)
        for number in range(BOXES):
            metadata = {"name": f"box-{number}", "namespace": f"shop-{number % 10}"}
            self.user.create(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}})
            box = {"apiVersion": BOX.api_version, "kind": BOX.name, "metadata": metadata, "spec": {}}
            self.user.create(BOX, box)

    def start(self) -> Wire:
        """Start a process; return its connection to the API server."""
        controller: Controller[Obj, None] = Controller(
            "box-operator", BOX, (CONFIG_MAP,), dict, self._observe, self._plan
        )
        served = ServedKind(resource=None, controller=lambda _: controller)  # type: ignore[arg-type]
        operator = Operator(name="box", kinds=(served,), image_repository="box")
        wire = Wire(self.server)
        transports = Transports(wire, wire, wire, wire)
        options = parse_options("box-operator", "box", FLAGS, {})
        process = Process(operator, options, transports, Configuration(host="http://api"))
        self._tasks.append(asyncio.create_task(process.run()))
        return wire

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def change(self, name: str) -> None:
        """Change a box as a client that the outage does not concern."""
        self.user.merge(BOX, "shop-1", name, {"spec": {"size": 2}})

    async def until_observed(self, count: int) -> None:
        while len(self.observed) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _observe(self, resource: Obj, _: Cache, kube: Kube) -> None:
        name = (SECRET, resource["metadata"]["namespace"], resource["metadata"]["name"])
        await (kube.find_own(*name, is_new=False) if self._makes_secrets else kube.get(*name))
        self.observed.add(resource["metadata"]["name"])

    def _plan(self, _: Obj, __: None, ___: datetime) -> Plan:
        return Plan((), Verdict(message="All is well."), {})


@pytest.mark.parametrize("may_watch_secrets", [False, True], ids=["polls Secrets", "watches Secrets"])
@in_virtual_time
async def test_leader_that_leads_again_after_an_outage_reads_no_secret_again(may_watch_secrets: bool) -> None:
    world = Owners(may_watch_secrets=may_watch_secrets)
    wire = world.start()
    await world.until_observed(BOXES)
    await asyncio.sleep(60)
    world.observed.clear()
    wire.fail()
    await asyncio.sleep(30)
    world.change("box-1")
    await asyncio.sleep(30)
    assert not world.observed, "nothing is decided without the Lease"
    wire.is_down = False
    wire.requests.clear()
    began = asyncio.get_running_loop().time()
    await world.until_observed(1)
    assert asyncio.get_running_loop().time() - began <= MAX_OBSERVED_SECONDS
    await asyncio.sleep(100)
    assert world.observed == {"box-1"}
    assert len(wire.reads_of_secrets) <= 2, "the Secret of the box that was changed meanwhile"
    await world.end()


@pytest.mark.parametrize("makes_secrets", [True, False], ids=["own Secrets", "Secrets of users"])
@in_virtual_time
async def test_leader_observes_everything_if_another_one_led_meanwhile(makes_secrets: bool) -> None:
    world = Owners(may_watch_secrets=False, makes_secrets=makes_secrets)
    first = world.start()
    await world.until_observed(BOXES)
    second = world.start()
    await asyncio.sleep(60)
    for former in (first, second):
        world.observed.clear()
        former.fail()
        await world.until_observed(BOXES)
        former.is_down = False
        await asyncio.sleep(30)
        former.requests.clear()
        await asyncio.sleep(100)
        assert not former.reads_of_secrets, "the former leader polls nothing"
    await world.end()


class Flaky:
    """An API server that is not ready for some requests."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def request(self, _: Request) -> Response:
        self.asked += 1
        status = self._answers.pop(0)
        if not status:
            raise Unavailable("no answer")
        return Response(status, None)


@pytest.mark.parametrize(
    ("answers", "returns"),
    [((200,), 0), ((403,), 0), ((0, 200), 0), ((0, 0, 403), 0), ((0, 500, 503, 200), 1), ((0, 0, 0, 403), 1)],
)
@in_virtual_time
async def test_return_is_reported_only_after_the_server_was_down(answers: tuple[int, ...], returns: int) -> None:
    server, returned = Flaky(*answers), 0

    async def note() -> None:
        nonlocal returned
        returned += 1

    reachability = Reachability(server, note)
    task = asyncio.create_task(reachability.run())
    await asyncio.sleep(10)
    assert server.asked == 0
    for _ in range(5):
        reachability.suspect()
    await asyncio.sleep(len(answers) * INTERVAL_SECONDS + 1)
    assert (server.asked, returned, reachability.is_down) == (len(answers), returns, False)
    task.cancel()
    await asyncio.wait({task})
