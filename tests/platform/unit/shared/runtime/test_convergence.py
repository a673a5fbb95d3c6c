"""A changed intent is applied, and a resource that does not converge reports it, for any reason."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from shared.kubernetes import accessors, managed_fields
from shared.kubernetes.client import Kube, Request, Response, error_of
from shared.kubernetes.errors import Forbidden, Invalid, Unavailable, Undiscovered
from shared.kubernetes.kinds import DEPLOYMENT, EVENT, SERVICE, Key, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.field_conflicts import IMMEDIATE_RESTORATIONS, MAX_DELAY, MEMORY
from shared.runtime.plan import Action, Apply, Call, Plan, Record
from shared.runtime.process import MAX_RECONCILE_SECONDS
from shared.runtime.reconciler import (
    DISCOVERY_RETRY_SECONDS,
    MAX_CONFLICT_SECONDS,
    MAX_CYCLES,
    MAX_DISCOVERY_FAILURES,
    MIN_FAILURES_REPORTED,
)
from shared.runtime.reflector import LOSS_REPORTED_SECONDS, Loss
from shared.status import conditions
from shared.status.health import Finding, Health
from shared.status.reasons import Reason
from shared.status.reconciliation_pause import PAUSE
from shared.status.verdict import Progress, Verdict
from simulator.api_server.kinds import NAMESPACE as NAMESPACE_KIND
from simulator.harness import NAMESPACE, NOW, Harness
from tests.support.virtual_time import in_virtual_time

BOX = Kind("example.com", "v1", "Box", "boxes")
OPERATOR = "box-operator"


def toleration(**seconds: int) -> Obj:
    return {"key": "a", "operator": "Exists", "effect": "NoExecute", **seconds}


@dataclass
class Boxes:
    """An operator with a Deployment and a Service for each box.

    Attributes:
        now: time of the clock.
        tolerations: of the Deployment's pods.
        replicas: replicas of each plan; the last one stays.
        bug: error of each plan; None for none.
        health: health in each plan.
        answers_after: seconds that the servers take for each answer.
        cleans_up: whether an interrupted observation fails with another error than the cancellation.
    """

    now: datetime = NOW
    tolerations: tuple[Obj, ...] = ()
    replicas: list[int] = field(default_factory=lambda: [1])
    bug: Exception | None = None
    health: Health | None = None
    answers_after: float = 0.0
    cleans_up: bool = False

    @property
    def controller(self) -> Controller[Obj, Obj]:
        return Controller(OPERATOR, BOX, (SERVICE, DEPLOYMENT), lambda obj: obj, self._observe, self._plan)

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> Obj:
        try:
            await asyncio.sleep(self.answers_after)
        except asyncio.CancelledError:
            if self.cleans_up:
                raise Unavailable("a connection is broken") from None
            raise
        return resource

    def _plan(self, resource: Obj, _: Obj, __: datetime) -> Plan:
        if self.bug:
            raise self.bug
        replicas = self.replicas.pop(0) if len(self.replicas) > 1 else self.replicas[0]
        own = Owner(BOX, NAMESPACE, "a", resource["metadata"]["uid"], "box", OPERATOR)
        spec: Obj = {"containers": [{"name": "box", "image": "box:1"}], "tolerations": list(self.tolerations)}
        template = {"metadata": {"labels": own.selector("box")}, "spec": spec}
        body = {"replicas": replicas, "selector": {"matchLabels": own.selector("box")}, "template": template}
        actions: tuple[Action, ...] = (
            Apply(SERVICE, own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"})),
            Apply(DEPLOYMENT, own.object(DEPLOYMENT, "a", component="box", spec=body)),
        )
        return Plan((actions,), Verdict(message="All is well."), {"phase": "Running"}, health=self.health)


class Lab:
    """One box, its operator and a clock."""

    def __init__(self) -> None:
        self.boxes = Boxes()
        self.harness = Harness(self.boxes.controller, clock=lambda: self.boxes.now)
        self.harness.apply("a", lid="closed")
        self.server, self.user_client = self.harness.server, self.harness.user_client

    async def again(self, seconds: float = 0.0) -> list[str]:
        """Reconcile once more, some seconds later."""
        self.boxes.now += timedelta(seconds=seconds)
        (key,) = self.harness.cache.keys(BOX)
        self.harness.queue.add(key)
        return await self.harness.run()

    def get(self, kind: Kind) -> Obj:
        return self.user_client.get(kind, NAMESPACE, "a")

    def edit(self, kind: Kind, spec: Obj, client: str = "kubectl") -> None:
        self.server.actor(client).merge(kind, NAMESPACE, "a", {"spec": spec})

    def ready(self) -> Obj:
        return self.condition(conditions.READY)

    def condition(self, name: str) -> Obj:
        return accessors.condition(self.harness.resource("a"), name)

    async def events(self, reason: str) -> list[str]:
        await self.harness.events()
        return [obj["message"] for _, obj in self.server.objects(EVENT) if obj["reason"] == reason]


@pytest.fixture
async def lab() -> Lab:
    lab = Lab()
    await lab.harness.run()
    return lab


class TestIntent:
    """The last applied intent is recorded on the object."""

    async def test_field_removed_inside_an_atomic_value_is_removed(self, lab: Lab) -> None:
        for tolerations in ((toleration(tolerationSeconds=5),), (toleration(),)):
            lab.boxes.tolerations = tolerations
            await lab.again()
            pod = lab.get(DEPLOYMENT)["spec"]["template"]["spec"]
            assert tuple(pod["tolerations"]) == tolerations

    async def test_field_removed_while_no_operator_runs_is_removed(self, lab: Lab) -> None:
        lab.boxes.tolerations = (toleration(tolerationSeconds=5),)
        await lab.again()
        lab.boxes.tolerations = (toleration(),)
        lab.harness = lab.harness.restart()
        await lab.harness.run()
        pod = lab.get(DEPLOYMENT)["spec"]["template"]["spec"]
        assert pod["tolerations"] == [toleration()]

    async def test_unchanged_intent_costs_no_write_also_after_a_restart(self, lab: Lab) -> None:
        lab.server.log.reset()
        await lab.again()
        lab.harness = lab.harness.restart()
        await lab.harness.run()
        assert not lab.server.log.all_writes

    async def test_objects_of_an_earlier_release_get_one_write_and_keep_their_template(self, lab: Lab) -> None:
        """An upgrade of the operator must not replace pods."""
        before = {}
        for kind in (SERVICE, DEPLOYMENT):
            obj = managed_fields.applied(lab.get(kind), OPERATOR)
            assert obj is not None
            before[kind] = lab.server.actor(OPERATOR).apply(kind, obj, force=True)  # without the annotation
            assert not managed_fields.applied_digest(before[kind])
        lab.harness = lab.harness.restart()
        lab.server.log.reset()
        await lab.harness.run()
        assert sorted(write.kind for write in lab.server.log.all_writes) == ["Deployment", "Service"]
        assert lab.get(DEPLOYMENT)["spec"] == before[DEPLOYMENT]["spec"]
        assert not await lab.events("Restored")

    async def test_edit_during_downtime_is_reported_as_restored(self, lab: Lab) -> None:
        lab.harness.stop()
        lab.edit(DEPLOYMENT, {"replicas": 7}, "helm")
        lab.harness = lab.harness.restart()
        await lab.harness.run()
        assert await lab.events("Restored") == ["Deployment a was changed by helm; restored: spec.replicas."]


class TestConflictsWithOthers:
    """Another client that keeps changing the operator's fields is named, and causes few writes."""

    async def fight(self, lab: Lab, times: int, seconds: float) -> None:
        for replicas in range(times):
            lab.edit(DEPLOYMENT, {"replicas": replicas + 2}, "helm")
            await lab.again(seconds)

    async def test_hundred_edits_cause_few_applies_and_events(self, lab: Lab) -> None:
        lab.server.log.reset()
        await self.fight(lab, 100, 0.2)
        applies = [write for write in lab.server.log.all_writes if write.verb == "APPLY"]
        assert len(applies) <= 8
        await lab.harness.events()
        counts = [obj["count"] for _, obj in lab.server.objects(EVENT) if obj["reason"] == "Restored"]
        assert sum(counts) == IMMEDIATE_RESTORATIONS
        (named,) = await lab.events("FieldConflict")
        assert "The field manager helm keeps changing spec.replicas of Deployment a" in named
        assert lab.ready()["reason"] == "FieldConflict"

    async def test_first_edits_are_reverted_at_once(self, lab: Lab) -> None:
        for _ in range(IMMEDIATE_RESTORATIONS):
            await self.fight(lab, 1, 0)
            assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 1
        assert lab.ready()["reason"] == "Ready"

    async def test_slow_controller_is_reverted_at_once_each_time(self, lab: Lab) -> None:
        """A HorizontalPodAutoscaler on the workload must not remove servers for seconds."""
        for _ in range(20):
            await self.fight(lab, 1, MAX_DELAY.total_seconds())
            assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 1

    async def test_delayed_restoration_follows_without_an_event(self, lab: Lab) -> None:
        await self.fight(lab, 20, 0)
        assert lab.get(DEPLOYMENT)["spec"]["replicas"] != 1
        assert (lab.harness.queue.delay or 99) <= MAX_DELAY.total_seconds()
        await lab.again(MAX_DELAY.total_seconds())
        assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 1

    async def test_changed_intent_is_applied_at_once_nevertheless(self, lab: Lab) -> None:
        await self.fight(lab, 20, 0)
        lab.boxes.replicas = [5]
        await lab.again()
        assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 5

    async def test_conflict_that_ended_is_no_longer_reported(self, lab: Lab) -> None:
        await self.fight(lab, 5, MAX_DELAY.total_seconds())
        assert lab.ready()["reason"] == "FieldConflict"
        assert REGISTRY.get_sample_value("platform_contested_objects", {"controller": "box"}) == 1
        await lab.again(MEMORY.total_seconds())
        assert (lab.ready()["reason"], lab.ready()["message"]) == ("Ready", "All is well.")

    async def test_edits_of_fields_of_others_are_no_conflict(self, lab: Lab) -> None:
        lab.server.log.reset()
        for count in range(5):
            lab.edit(DEPLOYMENT, {"minReadySeconds": count}, "helm")
            await lab.again()
        assert not [write for write in lab.server.log.all_writes if write.verb == "APPLY"]


