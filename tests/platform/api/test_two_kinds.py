"""An operator of two kinds in one process: each kind is watched once, and resources of equal names do not mix."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from pydantic import Field

from shared.api.crd import Resource
from shared.api.spec import CustomResource, SpecModel, Status, parse
from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError, NotFound
from shared.kubernetes.kinds import CRD, SECRET, SERVICE, Key, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator as Parts
from shared.runtime.operator import ServedKind
from shared.runtime.plan import PASS, Apply, Plan, Step, follow
from shared.status import conditions
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import World
from tools.local.controlplane import ControlPlane

NAME = "parent-operator"


class ChildrenSpec(SpecModel):
    """The spec of both kinds."""

    children: int = Field(0, description="Number of children.")


def kind(name: str) -> Resource:
    kind_of_api = Kind("parents.example.com", "v1", name, f"{name.lower()}s")
    return Resource(kind_of_api, ChildrenSpec, Status, description="One of two kinds.")


PARENT, CHILD = kind("Parent"), kind("Child")


@dataclass(frozen=True)
class ServiceOwner:
    """A controller: a Parent owns a Service and Children, the first of its own name; a Child owns a Service.

    Attributes:
        reconciles: number of reconciles by resource.
    """

    resource: Resource
    application: str
    reconciles: Counter[str]

    def controller(self) -> Controller[Any, Any]:
        owns = (SERVICE, CHILD.kind) if self.resource is PARENT else (SERVICE,)
        return Controller(
            NAME, self.resource.kind, owns, self._parse, self._observe, self._plan, application=self.application
        )

    def _parse(self, obj: Obj) -> CustomResource[ChildrenSpec]:
        return CustomResource(obj, parse(ChildrenSpec, obj["spec"], at="spec"))

    async def _observe(self, parent: CustomResource[ChildrenSpec], cache: Cache, _: Kube) -> list[str]:
        self.reconciles[f"{self.resource.kind} {parent.name}"] += 1
        return [obj["metadata"]["name"] for obj in cache.owned(SERVICE, Key(parent.namespace, parent.name))]

    def _plan(self, parent: CustomResource[ChildrenSpec], services: list[str], _now: datetime) -> Plan:
        actions, verdict, requeue, _ = follow((self._keep_service, self._keep_children), parent)
        return Plan((actions,), replace(verdict, message=", ".join(services)), {"phase": "Running"}, requeue)

    def _owner(self, parent: CustomResource[ChildrenSpec]) -> Owner:
        return Owner(self.resource.kind, parent.namespace, parent.name, parent.uid, self.application, NAME)

    def _keep_service(self, parent: CustomResource[ChildrenSpec]) -> Step:
        spec = {"clusterIP": "None", "ports": [{"port": 1, "protocol": "TCP"}]}
        own = self._owner(parent)
        return Step.do(
            Apply(SERVICE, own.object(SERVICE, f"{parent.name}-{self.application}", component="it", spec=spec))
        )

    def _keep_children(self, parent: CustomResource[ChildrenSpec]) -> Step:
        if self.resource is CHILD:
            return PASS
        names = [f"{parent.name}-{n}" for n in range(1, parent.spec.children + 1)]
        own = self._owner(parent)
        return Step.do(*(Apply(CHILD.kind, own.object(CHILD.kind, name, component="child", spec={})) for name in names))


@dataclass
class Both:
    """The operator and the reconciles of its controllers."""

    running: Operator
    reconciles: Counter[str]


def parts(reconciles: Counter[str]) -> Parts:
    parent, child = ServiceOwner(PARENT, "parent", reconciles), ServiceOwner(CHILD, "child", reconciles)
    served = (ServedKind(PARENT, lambda _: parent.controller()), ServedKind(CHILD, lambda _: child.controller()))
    return Parts(name="parent", kinds=served, image_repository="parent")


@pytest.fixture(scope="module", autouse=True)
def installed(plane: ControlPlane) -> Iterator[None]:
    """Remove the CRDs of this module afterwards."""
    yield
    world = World(plane)
    for of in (PARENT, CHILD):
        with suppress(NotFound):  # no test of this worker installed it
            world.user_client.delete(CRD, None, f"{of.kind.plural}.{of.kind.group}")
    world.close()


@pytest.fixture
def both(plane: ControlPlane, world: World, gate: Gate) -> Iterator[Both]:
    reconciles = Counter[str]()
    running = Operator(
        plane.kubeconfig, world.namespace, host=gate.url, name=NAME, flags=["--install-crds"], of=parts(reconciles)
    )
    running.start()
    yield Both(running, reconciles)
    running.stop()


def apply(world: World, of: Resource, name: str, **spec: Any) -> None:
    body = {"apiVersion": of.kind.api_version, "kind": of.kind.name, "metadata": world.metadata(name), "spec": spec}
    world.user_client.apply(of.kind, body, force=True)


def ready(world: World, of: Resource, name: str) -> bool:
    return accessors.is_true(world.get(of.kind, name), conditions.READY)


def services(world: World, of: Resource, name: str) -> str:
    return str(accessors.condition(world.get(of.kind, name), conditions.READY).get("message"))


def test_resources_of_equal_names_own_separate_objects(world: World, both: Both) -> None:
    apply(world, PARENT, "a", children=2)
    apply(world, CHILD, "a")
    for of, name in ((PARENT, "a"), (CHILD, "a"), (CHILD, "a-1"), (CHILD, "a-2")):
        world.eventually(partial(ready, world, of, name))
    world.eventually(lambda: services(world, PARENT, "a") == "a-parent")
    assert [services(world, CHILD, name) for name in ("a", "a-1", "a-2")] == [
        "a-child",
        "a-1-child",
        "a-2-child",
    ]


def test_object_change_reconciles_only_its_owner(world: World, both: Both) -> None:
    for of in (PARENT, CHILD):
        apply(world, of, "a")
        world.eventually(partial(ready, world, of, "a"))
    time.sleep(0.5)
    both.reconciles.clear()
    world.user_client.delete(SERVICE, world.namespace, "a-child")
    world.eventually(lambda: any(obj["metadata"]["name"] == "a-child" for obj in world.listed(SERVICE)))
    time.sleep(0.5)
    assert set(both.reconciles) == {"Child a"}


def test_deleted_child_reconciles_both_kinds(world: World, both: Both) -> None:
    apply(world, PARENT, "a", children=1)
    world.eventually(lambda: any(obj["metadata"]["name"] == "a-1" for obj in world.listed(CHILD.kind)))
    world.eventually(lambda: ready(world, CHILD, "a-1"))
    time.sleep(0.5)
    both.reconciles.clear()
    world.user_client.delete(CHILD.kind, world.namespace, "a-1")
    world.eventually(lambda: both.reconciles["Parent a"] > 0 and both.reconciles["Child a-1"] > 0)


def test_each_kind_is_listed_and_watched_once(world: World, both: Both, gate: Gate) -> None:
    gate.wait_for_watches(4)
    collections = {SERVICE, SECRET, PARENT.kind, CHILD.kind}
    passed = Counter((passed.path, passed.watch) for passed in gate.passed if passed.method == "GET")
    for of in collections:
        assert passed[of.path(world.namespace), True] == 1
    assert passed[SECRET.path(world.namespace), False] == 0, "only the metadata of Secrets is watched"
    assert passed[SERVICE.path(world.namespace), False] == 1, "the installation lists the other kinds as well"


def test_error_names_the_missing_crd(plane: ControlPlane, world: World) -> None:
    parent, sequel = (ServiceOwner(of, of.kind.name.lower(), Counter()) for of in (PARENT, kind("Sequel")))
    served = (ServedKind(PARENT, lambda _: parent.controller()), ServedKind(PARENT, lambda _: sequel.controller()))
    incomplete = Parts(name="parent", kinds=served, image_repository="parent")
    running = Operator(plane.kubeconfig, world.namespace, name=NAME, flags=["--install-crds"], of=incomplete)
    with pytest.raises(KubeError, match=r"does not serve sequels\.parents\.example\.com"):
        running.start()
    with pytest.raises(KubeError):
        running.ended()
