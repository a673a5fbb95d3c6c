"""Answers that no API server sends end neither the process nor one of its loops: polling, Lease, watches, events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from shared.cli.options import parse_options
from shared.kubernetes import accessors
from shared.kubernetes.client import Kube, Request
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.kinds import CONFIG_MAP, EVENT, LEASE, SECRET, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.transport import Transports
from shared.observability import metrics
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.plan import Apply, Plan
from shared.runtime.process import Process
from shared.status.verdict import Verdict
from shared.testing import ApiServer
from shared.testing.api_server.streams import WatchServer
from shared.testing.faults import GARBAGE, Faults
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
NAME = "box-operator"
FLAGS = [
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
    "--leader-elect",
    "--leader-elect-namespace=default",
]

Site = tuple[str, str, bool]
"""Method and path of a request, and whether it is a watch."""

PATIENCE_SECONDS = 150.0
"""Time allowed for each step: a reflector and a task back off up to a minute."""


async def _observe(resource: Obj, _: Cache, kube: Kube) -> str:
    secret = await kube.get(SECRET, resource["metadata"]["namespace"], "password")
    return str(secret["data"]["password"])


def _plan(resource: Obj, password: str, _: datetime) -> Plan:
    metadata = resource["metadata"]
    own = Owner(BOX, metadata["namespace"], metadata["name"], metadata["uid"], "box", NAME)
    content = {"password": password, "size": str(resource["spec"]["size"])}
    apply = Apply(CONFIG_MAP, own.object(CONFIG_MAP, metadata["name"], component="box", data=content))
    return Plan(((apply,),), Verdict(message=f"size {content['size']}"), content)


class World:
    """The whole process of an operator, on an in-memory API server and a simulated clock.

    It may not watch Secrets, so that it polls the Secret that its box names.
    """

    def __init__(self) -> None:
        self.server = ApiServer([BOX])
        self.user = self.server.actor("kubectl")
        self.streams = WatchServer(self.server)
        self.set_password("one")
        self.set_size(1)

    def set_password(self, password: str) -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": "default"}}
        self.user.apply(SECRET, {**body, "data": {"password": password}}, force=True)

    def set_size(self, size: int) -> None:
        metadata = {"name": "a", "namespace": "default"}
        body = {"apiVersion": BOX.api_version, "kind": BOX.name, "metadata": metadata, "spec": {"size": size}}
        self.user.apply(BOX, body, force=True)

    def process(self, connect: Callable[[Transports], Transports] = lambda transports: transports) -> Process:
        """Return a process of the operator.

        Args:
            connect: replaces its connections.
        """
        controller: Controller[Obj, str] = Controller(
            NAME, BOX, (CONFIG_MAP,), lambda obj: obj, _observe, _plan, reads=(SECRET,)
        )
        served = ServedKind(resource=None, controller=lambda _: controller)  # type: ignore[arg-type]
        operator = Operator(name="box", kinds=(served,), image_repository="box")
        options = parse_options(NAME, "box", FLAGS, {})
        transports = Transports(self.server, self.server, self.server, self.streams)
        return Process(operator, options, connect(transports), Configuration(host="http://api"))

    def reported(self) -> tuple[str, str, str]:
        """Return password and size as reported, and whether the box is ready."""
        box = self.user.get(BOX, "default", "a")
        status = accessors.status_of(box)
        is_ready = accessors.condition(box, "Ready").get("status", "")
        return status.get("password", ""), status.get("size", ""), is_ready

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, f"{what}: {self.reported()}"
            await asyncio.sleep(0.5)

    def lease(self) -> str:
        """Return the version of the Lease; empty if there is none."""
        return "".join(lease["metadata"]["resourceVersion"] for _, lease in self.server.objects(LEASE))

    def forbid_watching_secrets(self) -> None:
        self.server.faults.answer(403, when=lambda _, path: path.endswith("/secrets"), times=None)


async def live(site: Site | None, faults: Faults) -> list[Site]:
    """Run the process with faults of one kind of request, and require that afterwards each of its loops works.

    Returns:
        The requests of the process, each once.
    """
    world, made = World(), dict[Site, None]()
    world.forbid_watching_secrets()
    others = world.server.faults.next

    def choose(request: Request) -> Any:
        made.setdefault(site_of(request))
        return (faults.next(request) if site_of(request) == site else None) or others(request)

    world.server.faults.next = choose  # type: ignore[method-assign]
    task = asyncio.create_task(world.process().run())
    try:
        await world.until("the first reconcile", lambda: world.reported() == ("one", "1", "True"))
        world.set_password("two")
        await world.until("polling of Secrets", lambda: world.reported() == ("two", "1", "True"))
        world.set_size(2)
        await world.until("watch", lambda: world.reported() == ("two", "2", "True"))
        renewed = world.lease()
        await world.until("renewal of the Lease", lambda: world.lease() != renewed)
        world.user.delete(CONFIG_MAP, "default", "a")
        await world.until("events", lambda: "Restored" in {event["reason"] for _, event in world.server.objects(EVENT)})
        assert not task.done()
        assert faults.pending == 0, "the fault did not strike"
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled(), task.exception()
    return list(made)


def site_of(request: Request) -> Site:
    """Return what a request is for, without versions and names of events."""
    is_event = request.path.endswith("/events") or "/events/" in request.path
    return request.method, "/events" if is_event else request.path, "watch" in request.query


def failures() -> float:
    """Return the number of bugs that were reported: ends of tasks, and failed reconciles."""
    families = (*metrics.TASK_RESTARTS.collect(), *metrics.PANICS.collect())
    return sum(sample.value for family in families for sample in family.samples if sample.name.endswith("_total"))


@pytest.mark.parametrize("garbage", GARBAGE)
@in_virtual_time
async def test_garbage_instead_of_any_answer_ends_no_loop(garbage: str) -> None:
    sites = await live(None, Faults())
    assert len(sites) >= 12
    for site in sites:
        for landed in (False, True) if site[0] != "GET" else (False,):
            faults, before = Faults(), failures()
            faults.garble(GARBAGE[garbage], when=lambda *_: True, landed=landed)
            try:
                await live(site, faults)
            except AssertionError as error:
                raise AssertionError(f"{garbage} instead of the answer to {site}: {error}") from error
            assert failures() == before, f"{garbage} instead of the answer to {site} was reported as a bug"