class TestNoConvergence:
    """A resource whose spec cannot be applied does not stay Ready."""

    async def test_object_that_stays_terminating_is_named_with_its_finalizers(self, lab: Lab) -> None:
        assert lab.ready()["status"] == "True"
        finalizers = {"metadata": {"finalizers": ["example.com/kept"]}}
        lab.user_client.merge(SERVICE, NAMESPACE, "a", finalizers)
        lab.user_client.delete(SERVICE, NAMESPACE, "a")
        lab.harness.apply("a", lid="open")
        await lab.again()
        assert lab.ready()["status"] == "True", "an object usually ends within seconds"
        for _ in range(MIN_FAILURES_REPORTED):
            assert await lab.again(MAX_CONFLICT_SECONDS) == ["error"]
        ready = lab.ready()
        generation = lab.harness.resource("a")["metadata"]["generation"]
        assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "Terminating", generation)
        assert "Service a is being deleted since" in ready["message"]
        assert "finalizers: example.com/kept" in ready["message"]
        lab.user_client.merge(SERVICE, NAMESPACE, "a", {"metadata": {"finalizers": None}})
        await lab.again()
        assert lab.ready()["status"] == "True"

    async def test_conflict_after_a_time_without_observation_is_not_reported_at_once(self, lab: Lab) -> None:
        lab.harness.reconciler._loss = lambda _: Loss("pods in all namespaces", "injected", 1.0)
        for _ in range(MIN_FAILURES_REPORTED):
            assert await lab.again(MAX_CONFLICT_SECONDS) == ["error"]
        lab.harness.reconciler._loss = lambda _: None
        lab.user_client.merge(SERVICE, NAMESPACE, "a", {"metadata": {"finalizers": ["example.com/kept"]}})
        lab.user_client.delete(SERVICE, NAMESPACE, "a")
        assert await lab.again(1.0) == ["error"]
        assert lab.ready()["status"] == "True"

    async def test_bug_is_reported(self, lab: Lab) -> None:
        lab.boxes.bug = KeyError("lid")
        for _ in range(MIN_FAILURES_REPORTED):
            await lab.again()
        assert (lab.ready()["status"], lab.ready()["reason"]) == ("False", "InternalError")
        assert "KeyError" in lab.ready()["message"]

    async def test_health_stays_as_last_reported_while_no_plan_can_be_made(self, lab: Lab) -> None:
        served, no, yes = (Finding(holds, Reason("Any"), "") for holds in (True, False, True))
        lab.boxes.health = Health(served, no, yes)
        await lab.again()
        lab.boxes.bug = KeyError("lid")
        for _ in range(MIN_FAILURES_REPORTED):
            await lab.again()
        assert (lab.condition("Available")["status"], lab.condition("Degraded")["status"]) == ("True", "False")
        assert (lab.condition("Observed")["status"], lab.condition("Observed")["reason"]) == ("False", "NotObserved")
        assert "keeps their last reported state: The operator fails" in lab.condition("Observed")["message"]
        lab.boxes.bug = None
        await lab.again()
        assert lab.condition("Observed")["status"] == "True"

    async def test_health_stays_as_last_reported_while_collections_are_not_observed(self, lab: Lab) -> None:
        served = Finding(True, Reason("Any"), "")
        lab.boxes.health = Health(served, served, served)
        await lab.again()
        lab.harness.reconciler._loss = lambda _: Loss("pods in all namespaces", "forbidden.", LOSS_REPORTED_SECONDS)
        await lab.again()
        assert (lab.condition("Available")["status"], lab.ready()["status"]) == ("True", "True")
        assert (lab.condition("Observed")["status"], lab.condition("Observed")["reason"]) == ("False", "NotObserved")
        lab.harness.reconciler._loss = lambda _: None
        await lab.again()
        assert lab.condition("Observed")["status"] == "True"

    async def test_time_of_a_pause_stays_while_collections_are_not_observed(self, lab: Lab) -> None:
        lab.user_client.merge(BOX, NAMESPACE, "a", {"metadata": {"annotations": {PAUSE: ""}}})
        await lab.again()
        assert lab.ready()["reason"] == "ReconciliationPaused"
        since = lab.condition("ReconciliationPaused")["lastTransitionTime"]
        lab.harness.reconciler._loss = lambda _: Loss("pods in all namespaces", "forbidden.", LOSS_REPORTED_SECONDS)
        await lab.again(60)
        assert lab.ready()["reason"] == "NotObserved"
        assert lab.condition("ReconciliationPaused")["lastTransitionTime"] == since

    async def test_kind_without_servers_has_no_condition_observed(self, lab: Lab) -> None:
        lab.boxes.bug = KeyError("lid")
        for _ in range(MIN_FAILURES_REPORTED):
            await lab.again()
        assert lab.condition("Observed") == {}

    async def test_plan_that_is_never_done_is_reported(self, lab: Lab) -> None:
        lab.boxes.replicas = [2 - number % 2 for number in range(20 * MAX_CYCLES)]
        for _ in range(MIN_FAILURES_REPORTED):
            assert await lab.again(MAX_CONFLICT_SECONDS) == ["error"]
        assert (lab.ready()["status"], lab.ready()["reason"]) == ("False", "Conflict")
        assert "Apply Deployment a" in lab.ready()["message"]


