"""The executor applies a plan to exactly the objects that were observed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pytest

from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Conflict, Unavailable
from shared.kubernetes.kinds import (
    EVENT,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    STORAGE_CLASS,
    Kind,
    Obj,
)
from shared.kubernetes.ownership import NotOurs, Owner
from shared.observability import metrics
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.errors import DatabaseError
from shared.runtime.plan import Action, Apply, Call, Delete, Patch, Plan
from shared.status import conditions
from shared.status.verdict import Verdict
from shared.testing.faults import requests
from shared.testing.harness.harness import NAMESPACE, Harness

BOX = Kind("example.com", "v1", "Box", "boxes")
OPERATOR = "box-operator"


@dataclass(frozen=True)
class Shake(Call):
    def __str__(self) -> str:
        return "shake the box"


class BoxTrouble(DatabaseError):
    """The box does not respond."""


@dataclass
class Boxes:
    """An operator with the plans of a test.

    Attributes:
        wanted: actions of the next plans.
        done: executed calls.
        looks, shakes: error to raise when it observes, and when it executes a call; None for none.
    """

    wanted: tuple[Action, ...] = ()
    done: list[Call] = field(default_factory=list)
    looks: Exception | None = None
    shakes: Exception | None = None

    @property
    def controller(self) -> Controller[Obj, Obj]:
        kinds = (SERVICE, STATEFUL_SET, POD, PERSISTENT_VOLUME_CLAIM)
        return Controller(OPERATOR, BOX, kinds, lambda obj: obj, self._observe, self._plan, self._call)

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> Obj:
        if self.looks:
            raise self.looks
        return resource

    def _plan(self, _: Obj, __: Obj, ___: datetime) -> Plan:
        wanted, self.wanted = self.wanted, ()
        return Plan(wanted, Verdict(message="All is well."), {"phase": "Running"})

    async def _call(self, call: Call) -> None:
        if self.shakes:
            raise self.shakes
        self.done.append(call)


class Room:
    """One box and its operator."""

    def __init__(self) -> None:
        self.boxes = Boxes()
        self.harness = Harness(self.boxes.controller)
        self.box = self.harness.apply("a", lid="closed")
        self.server, self.person = self.harness.server, self.harness.person

    @property
    def own(self) -> Owner:
        return Owner(BOX, NAMESPACE, "a", self.box["metadata"]["uid"], "box", OPERATOR)

    async def do(self, *actions: Action) -> bool:
        """Execute actions as planned on the box in its initial state."""
        return await self.harness.reconciler._executor.execute(self.box, actions)

    async def plan(self, *actions: Action) -> list[str]:
        """Reconcile once, with a plan of these actions."""
        self.boxes.wanted = actions
        self.harness.queue.add(*self.harness.cache.keys(BOX))
        return await self.harness.run()

    def made(self, kind: Kind, name: str, **body: Obj) -> Obj:
        """Return an object that the operator created earlier."""
        return self.harness.server.actor(OPERATOR).apply(kind, self.own.object(kind, name, component="box", **body))

    def pod(self, name: str = "a-0", **labels: str) -> Obj:
        """Return a pod that a StatefulSet created, with the labels of the box and these."""
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "set", "controller": True}
        spec = {"containers": [{"name": "box", "image": "box:1"}]}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": self.own.labels("box") | labels}
        return self.person.create(
            POD,
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": [owner]}, "spec": spec},
        )


@pytest.fixture
async def room() -> Room:
    return Room()


def another_spec(room: Room) -> None:
    room.harness.apply("a", lid="open")


def another_of_the_name(room: Room) -> None:
    room.person.delete(BOX, NAMESPACE, "a")
    room.harness.apply("a", lid="closed")


def on_its_way_out(room: Room) -> None:
    room.person.merge(BOX, NAMESPACE, "a", {"metadata": {"finalizers": ["example.com/kept"]}})
    room.person.delete(BOX, NAMESPACE, "a")


def gone(room: Room) -> None:
    room.person.delete(BOX, NAMESPACE, "a")


@pytest.mark.parametrize("happens", [another_spec, another_of_the_name, on_its_way_out, gone])
async def test_irreversible_action_is_not_executed_for_an_outdated_spec(room: Room, happens: object) -> None:
    room.harness.deaf.update(room.harness.controller.kinds)  # the watch has not delivered the change yet
    service = room.made(SERVICE, "a", spec={"clusterIP": "None"})
    assert callable(happens)
    happens(room)
    for action in (Shake(), Delete(SERVICE, service)):
        with pytest.raises(Conflict):
            await room.do(action)
    assert not room.boxes.done
    assert room.person.get(SERVICE, NAMESPACE, "a")
    known = room.harness.cache.get(BOX, NAMESPACE, "a")
    found = [obj["metadata"]["resourceVersion"] for _, obj in room.server.objects(BOX)]
    assert [known["metadata"]["resourceVersion"]] == found if known else not found, (
        "the next reconcile reads the current state"
    )


async def test_changed_labels_do_not_invalidate_a_plan(room: Room) -> None:
    room.person.merge(BOX, NAMESPACE, "a", {"metadata": {"labels": {"a": "b"}}})
    assert await room.do(Shake())
    assert room.boxes.done == [Shake()]


async def test_resource_is_read_once_for_all_irreversible_actions_only(room: Room) -> None:
    service, pod = room.made(SERVICE, "a", spec={"clusterIP": "None"}), room.pod()
    room.server.log.reset()
    desired = room.own.object(SERVICE, "b", component="box", spec={"clusterIP": "None"})
    await room.do(Apply(SERVICE, desired), Patch(POD, pod, {"metadata": {"labels": {"a": "b"}}}))
    assert room.server.log.reads["GET"] == 0
    await room.do(Shake(), Shake(), Delete(SERVICE, service))
    assert room.server.log.reads["GET"] == 1


async def test_database_call_requires_the_permit_and_kubernetes_writes_do_not(room: Room) -> None:
    asked = []

    def refuse(act: str) -> None:
        asked.append(act)
        raise Unavailable("another replica may lead by now")

    room.harness.reconciler._executor._permit = refuse
    await room.do(Apply(SERVICE, room.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"})))
    with pytest.raises(Unavailable, match="another replica"):
        await room.do(Shake())
    assert (asked, room.boxes.done) == (["shake the box"], [])


class TestPatch:
    """Changes of a few fields of an object that Kubernetes' controllers created."""

    LABEL = {"metadata": {"labels": {"serves": "clients"}}}  # noqa: RUF012

    async def test_patch_changes_only_the_named_fields(self, room: Room) -> None:
        pod = room.pod(kept="yes")
        assert await room.do(Patch(POD, pod, self.LABEL))
        labels = room.person.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]
        assert (labels["serves"], labels["kept"]) == ("clients", "yes")
        known = room.harness.cache.get(POD, NAMESPACE, "a-0")
        assert known is not None
        assert known["metadata"]["labels"] == labels

    async def test_patch_without_effect_costs_no_request(self, room: Room) -> None:
        pod = room.pod(serves="clients")
        room.server.log.reset()
        assert not await room.do(Patch(POD, pod, self.LABEL))
        assert not room.server.log.all_writes

    async def test_patch_removes_fields_that_are_null(self, room: Room) -> None:
        pod = room.pod(serves="clients")
        assert await room.do(Patch(POD, pod, {"metadata": {"labels": {"serves": None}}}))
        assert "serves" not in room.person.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]

    async def test_claim_grows_and_an_equal_size_is_no_change(self, room: Room) -> None:
        grows = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "grows"}}
        room.person.create(STORAGE_CLASS, grows | {"provisioner": "example.com/disks", "allowVolumeExpansion": True})
        asked = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "grows"}
        claim = room.made(PERSISTENT_VOLUME_CLAIM, "data-a-0", spec=asked)
        for size, changed in (("1024Mi", False), ("2Gi", True)):
            change = {"spec": {"resources": {"requests": {"storage": size}}}}
            assert await room.do(Patch(PERSISTENT_VOLUME_CLAIM, claim, change)) is changed
        [(_, claim)] = room.server.objects(PERSISTENT_VOLUME_CLAIM)
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"

    @pytest.mark.parametrize("told", [True, False])
    async def test_pod_that_replaced_the_observed_one_is_not_changed(self, room: Room, *, told: bool) -> None:
        seen = room.pod()
        if not told:
            room.harness.deaf.add(POD)
        room.person.delete(POD, NAMESPACE, "a-0", gracePeriodSeconds=0)
        room.pod()
        with pytest.raises(Conflict):
            await room.do(Patch(POD, seen, self.LABEL))
        assert "serves" not in room.person.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]

    async def test_object_without_the_labels_of_the_resource_is_rejected(self, room: Room) -> None:
        pod = room.pod("b-0", **{"app.kubernetes.io/instance": "b"})
        with pytest.raises(NotOurs, match=r"Pod b-0 does not have the labels .*instance=a"):
            await room.do(Patch(POD, pod, self.LABEL))
        assert "serves" not in room.person.get(POD, NAMESPACE, "b-0")["metadata"]["labels"]


