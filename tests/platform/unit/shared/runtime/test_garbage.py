"""Answers that no API server sends end neither the process nor one of its loops, nor a request of a client.

The process has everything that reads an answer: watches, polling, Lease, events, relists, the search for an API server
that is down, its webhooks' certificate with the trust in it, and reviews of scrapes. The test finds the requests and
the loop that makes each by running it, and requires that every loop of the supervisor makes one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from shared.cli.options import parse_options
from shared.kubernetes import accessors
from shared.kubernetes.access_review import ACCESS_REVIEW, TOKEN_REVIEW
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.kinds import CONFIG_MAP, EVENT, LEASE, SECRET, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.reachability import READY
from shared.kubernetes.transport import Transports
from shared.observability import http_messages, http_server, metrics
from shared.observability.http_server import Route
from shared.pki.trust_bundle import MUTATING, VALIDATING
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.plan import Apply, Plan
from shared.runtime.process import Process
from shared.runtime.supervisor import Supervisor
from shared.status.verdict import Verdict
from simulator.api_server.field_sets import Schema
from simulator.api_server.kinds import NAMESPACE
from simulator.api_server.streams import WatchServer
from simulator.faults import GARBAGE, Faults, strike
from tests.harness import ApiServer, Served
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
NAME = "box-operator"
FLAGS = [
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
    "--leader-elect",
    "--leader-elect-namespace=default",
]

EVERYTHING = (
    "--metrics-bind-address=127.0.0.1:1",
    "--webhook-bind-address=127.0.0.1:2",
    "--certificates=self:system/ours",
    "--webhook-configurations=ours",
    "--workers=1",
    "--resync=120",
)
"""Flags with which a process does all that it can; its ports are not opened (`World.serve`)."""

LOOP: ContextVar[str] = ContextVar("LOOP", default="the start")
"""The loop that makes a request: a task of the supervisor, or what the process does before it starts them."""

WITHOUT_ANSWERS = {"kopf"}
"""Loops that read no answer of the API server: kopf never gets credentials."""


class Site(NamedTuple):
    """A request of the process.

    Attributes:
        loop: the loop that makes it.
        is_watch: whether it is a watch.
    """

    loop: str
    method: str
    path: str
    is_watch: bool


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


class Rest:
    """Answers requests that are not about stored objects: every token is valid, and every user may do everything.

    Args:
        server: API server, which answers the other requests, and whose faults strike these as well.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def request(self, request: Request) -> Response:
        if request.path not in (READY.path, TOKEN_REVIEW.path(), ACCESS_REVIEW.path()):
            return await self._server.request(request)
        await asyncio.sleep(0)
        if (fault := self._server.faults.next(request)) is not None:
            return strike(fault, request)
        if request == READY:
            return Response(200, {"message": "ok"})
        return Response(201, {**request.body, "status": {"authenticated": True, "user": {}, "allowed": True}})


_WEBHOOKS = Schema(keys={"webhooks": ("name",)}, sets=frozenset(), atomic=frozenset(), defaults={})