class TestDeadline:
    """A reconcile ends in time, however slowly the servers of its resource answer."""

    @pytest.mark.parametrize("cleans_up", [False, True])
    def test_reconcile_that_servers_prolong_is_stopped_and_reported(self, *, cleans_up: bool) -> None:
        @in_virtual_time
        async def prolong() -> None:
            lab = Lab()
            await lab.harness.run()
            lab.boxes.answers_after, lab.boxes.cleans_up = math.inf, cleans_up
            async with asyncio.timeout(MAX_RECONCILE_SECONDS):  # older ones fail the liveness probe
                assert await lab.again() == ["error"]
            ready = lab.ready()
            assert (ready["status"], ready["reason"]) == ("False", "ReconcileTimeout")
            assert "servers answer too slowly, or it waited for others of its namespace" in ready["message"]
            assert lab.harness.queue.failures(Key(NAMESPACE, "a")) == 1
            lab.boxes.answers_after = 0.0
            assert await lab.again() == ["success"]
            assert lab.ready()["reason"] == "Ready"

        prolong()

    def test_slow_changes_are_made_in_several_reconciles(self) -> None:
        """Each defragmentation of a member of etcd may take minutes."""

        @in_virtual_time
        async def change() -> list[float]:
            lab = Lab()
            await lab.harness.run()
            lab.boxes.replicas = [2, 3, 4, 5]
            lab.boxes.answers_after = 250.0
            key, clock, took = Key(NAMESPACE, "a"), asyncio.get_running_loop().time, []
            lab.harness.queue.add(key)
            while len(lab.harness.queue):
                began = clock()
                assert await lab.harness.queue.get() == key
                assert await lab.harness.reconciler.reconcile(key) == "success"
                lab.harness.queue.done(key)
                took.append(clock() - began)
            assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 5
            return took

        assert change() == [250.0] * 5