@pytest.mark.parametrize("orphan", [True, False])
async def test_dependents_of_a_deleted_object_stay_if_orphaned(room: Room, *, orphan: bool) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "box", "image": "box:1"}]}}
    body = {"serviceName": "a", "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    owner = room.made(STATEFUL_SET, "a", spec=body)
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": owner["metadata"]["uid"]}
    metadata = {"name": "a-0", "namespace": NAMESPACE, "ownerReferences": [reference | {"controller": True}]}
    room.person.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    await room.do(Delete(STATEFUL_SET, owner, orphan=orphan))
    room.server.collect_garbage()
    assert not room.server.objects(STATEFUL_SET)
    pods = [obj for _, obj in room.server.objects(POD) if not obj["metadata"].get("deletionTimestamp")]
    assert len(pods) == orphan
    assert all(not pod["metadata"].get("ownerReferences") for pod in pods)


async def test_unwatched_object_is_read_live_and_written_only_if_it_differs(room: Room) -> None:
    desired = Apply(SECRET, room.own.object(SECRET, "a", component="box", data={"key": "b25l"}))
    assert await room.do(desired)
    room.server.log.reset()
    assert not await room.do(desired)
    assert not room.server.log.all_writes
    [(_, made)] = room.server.objects(SECRET)
    assert await room.do(Delete(SECRET, made))
    assert not room.server.objects(SECRET)


async def test_object_missing_since_its_resource_was_deleted_is_not_recreated(room: Room) -> None:
    service = Apply(SERVICE, room.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"}))
    assert await room.do(service)
    room.person.delete(SERVICE, NAMESPACE, "a")
    gone(room)
    with pytest.raises(Conflict, match="was deleted"):
        await room.do(service)
    assert not room.server.objects(SERVICE)


async def test_only_changes_by_other_clients_are_reported_as_restored(room: Room) -> None:
    def service(port: int) -> Apply:
        spec = {"clusterIP": "None", "ports": [{"port": port, "protocol": "TCP"}]}
        return Apply(SERVICE, room.own.object(SERVICE, "a", component="box", spec=spec))

    async def restored() -> set[str]:
        await room.harness.events()
        return {obj["message"] for _, obj in room.server.objects(EVENT) if obj["reason"] == "Restored"}

    room.server.faults.lose_request(when=requests("PATCH", "/services/"))
    with pytest.raises(Unavailable):
        await room.do(service(1))
    for port in (1, 2, 2):  # created, changed by a plan, unchanged
        await room.do(service(port))
    assert not await restored()
    room.person.merge(SERVICE, NAMESPACE, "a", {"spec": {"ports": [{"port": 3, "protocol": "TCP"}]}})
    assert await room.do(service(2))
    edited = "Service a was changed by another client; restored: spec.ports."
    assert await restored() == {edited}
    [(_, made)] = room.server.objects(SERVICE)
    await room.do(Delete(SERVICE, made))
    assert await room.do(service(2))
    assert await restored() == {edited}
    room.person.delete(SERVICE, NAMESPACE, "a")
    assert await room.do(service(2))
    assert await restored() == {edited, "Service a was missing and has been recreated."}


@pytest.mark.parametrize("where", ["looks", "shakes"])
async def test_unresponsive_database_is_reported_with_its_error_once_it_lasts(room: Room, where: str) -> None:
    await room.plan()
    assert accessors.is_true(room.harness.resource("a"), conditions.READY)
    panics = metrics.PANICS.labels(controller="box")._value.get()
    setattr(room.boxes, where, BoxTrouble("no answer from a-0 within 5 s"))
    said = []
    for _ in range(3):
        assert await room.plan(Shake()) == ["error"]
        said.append(accessors.condition(room.harness.resource("a"), conditions.READY))
    assert [condition["reason"] for condition in said] == ["Ready", "Ready", "BoxTrouble"]
    assert (said[-1]["status"], said[-1]["message"]) == ("False", "no answer from a-0 within 5 s")
    assert metrics.PANICS.labels(controller="box")._value.get() == panics
    setattr(room.boxes, where, None)
    assert await room.plan() == ["success"]
    assert accessors.is_true(room.harness.resource("a"), conditions.READY)


async def test_invalid_spec_is_not_reported_as_a_database_error(room: Room) -> None:
    room.boxes.looks = InvalidSpec("spec.lid: no such lid")
    assert await room.plan() == ["terminal_error"]
    assert accessors.condition(room.harness.resource("a"), conditions.STALLED)["reason"] == "InvalidSpec"
