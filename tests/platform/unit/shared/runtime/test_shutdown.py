"""The Lease is kept until the clean-up of cancelled reconciles has ended, and never released before."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from shared.cli.options import parse_options
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.kinds import CONFIG_MAP, LEASE, Kind, Obj
from shared.kubernetes.transport import Transports
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.leader_election import Times
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.plan import Plan
from shared.runtime.process import Process
from shared.runtime.supervisor import MustEnd
from shared.status.verdict import Verdict
from simulator.api_server.streams import WatchServer
from simulator.faults import requests
from tests.harness import ApiServer
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
NAME = "box-operator"
FLAGS = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address=0", "--leader-elect"]


class World:
    """A process whose reconciles never end by themselves, and clean up after a cancellation.

    Args:
        cleanup: seconds that the clean-up takes.

    Attributes:
        holders: holder of the Lease at each tenth of a second of the clean-up.
        renewals: versions of the Lease meanwhile.
    """

    def __init__(self, cleanup: float) -> None:
        self._cleanup = cleanup
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self.holders: list[str] = []
        self.renewals: set[str] = set()
        self.server = ApiServer([BOX])
        metadata = {"name": "a", "namespace": "default"}
        self.server.actor("kubectl").create(BOX, {"apiVersion": BOX.api_version, "kind": "Box", "metadata": metadata})
        controller: Controller[Obj, None] = Controller(NAME, BOX, (CONFIG_MAP,), dict, self._observe, self._plan)
        served = ServedKind(resource=None, controller=lambda _: controller)  # type: ignore[arg-type]
        operator = Operator(name="box", kinds=(served,), image_repository="box")
        options = parse_options(NAME, "box", [*FLAGS, "--leader-elect-namespace=default"], {})
        transports = Transports(self.server, self.server, self.server, WatchServer(self.server))
        process = Process(operator, options, transports, Configuration(host="http://api"))
        self.task = asyncio.create_task(process.run())

    @property
    def lease(self) -> Obj:
        ((_, lease),) = self.server.objects(LEASE)
        return lease

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity", ""))

    async def _observe(self, _: Obj, __: Cache, ___: Kube) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _number in range(round(10 * self._cleanup)):
                self.holders.append(self.holder)
                self.renewals.add(self.lease["metadata"]["resourceVersion"])
                await asyncio.sleep(0.1)
            self.ended.set()

    def _plan(self, _: Obj, __: None, ___: datetime) -> Plan:
        return Plan((), Verdict(), {})


@in_virtual_time
async def test_lease_is_renewed_until_the_cleanup_has_ended() -> None:
    """The clean-up of a Redis migration takes 10 s."""
    world = World(10.0)
    await world.began.wait()
    world.task.cancel()
    await asyncio.wait({world.task})
    assert world.ended.is_set()
    assert "" not in world.holders
    assert len(world.renewals) > 2
    assert world.holder == "", "released afterwards"


@in_virtual_time
async def test_lease_is_not_released_while_a_cleanup_continues() -> None:
    world = World(100.0)
    await world.began.wait()
    world.task.cancel()
    await asyncio.wait({world.task})
    assert not world.ended.is_set()
    assert world.holder


@in_virtual_time
async def test_process_ends_without_a_release_if_work_continues_after_the_lease_is_lost() -> None:
    world = World(100.0)
    await world.began.wait()
    world.server.faults.answer(503, when=requests("GET", "/leases"), times=None)
    world.server.faults.answer(503, when=requests("PATCH", "/leases"), times=None)
    await asyncio.sleep(Times().renew_deadline + 1)
    world.server.faults.clear()
    with pytest.raises(MustEnd, match="box-worker-0 could not be stopped"):
        await world.task
    assert world.holder