@in_virtual_time
async def test_changes_of_a_slow_cycle_are_not_reported_as_done() -> None:
    """The verdict is that of the state before them."""
    lab = Lab()
    await lab.harness.run()
    lab.harness.apply("a", lid="open")
    lab.boxes.replicas, lab.boxes.answers_after = [2], 31.0
    key = await lab.harness.queue.get()
    assert await lab.harness.reconciler.reconcile(key) == "success"
    lab.harness.queue.done(key)
    assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 2
    assert lab.ready()["observedGeneration"] == 1
    await lab.harness.run()
    assert lab.ready()["observedGeneration"] == 2


class Move(Call):
    """A call that records what it is about to do."""

    def __str__(self) -> str:
        return "move"


@pytest.mark.parametrize(("seconds", "moves"), [(31.0, [1]), (5.0, [1, 2, 3, 4, 5])])
def test_report_after_the_last_cycle_keeps_the_record_of_a_call(seconds: float, moves: list[int]) -> None:
    """The plan was made before the call: its status has none of what the call recorded."""

    @in_virtual_time
    async def move() -> list[int]:
        made = list[int]()

        async def observe(resource: Obj, _: Cache, __: Kube) -> Obj:
            return resource

        def plan(resource: Obj, _: Obj, __: datetime) -> Plan:
            recorded = (resource.get("status") or {}).get("moves") or []
            verdict = Verdict(Progress.PROGRESSING, "Moving", "It moves.")
            return Plan(((Move(),),), verdict, {"phase": "Running", "moves": recorded})

        async def call(_: Call, record: Record) -> None:
            made.append(len(made) + 1)
            await record({"moves": list(made)})
            await asyncio.sleep(seconds)

        harness = Harness(Controller(OPERATOR, BOX, (), lambda obj: obj, observe, plan, call))
        harness.apply("a", lid="closed")
        key = await harness.queue.get()
        assert await harness.reconciler.reconcile(key) == "success"
        assert made == moves
        found: list[int] = harness.resource("a")["status"]["moves"]
        return found

    assert move() == moves