class World:
    """The whole process of an operator, on an in-memory API server and a simulated clock.

    It may not watch Secrets, so that it polls the Secret that its box names.

    Attributes:
        routes: handlers of the process, by path.
        is_down: whether the API server answers 503 to everything.
    """

    def __init__(self) -> None:
        trust = [Served(kind, built_in=True, schema=_WEBHOOKS, status=False) for kind in (MUTATING, VALIDATING)]
        self.server = ApiServer([BOX, *trust])
        self.routes: dict[str, http_server.Handler] = {}
        self.is_down = False
        self.user = self.server.actor("kubectl")
        self.user.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}})
        for kind in (MUTATING, VALIDATING):
            self.apply_webhooks(kind)
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

    def apply_webhooks(self, kind: Kind) -> None:
        """Create a WebhookConfiguration as the chart does, without a caBundle."""
        webhook = {"name": f"a.{kind.plural}.example.com", "clientConfig": {"url": "https://ours"}}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "ours"}, "webhooks": [webhook]}
        self.user.apply(kind, body, force=True)

    def is_trusted(self) -> bool:
        """Return whether the configurations of the webhooks have a caBundle."""
        found = [configuration for kind in (MUTATING, VALIDATING) for _, configuration in self.server.objects(kind)]
        return len(found) == 2 and all(each["webhooks"][0]["clientConfig"].get("caBundle") for each in found)

    async def serve(self, *args: Any, **_: Any) -> int:
        """Keep routes instead of serving them: in simulated time, no client would be in time."""
        routes: tuple[Route, ...] = args[2]
        self.routes |= {route.path: route.handler for route in routes}
        return 1

    async def scrape(self, token: str) -> int:
        """Return the status of a scrape."""
        LOOP.set("scrape")
        headers = {"authorization": f"Bearer {token}"}
        return (await self.routes["/metrics"](http_messages.Request("GET", "/metrics", headers=headers))).status

    def process(
        self, connect: Callable[[Transports], Transports] = lambda transports: transports, *flags: str
    ) -> Process:
        """Return a process of the operator.

        Args:
            connect: replaces its connections.
            flags: flags in addition to `FLAGS`, which they override.
        """
        controller: Controller[Obj, str] = Controller(
            NAME, BOX, (CONFIG_MAP,), lambda obj: obj, _observe, _plan, reads=(SECRET,)
        )
        served = ServedKind(resource=None, controller=lambda _: controller)  # type: ignore[arg-type]
        operator = Operator(name="box", kinds=(served,), image_repository="box")
        options = parse_options(NAME, "box", [*FLAGS, *flags], {})
        rest = Rest(self.server)
        transports = Transports(self.server, rest, rest, self.streams)
        return Process(operator, options, connect(transports), Configuration(host="http://api"))

    def reported(self) -> tuple[str, str, str]:
        """Return password and size as reported, and whether the box is ready."""
        box = self.user.get(BOX, "default", "a")
        status = accessors.status_of(box)
        is_ready = accessors.condition(box, "Ready").get("status", "")
        return status.get("password", ""), status.get("size", ""), is_ready

    async def until(self, what: str, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not (found if isinstance(found := holds(), bool) else await found):
            assert asyncio.get_running_loop().time() < deadline, f"{what}: {self.reported()}"
            await asyncio.sleep(0.5)

    def lease(self) -> str:
        """Return the version of the Lease; empty if there is none."""
        return "".join(lease["metadata"]["resourceVersion"] for _, lease in self.server.objects(LEASE))

    def forbid_watching_secrets(self) -> None:
        self.server.faults.answer(403, when=lambda _, path: path == SECRET.path(), times=None)


async def live(site: Site | None, faults: Faults) -> list[Site]:
    """Run the process with faults of one kind of request, and require that afterwards each of its loops works.

    Returns:
        The requests of the process, each once.
    """
    world, made = World(), dict[Site, None]()
    world.forbid_watching_secrets()
    world.server.faults.answer(503, when=lambda *_: world.is_down, times=None)
    others = world.server.faults.next

    def choose(request: Request) -> Any:
        made.setdefault(site_of(request))
        return (faults.next(request) if site_of(request) == site else None) or others(request)

    async def is_scraped() -> bool:
        return await asyncio.create_task(world.scrape("a")) == 200

    world.server.faults.next = choose  # type: ignore[method-assign]
    with serving(world):
        task = asyncio.create_task(world.process(lambda transports: transports, *EVERYTHING).run())
        try:
            await world.until("the first reconcile", lambda: world.reported() == ("one", "1", "True"))
            world.set_password("two")
            await world.until("polling of Secrets", lambda: world.reported() == ("two", "1", "True"))
            world.set_size(2)
            await world.until("watch", lambda: world.reported() == ("two", "2", "True"))
            renewed = world.lease()
            await world.until("renewal of the Lease", lambda: world.lease() != renewed)
            world.user.delete(CONFIG_MAP, "default", "a")
            await world.until(
                "events", lambda: "Restored" in {event["reason"] for _, event in world.server.objects(EVENT)}
            )
            await world.until("scrape", is_scraped)
            await world.until("trust", world.is_trusted)
            for kind in (MUTATING, VALIDATING):
                world.user.delete(kind, None, "ours")
                world.apply_webhooks(kind)
            await world.until("trust again", world.is_trusted)
            await world.until("relist", lambda: any(each.loop == "resync" for each in made))
            world.is_down = True
            await asyncio.sleep(5)
            world.is_down = False
            world.set_size(3)
            await world.until("the end of an outage", lambda: world.reported() == ("two", "3", "True"))
            assert not task.done()
            assert faults.pending == 0, "the fault did not strike"
        finally:
            ended = task.done()
            task.cancel()
            await asyncio.wait({task})
    assert not ended
    assert task.cancelled(), task.exception()
    return list(made)


@contextlib.contextmanager
def serving(world: World) -> Iterator[None]:
    """Let processes serve in a world, and each loop of the supervisor know its name."""
    start = Supervisor.start

    def named(self: Supervisor, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def run_named() -> None:
            LOOP.set(name)
            await run()

        LOOPS.add(name)
        return start(self, name, run_named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Supervisor, "start", named)
        patch.setattr(http_server, "serve", world.serve)
        yield


LOOPS: set[str] = set()
"""Loops that the supervisors have started."""


def site_of(request: Request) -> Site:
    """Return what a request is for, without versions and names of events."""
    is_event = request.path.endswith("/events") or "/events/" in request.path
    return Site(LOOP.get(), request.method, "/events" if is_event else request.path, "watch" in request.query)


def failures() -> float:
    """Return the number of bugs that were reported: ends of tasks, and failed reconciles."""
    families = (*metrics.TASK_RESTARTS.collect(), *metrics.PANICS.collect())
    return sum(sample.value for family in families for sample in family.samples if sample.name.endswith("_total"))


def lived(site: Site | None, faults: Faults) -> list[Site]:
    """Run `live` in an event loop of its own: kopf kills the process 600 s after a run has ended."""
    return in_virtual_time(live)(site, faults)


ERRORS: Mapping[str, Response] = {
    "an error with details as text": Response(502, {"message": ["bad gateway"], "details": "upstream"}),
    "an error with causes as texts": Response(429, {"reason": {}, "details": {"causes": ["a"]}}),
}
"""Unsuccessful responses of proxies in front of an API server."""

ANSWERS = {**{name: Response(200, body) for name, body in GARBAGE.items()}, **ERRORS}
FIRST = {"HTML", "another kind", "metadata as text", "an error with details as text"}
"""For each commit; the others each night."""


@pytest.mark.parametrize(
    "garbage", [pytest.param(each, marks=[] if each in FIRST else pytest.mark.nightly) for each in ANSWERS]
)
def test_garbage_instead_of_any_answer_ends_no_loop(garbage: str) -> None:
    LOOPS.clear()
    sites = lived(None, Faults())
    assert LOOPS - {site.loop for site in sites} == WITHOUT_ANSWERS
    for site in sites:
        for landed in (False, True) if site.method != "GET" else (False,):
            faults, before = Faults(), failures()
            status, body, *_ = ANSWERS[garbage]
            faults.garble(body, status=status, when=lambda *_: True, landed=landed)
            try:
                lived(site, faults)
            except AssertionError as error:
                raise AssertionError(f"{garbage} instead of the answer to {site}: {error}") from error
            assert failures() == before, f"{garbage} instead of the answer to {site} was reported as a bug"
