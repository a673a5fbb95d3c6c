"""An operator of two kinds, one process for both: nothing is watched twice, and nothing taken for the other's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from pydantic import Field

from e2e.cluster.controlplane import ControlPlane
from shared.api.crd import Resource
from shared.api.spec import CustomResource, SpecModel, Status, parse
from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import CRD, SERVICE, Key, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator as Parts
from shared.runtime.operator import ServedKind
from shared.runtime.plan import PASS, Apply, Plan, Step, follow
from shared.status import conditions
from tests.api.support.gate import Gate
from tests.api.support.running import Operator
from tests.api.support.world import World

NAME = "tale-operator"


class Text(SpecModel):
    """What is told."""

    copies: int = Field(0, description="How many copies are wanted.")


def kind(name: str) -> Resource:
    made = Kind("tales.example.com", "v1", name, f"{name.lower()}s")
    return Resource(made, Text, Status, description="One of two kinds.")


TALE, COPY = kind("Tale"), kind("Copy")


@dataclass(frozen=True)
class Rooms:
    """A Tale wants a Service, and Copies of its own name and further ones; a Copy wants a Service.

    Attributes:
        looks: how often which resource was looked at.
    """

    resource: Resource
    application: str
    looks: Counter[str]

    def controller(self) -> Controller[Any, Any]:
        owns = (SERVICE, COPY.kind) if self.resource is TALE else (SERVICE,)
        return Controller(
            NAME, self.resource.kind, owns, self._parse, self._observe, self._plan, application=self.application
        )

    def _parse(self, obj: Obj) -> CustomResource[Text]:
        return CustomResource(obj, parse(Text, obj["spec"], at="spec"))

    async def _observe(self, tale: CustomResource[Text], cache: Cache, _: Kube) -> list[str]:
        self.looks[f"{self.resource.kind} {tale.name}"] += 1
        return [obj["metadata"]["name"] for obj in cache.owned(SERVICE, Key(tale.namespace, tale.name))]

    def _plan(self, tale: CustomResource[Text], services: list[str], now: datetime) -> Plan:
        actions, verdict, requeue = follow((self._keep_service, self._keep_copies), tale, services, now)
        return Plan(actions, replace(verdict, message=", ".join(services)), {"phase": "Running"}, requeue)

    def _owner(self, tale: CustomResource[Text]) -> Owner:
        return Owner(self.resource.kind, tale.namespace, tale.name, tale.uid, self.application, NAME)

    def _keep_service(self, tale: CustomResource[Text], _: list[str], __: datetime) -> Step:
        spec = {"clusterIP": "None", "ports": [{"port": 1, "protocol": "TCP"}]}
        own = self._owner(tale)
        return Step.do(
            Apply(SERVICE, own.object(SERVICE, f"{tale.name}-{self.application}", component="it", spec=spec))
        )

    def _keep_copies(self, tale: CustomResource[Text], _: list[str], __: datetime) -> Step:
        if self.resource is COPY:
            return PASS
        names = [f"{tale.name}-{n}" for n in range(1, tale.spec.copies + 1)]
        own = self._owner(tale)
        return Step.do(*(Apply(COPY.kind, own.object(COPY.kind, name, component="copy", spec={})) for name in names))


@dataclass
class Both:
    """The operator, and what its controllers looked at."""

    running: Operator
    looks: Counter[str]


def parts(looks: Counter[str]) -> Parts:
    tale, copy = Rooms(TALE, "tale", looks), Rooms(COPY, "tale-copy", looks)
    served = (ServedKind(TALE, lambda _: tale.controller()), ServedKind(COPY, lambda _: copy.controller()))
    return Parts(name="tale", kinds=served, image_repository="tale")


@pytest.fixture(scope="module", autouse=True)
def installed(plane: ControlPlane) -> Iterator[None]:
    """What these tests install, others do not want."""
    yield
    world = World(plane)
    for of in (TALE, COPY):
        world.person.delete(CRD, None, f"{of.kind.plural}.{of.kind.group}")
    world.close()


@pytest.fixture
def both(plane: ControlPlane, world: World, gate: Gate) -> Iterator[Both]:
    looks = Counter[str]()
    running = Operator(
        plane.kubeconfig, world.namespace, host=gate.url, name=NAME, flags=["--install-crds"], of=parts(looks)
    )
    running.start()
    yield Both(running, looks)
    running.stop()


def apply(world: World, of: Resource, name: str, **spec: Any) -> None:
    body = {"apiVersion": of.kind.api_version, "kind": of.kind.name, "metadata": world.metadata(name), "spec": spec}
    world.person.apply(of.kind, body, force=True)


def ready(world: World, of: Resource, name: str) -> bool:
    return accessors.is_true(world.get(of.kind, name), conditions.READY)


def services(world: World, of: Resource, name: str) -> str:
    return str(accessors.condition(world.get(of.kind, name), conditions.READY).get("message"))


def test_resources_of_one_name_have_each_their_own(world: World, both: Both) -> None:
    apply(world, TALE, "a", copies=2)
    apply(world, COPY, "a")
    for of, name in ((TALE, "a"), (COPY, "a"), (COPY, "a-1"), (COPY, "a-2")):
        world.eventually(partial(ready, world, of, name))
    world.eventually(lambda: services(world, TALE, "a") == "a-tale")
    assert [services(world, COPY, name) for name in ("a", "a-1", "a-2")] == [
        "a-tale-copy",
        "a-1-tale-copy",
        "a-2-tale-copy",
    ]


def test_what_happens_to_the_objects_of_the_one_is_no_news_to_the_other(world: World, both: Both) -> None:
    for of in (TALE, COPY):
        apply(world, of, "a")
        world.eventually(partial(ready, world, of, "a"))
    time.sleep(0.5)
    both.looks.clear()
    world.person.delete(SERVICE, world.namespace, "a-tale-copy")
    world.eventually(lambda: any(obj["metadata"]["name"] == "a-tale-copy" for obj in world.listed(SERVICE)))
    time.sleep(0.5)
    assert set(both.looks) == {"Copy a"}


def test_a_copy_that_a_tale_made_is_news_to_both(world: World, both: Both) -> None:
    apply(world, TALE, "a", copies=1)
    world.eventually(lambda: any(obj["metadata"]["name"] == "a-1" for obj in world.listed(COPY.kind)))
    world.eventually(lambda: ready(world, COPY, "a-1"))
    time.sleep(0.5)
    both.looks.clear()
    world.person.delete(COPY.kind, world.namespace, "a-1")
    world.eventually(lambda: both.looks["Tale a"] > 0 and both.looks["Copy a-1"] > 0)


def test_each_kind_is_listed_and_watched_once(world: World, both: Both, gate: Gate) -> None:
    gate.wait_for_watches(3)
    collections = {SERVICE, TALE.kind, COPY.kind}
    passed = Counter((passed.path, passed.watch) for passed in gate.passed if passed.method == "GET")
    for of in collections:
        assert passed[of.path(world.namespace), True] == 1
    assert passed[SERVICE.path(world.namespace), False] == 1, "the others were asked for by the installation, too"


def test_without_one_of_the_crds_it_says_which(plane: ControlPlane, world: World) -> None:
    tale, sequel = (Rooms(of, of.kind.name.lower(), Counter()) for of in (TALE, kind("Sequel")))
    served = (ServedKind(TALE, lambda _: tale.controller()), ServedKind(TALE, lambda _: sequel.controller()))
    lacking = Parts(name="tale", kinds=served, image_repository="tale")
    running = Operator(plane.kubeconfig, world.namespace, name=NAME, flags=["--install-crds"], of=lacking)
    with pytest.raises(KubeError, match=r"serves no sequels\.tales\.example\.com"):
        running.start()
    with pytest.raises(KubeError):
        running.ended()