@pytest.mark.parametrize(
    "message",
    [
        "failed to create typed patch object (default/a; apps/v1, Kind=Deployment): "
        ".spec.template.spec.affinity.nodeAffinty: field not declared in schema",
        "failed to convert new object (default/a; apps/v1, Kind=Deployment) to proper version: unable to convert "
        "unstructured object to apps/v1, Kind=Deployment: unable to parse quantity's suffix",
    ],
    ids=["undeclared field", "malformed quantity"],
)
def test_malformed_apply_is_invalid(message: str) -> None:
    """The API server answers 500, without a reason (observed with Kubernetes 1.35)."""
    request = Request("PATCH", DEPLOYMENT.path("default", "a"))
    assert isinstance(error_of(Response(500, {"kind": "Status", "message": message, "code": 500}), request), Invalid)
    webhook = {"kind": "Status", "message": "failed calling webhook", "code": 500}
    assert isinstance(error_of(Response(500, webhook), request), Unavailable)


UNDISCOVERED = (
    'secrets "a" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for '
    'APIVersion example.com/v1 Kind Box: no matches for kind "Box" in version "example.com/v1"'
)


def test_kind_that_the_api_server_has_not_discovered_is_no_lack_of_permissions() -> None:
    request = Request("PATCH", DEPLOYMENT.path("default", "a"))
    for message, error in ((UNDISCOVERED, Undiscovered), ('secrets "a" is forbidden: User "x" cannot', Forbidden)):
        found = error_of(Response(403, {"kind": "Status", "message": message, "code": 403}), request)
        assert type(found) is error


async def test_undiscovered_kind_is_awaited_with_short_delays_and_reported_if_that_lasts(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a back-off of a minute, the first resources after an installation waited for 10 to 30 seconds longer."""
    delays: list[float] = []
    monkeypatch.setattr(lab.harness.queue, "add_after", lambda _, seconds: delays.append(seconds))
    lab.boxes.bug = Undiscovered(UNDISCOVERED)
    for _ in range(MAX_DISCOVERY_FAILURES):
        assert await lab.again() == ["error"]
    assert max(delays) <= DISCOVERY_RETRY_SECONDS
    assert sum(delays) > 30
    assert lab.ready()["reason"] == "Ready"
    await lab.again()
    assert (lab.ready()["status"], lab.ready()["reason"]) == ("False", "ApiUnavailable")
    lab.boxes.bug = None
    await lab.again()
    assert lab.ready()["reason"] == "Ready"


@pytest.mark.parametrize("status", [429, 503])
async def test_overloaded_server_gets_about_one_request_for_each_retry(lab: Lab, status: int) -> None:
    """A report of each failure would be two more."""
    lab.edit(DEPLOYMENT, {"replicas": 5})
    strikes = 0

    def count() -> None:
        nonlocal strikes
        strikes += 1

    lab.server.faults.on_strike = count
    lab.server.faults.answer(status, when=lambda *_: True, times=None)
    for _ in range(40):
        assert await lab.again(seconds=60.0) == ["error"]
    assert strikes <= 40 + 2 * 7, "it is reported after 3, 4, 8, 16 and 32 failures"
    lab.server.faults.clear()
    await lab.again(seconds=60.0)
    assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 1


async def test_resource_whose_namespace_is_being_deleted_costs_one_refused_request(lab: Lab) -> None:
    namespace = {"metadata": {"name": NAMESPACE, "finalizers": ["example.com/test"]}}
    lab.user_client.create(NAMESPACE_KIND, namespace)
    lab.user_client.delete(NAMESPACE_KIND, None, NAMESPACE)
    version = len(lab.server.log.all_writes)
    for kind in (DEPLOYMENT, SERVICE):
        lab.user_client.delete(kind, NAMESPACE, "a")
    for _ in range(10):
        assert set(await lab.again(seconds=60.0)) == {"success"}
    assert len(lab.server.log.all_writes) == version + 1
    assert lab.ready()["reason"] == "Ready", "nothing is reported"
    assert await lab.events("Forbidden") == []
