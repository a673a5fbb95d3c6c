"""The executor applies a plan to exactly the objects that were observed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from operators.etcd.client.errors import Unhealthy
from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors, managed_fields
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Conflict, Forbidden, NotEvictable, Unavailable
from shared.kubernetes.kinds import (
    DISRUPTION_BUDGET,
    EVENT,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from shared.kubernetes.ownership import ForeignObject, Owner
from shared.observability import metrics
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.errors import DatabaseError
from shared.runtime.plan import (
    Action,
    Apply,
    Call,
    Delete,
    Evict,
    Patch,
    Plan,
    Record,
    Step,
    WriteSecret,
    announced,
    follow,
)
from shared.runtime.reconciler import EVICTION_RETRY_SECONDS, MAX_REPAIR_DELAY_SECONDS, MIN_FAILURES_REPORTED
from shared.status import conditions
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict
from simulator.api_server.kinds import STORAGE_CLASS
from simulator.faults import requests
from simulator.harness import NAMESPACE, Harness

BOX = Kind("example.com", "v1", "Box", "boxes")
OPERATOR = "box-operator"


@dataclass(frozen=True)
class Shake(Call):
    def __str__(self) -> str:
        return "shake the box"


class BoxUnreachable(DatabaseError):
    """The box does not respond."""

    reason = Reason("BoxUnreachable")


@dataclass
class Boxes:
    """An operator with the plans of a test.

    Attributes:
        planned: actions of the next plans.
        done: executed calls.
        observe_error: error to raise when it observes; None for none.
        call_error: error to raise when it executes a call; None for none.
        recorded: fields of the status that each call records, one after the other.
        dropped: number of calls that failed.
        heals_after: seconds until repairs continue, in the next plans.
        repairs: number of their first chains that repair.
        verdict: verdict of the next plans.
    """

    planned: tuple[Action, ...] = ()
    done: list[Call] = field(default_factory=list)
    observe_error: Exception | None = None
    call_error: Exception | None = None
    recorded: tuple[Obj, ...] = ()
    dropped: int = 0
    heals_after: float | None = None
    repairs: int = 0
    verdict: Verdict = field(default_factory=lambda: Verdict(message="All is well."))

    @property
    def controller(self) -> Controller[Obj, Obj]:
        kinds = (SERVICE, STATEFUL_SET, POD, PERSISTENT_VOLUME_CLAIM)
        return Controller(OPERATOR, BOX, kinds, lambda obj: obj, self._observe, self._plan, self._call)

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> Obj:
        if self.observe_error:
            raise self.observe_error
        return resource

    def _plan(self, _: Obj, __: Obj, ___: datetime) -> Plan:
        planned, self.planned = self.planned, ()
        return Plan((planned,), self.verdict, {"phase": "Running"}, None, self.heals_after, self.repairs)

    async def _call(self, call: Call, record: Record) -> None:
        if self.call_error:
            raise self.call_error
        for fields in self.recorded:
            await record(fields)
        if isinstance(call, Drop):
            self.dropped += 1
            raise BoxUnreachable("first" if self.dropped == 1 else "later")
        self.done.append(call)


class Lab:
    """One box and its operator."""

    def __init__(self) -> None:
        self.boxes = Boxes()
        self.harness = Harness(self.boxes.controller)
        self.box = self.harness.apply("a", lid="closed")
        self.server, self.user_client = self.harness.server, self.harness.user_client

    @property
    def own(self) -> Owner:
        return Owner(BOX, NAMESPACE, "a", self.box["metadata"]["uid"], "box", OPERATOR)

    async def do(self, *actions: Action) -> bool:
        """Execute actions as planned on the box in its initial state, or since an action recorded a Secret in it."""
        done = await self.harness.reconciler._executor.execute(self.box, (actions,))
        self.box = done.resource
        if done.failure is not None:
            raise done.failure
        return done.changed

    async def plan(self, *actions: Action) -> list[str]:
        """Reconcile once, with a plan of these actions."""
        self.boxes.planned = actions
        (key,) = self.harness.cache.keys(BOX)
        self.harness.queue.add(key)
        return await self.harness.run()

    def made(self, kind: Kind, name: str, **body: Obj) -> Obj:
        """Return an object that the operator created earlier."""
        return self.harness.server.actor(OPERATOR).apply(kind, self.own.object(kind, name, component="box", **body))

    def pod(self, name: str = "a-0", **labels: str) -> Obj:
        """Return a pod that a StatefulSet created, with the labels of the box and these."""
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "set", "controller": True}
        spec = {"containers": [{"name": "box", "image": "box:1"}]}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": self.own.labels("box") | labels}
        return self.user_client.create(
            POD,
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": [owner]}, "spec": spec},
        )


@pytest.fixture
async def lab() -> Lab:
    return Lab()


def another_spec(lab: Lab) -> None:
    lab.harness.apply("a", lid="open")


def another_of_the_name(lab: Lab) -> None:
    lab.user_client.delete(BOX, NAMESPACE, "a")
    lab.harness.apply("a", lid="closed")


def on_its_way_out(lab: Lab) -> None:
    lab.user_client.merge(BOX, NAMESPACE, "a", {"metadata": {"finalizers": ["example.com/kept"]}})
    lab.user_client.delete(BOX, NAMESPACE, "a")


def deleted(lab: Lab) -> None:
    lab.user_client.delete(BOX, NAMESPACE, "a")


@pytest.mark.parametrize("happens", [another_spec, another_of_the_name, on_its_way_out, deleted])
async def test_irreversible_action_is_not_executed_for_an_outdated_spec(lab: Lab, happens: object) -> None:
    lab.harness.broken_watches.update(lab.harness.controller.kinds)  # the watch has not delivered the change yet
    service = lab.made(SERVICE, "a", spec={"clusterIP": "None"})
    assert callable(happens)
    happens(lab)
    for action in (Shake(), Delete(SERVICE, service)):
        with pytest.raises(Conflict):
            await lab.do(action)
    assert not lab.boxes.done
    assert lab.user_client.get(SERVICE, NAMESPACE, "a")
    known = lab.harness.cache.get(BOX, NAMESPACE, "a")
    found = [obj["metadata"]["resourceVersion"] for _, obj in lab.server.objects(BOX)]
    assert [known["metadata"]["resourceVersion"]] == found if known else not found, (
        "the next reconcile reads the current state"
    )


@pytest.mark.parametrize("happens", [another_of_the_name, on_its_way_out, deleted])
@pytest.mark.parametrize("kind", [SERVICE, SECRET])
async def test_object_without_a_controller_is_not_adopted_by_a_deleted_resource(
    lab: Lab, kind: Kind, happens: object
) -> None:
    """The garbage collector would delete the object that the user orphaned."""
    lab.harness.broken_watches.add(BOX)
    lab.made(kind, "a")
    orphan = lab.user_client.merge(kind, NAMESPACE, "a", {"metadata": {"ownerReferences": None}})
    assert callable(happens)
    happens(lab)
    desired = lab.own.object(kind, "a", component="box")
    writes: list[Action] = [
        Apply(kind, desired),
        Patch(kind, orphan, {"metadata": {"ownerReferences": [lab.own.reference()]}}),
    ]
    if kind == SECRET:
        writes.append(WriteSecret(desired, orphan, is_copy=True))
    for write in writes:
        with pytest.raises(Conflict):
            await lab.do(write)
    lab.server.collect_garbage()
    assert lab.user_client.get(kind, NAMESPACE, "a") == orphan


async def test_object_without_a_controller_is_adopted(lab: Lab) -> None:
    made = lab.made(SERVICE, "a")
    lab.user_client.merge(SERVICE, NAMESPACE, "a", {"metadata": {"ownerReferences": None}})
    assert await lab.do(Apply(SERVICE, lab.own.object(SERVICE, "a", component="box")))
    adopted = lab.user_client.get(SERVICE, NAMESPACE, "a")["metadata"]
    assert adopted["ownerReferences"] == made["metadata"]["ownerReferences"]


async def test_owner_that_was_added_since_is_not_removed(lab: Lab) -> None:
    seen = lab.made(SECRET, "a")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}
    references = [*seen["metadata"]["ownerReferences"], other]
    lab.user_client.merge(SECRET, NAMESPACE, "a", {"metadata": {"ownerReferences": references}})
    with pytest.raises(Conflict):
        await lab.do(Patch(SECRET, seen, {"metadata": {"ownerReferences": []}}))
    assert lab.user_client.get(SECRET, NAMESPACE, "a")["metadata"]["ownerReferences"] == references


async def test_changed_labels_do_not_invalidate_a_plan(lab: Lab) -> None:
    lab.user_client.merge(BOX, NAMESPACE, "a", {"metadata": {"labels": {"a": "b"}}})
    assert await lab.do(Shake())
    assert lab.boxes.done == [Shake()]


async def test_resource_is_read_once_for_all_irreversible_actions_only(lab: Lab) -> None:
    service, pod = lab.made(SERVICE, "a", spec={"clusterIP": "None"}), lab.pod()
    lab.server.log.reset()
    desired = lab.own.object(SERVICE, "b", component="box", spec={"clusterIP": "None"})
    await lab.do(Apply(SERVICE, desired), Patch(POD, pod, {"metadata": {"labels": {"a": "b"}}}))
    assert lab.server.log.reads["GET"] == 0
    await lab.do(Shake(), Shake(), Delete(SERVICE, service))
    assert lab.server.log.reads["GET"] == 1


async def test_database_call_requires_the_permit_and_kubernetes_writes_do_not(lab: Lab) -> None:
    acts = []

    def refuse(act: str) -> None:
        acts.append(act)
        raise Unavailable("another replica may lead by now")

    lab.harness.reconciler._executor._permit = refuse
    await lab.do(Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"})))
    with pytest.raises(Unavailable, match="another replica"):
        await lab.do(Shake())
    assert (acts, lab.boxes.done) == (["shake the box"], [])


@dataclass(frozen=True)
class Drop(Call):
    """A call that always fails."""

    def __str__(self) -> str:
        return "drop the box"


async def test_failed_action_ends_its_own_chain_only(lab: Lab) -> None:
    service = lab.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"})
    chains: list[tuple[Action, ...]] = [(Drop(), Shake()), (Apply(SERVICE, service), Drop()), (Shake(),)]
    done = await lab.harness.reconciler._executor.execute(lab.box, chains)
    assert (done.changed, done.chain, str(done.failure)) == (True, 0, "first")
    assert lab.boxes.done == [Shake()], "the chains after a failure, and nothing after it in its own chain"
    assert lab.user_client.get(SERVICE, NAMESPACE, "a")


async def test_dry_run_changes_nothing_and_its_refusal_ends_the_chain(lab: Lab) -> None:
    service = lab.made(SERVICE, "a", spec={"clusterIP": "None"})
    judged = Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec={"type": "NodePort"}), dry_run=True)
    before = lab.server.version
    assert not await lab.do(judged)
    await lab.do(judged, Shake())
    assert (lab.server.version, lab.boxes.done) == (before, [Shake()])
    assert (lab.harness.cache.get(SERVICE, NAMESPACE, "a") or {})["spec"] == service["spec"]
    lab.server.faults.answer(403, when=requests("PATCH", "/services/a"))
    with pytest.raises(Forbidden):
        await lab.do(judged, Shake())
    lab.user_client.delete(SERVICE, NAMESPACE, "a")
    with pytest.raises(Conflict):
        await lab.do(judged, Shake())
    assert lab.boxes.done == [Shake()]


async def test_no_chain_is_executed_after_one_that_finds_an_outdated_plan(lab: Lab) -> None:
    lab.harness.broken_watches.update(lab.harness.controller.kinds)
    another_spec(lab)
    service = lab.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"})
    with pytest.raises(Conflict):
        await lab.harness.reconciler._executor.execute(lab.box, [(Shake(),), (Apply(SERVICE, service),)])
    assert not lab.server.objects(SERVICE)


async def test_repairs_continue_soon_although_an_action_keeps_failing(lab: Lab) -> None:
    await lab.harness.run()
    lab.boxes.heals_after = 0.5
    for _ in range(12):
        await lab.plan(Drop())
        assert (lab.harness.queue.delay or 99) <= MAX_REPAIR_DELAY_SECONDS, "the back-off alone reaches a minute"
        lab.harness.queue.ring()


async def test_failed_repair_is_retried_with_a_growing_delay(lab: Lab) -> None:
    await lab.harness.run()
    lab.boxes.heals_after, lab.boxes.repairs = 0.5, 1
    for _ in range(12):
        await lab.plan(Drop())
        delay = lab.harness.queue.delay
        lab.harness.queue.ring()
    assert (delay or 0) > MAX_REPAIR_DELAY_SECONDS


async def test_action_that_fails_is_reported_before_an_unfinished_repair(lab: Lab) -> None:
    await lab.harness.run()
    lab.boxes.heals_after = 0.5
    lab.boxes.verdict = Verdict(Progress.WAITING, "Repairing", "Repairing the lid.")
    for _ in range(MIN_FAILURES_REPORTED):
        await lab.plan(Drop())
    ready = accessors.condition(lab.harness.resource("a"), conditions.READY)
    assert (ready["reason"], ready["message"]) == ("BoxUnreachable", "later Repairing the lid.")


@pytest.mark.parametrize("reported", ["Repairing", "WakingUp"])
async def test_repair_that_is_announced_first_is_named_although_another_action_keeps_failing(
    lab: Lab, reported: str
) -> None:
    """Also if something else is in the report of the plan itself."""
    await lab.harness.run()
    lab.boxes.heals_after = 0.5
    step = announced({}, Step.wait(Reason("Repairing"), "Repairing the lid.", Shake()))
    lab.boxes.verdict = replace(follow([lambda _: step], None).verdict, reason=reported)
    for _ in range(MIN_FAILURES_REPORTED):
        await lab.plan(Drop())
    ready = accessors.condition(lab.harness.resource("a"), conditions.READY)
    assert (ready["reason"], ready["message"]) == ("Repairing", "later Repairing the lid.")


async def test_expected_refusal_is_reported_only_if_it_lasts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Etcd refuses a change of members for some seconds after the one before."""
    await lab.harness.run()
    monkeypatch.setattr(BoxUnreachable, "failures_reported", Unhealthy.failures_reported)
    before = lab.harness.resource("a").get("status")
    for _ in range(Unhealthy.failures_reported - 1):
        await lab.plan(Drop())
    assert lab.harness.resource("a").get("status") == before
    await lab.plan(Drop())
    ready = accessors.condition(lab.harness.resource("a"), conditions.READY)
    assert ready["reason"] == "BoxUnreachable"


class TestPatch:
    """Changes of a few fields of an object that Kubernetes' controllers created."""

    LABEL = {"metadata": {"labels": {"serves": "clients"}}}  # noqa: RUF012

    async def test_patch_changes_only_the_named_fields(self, lab: Lab) -> None:
        pod = lab.pod(kept="yes")
        assert await lab.do(Patch(POD, pod, self.LABEL))
        labels = lab.user_client.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]
        assert (labels["serves"], labels["kept"]) == ("clients", "yes")
        known = lab.harness.cache.get(POD, NAMESPACE, "a-0")
        assert known is not None
        assert known["metadata"]["labels"] == labels

    async def test_patch_without_effect_costs_no_request(self, lab: Lab) -> None:
        pod = lab.pod(serves="clients")
        lab.server.log.reset()
        assert not await lab.do(Patch(POD, pod, self.LABEL))
        assert not lab.server.log.all_writes

    async def test_patch_removes_fields_that_are_null(self, lab: Lab) -> None:
        pod = lab.pod(serves="clients")
        assert await lab.do(Patch(POD, pod, {"metadata": {"labels": {"serves": None}}}))
        assert "serves" not in lab.user_client.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]

    async def test_claim_grows_and_an_equal_size_is_no_change(self, lab: Lab) -> None:
        grows = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "grows"}}
        lab.user_client.create(
            STORAGE_CLASS, grows | {"provisioner": "example.com/disks", "allowVolumeExpansion": True}
        )
        acts = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "grows"}
        claim = lab.made(PERSISTENT_VOLUME_CLAIM, "data-a-0", spec=acts)
        for size, changed in (("1024Mi", False), ("2Gi", True)):
            change = {"spec": {"resources": {"requests": {"storage": size}}}}
            assert await lab.do(Patch(PERSISTENT_VOLUME_CLAIM, claim, change)) is changed
        [(_, claim)] = lab.server.objects(PERSISTENT_VOLUME_CLAIM)
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"

    @pytest.mark.parametrize("is_known", [True, False])
    async def test_pod_that_replaced_the_observed_one_is_not_changed(self, lab: Lab, *, is_known: bool) -> None:
        seen = lab.pod()
        if not is_known:
            lab.harness.broken_watches.add(POD)
        lab.user_client.delete(POD, NAMESPACE, "a-0", gracePeriodSeconds=0)
        lab.pod()
        with pytest.raises(Conflict):
            await lab.do(Patch(POD, seen, self.LABEL))
        assert "serves" not in lab.user_client.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]

    async def test_object_without_the_labels_of_the_resource_is_rejected(self, lab: Lab) -> None:
        pod = lab.pod("b-0", **{"app.kubernetes.io/instance": "b"})
        with pytest.raises(ForeignObject, match=r"Pod b-0 does not have the labels .*instance=a"):
            await lab.do(Patch(POD, pod, self.LABEL))
        assert "serves" not in lab.user_client.get(POD, NAMESPACE, "b-0")["metadata"]["labels"]

    async def test_object_without_the_labels_of_the_resource_is_not_deleted(self, lab: Lab) -> None:
        pod = lab.pod("b-0", **{"app.kubernetes.io/instance": "b"})
        for action in (Delete(POD, pod), Evict(pod)):
            with pytest.raises(ForeignObject):
                await lab.do(action)
        assert lab.user_client.get(POD, NAMESPACE, "b-0") == pod


class TestEvict:
    """Planned work stops pods within their disruption budget."""

    MESSAGE = (
        "Updating a-0. Pod a-0 is not evicted yet: The disruption budget a needs 1 healthy pods and has 1 currently. "
        "The operator retries until its disruption budget allows it."
    )

    def budgeted_pod(self, lab: Lab, allowed: int, name: str = "a") -> Obj:
        """Return a running pod, with a budget that the disruption controller has processed."""
        pod = lab.pod()
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        pod = lab.user_client.merge(POD, NAMESPACE, "a-0", status, subresource="status")
        spec: Obj = {"minAvailable": 1, "selector": {"matchLabels": lab.own.labels("box")}}
        lab.made(DISRUPTION_BUDGET, name, spec=spec)
        counts = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": allowed}
        lab.user_client.merge(DISRUPTION_BUDGET, NAMESPACE, name, {"status": counts}, subresource="status")
        return pod

    async def test_pod_is_evicted_within_its_budget(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 1)
        assert await lab.do(Evict(pod))
        assert not lab.server.objects(POD)
        assert lab.harness.cache.get(POD, NAMESPACE, "a-0") is None
        [write] = [write for write in lab.server.log.all_writes if write.kind == "Pod"]
        assert (write.verb, write.subresource, write.pinned) == ("EVICT", "eviction", True)

    async def test_terminating_pod_enters_the_cache_before_its_event_arrives(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 1)
        pod = lab.user_client.merge(POD, NAMESPACE, "a-0", {"spec": {"nodeName": "node-1"}})
        lab.harness.broken_watches.add(POD)
        await lab.do(Evict(pod))
        known = lab.harness.cache.get(POD, NAMESPACE, "a-0")
        assert known is not None
        assert known["metadata"]["deletionTimestamp"]

    async def test_exhausted_budget_ends_the_chain_but_no_other_one(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 0)
        chains: list[tuple[Action, ...]] = [(Evict(pod), Shake()), (Shake(),)]
        done = await lab.harness.reconciler._executor.execute(lab.box, chains)
        assert (done.chain, type(done.failure)) == (0, NotEvictable)
        assert "budget a needs 1 healthy pods and has 1 currently" in str(done.failure)
        assert lab.boxes.done == [Shake()]
        assert lab.server.objects(POD)

    async def test_failure_counts_more_than_an_exhausted_budget(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 0)
        done = await lab.harness.reconciler._executor.execute(lab.box, [(Evict(pod),), (Drop(),)])
        assert (done.chain, type(done.failure)) == (1, BoxUnreachable)

    async def test_exhausted_budget_is_a_wait_and_no_failure(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 0)
        await lab.harness.run()
        lab.boxes.verdict = Verdict(Progress.WAITING, "Updating", "Updating a-0.")
        assert await lab.plan(Evict(pod)) == ["requeue_after"]
        assert lab.harness.queue.delay == EVICTION_RETRY_SECONDS
        ready = accessors.condition(lab.harness.resource("a"), conditions.READY)
        assert (ready["reason"], ready["message"]) == ("Updating", self.MESSAGE)
        await lab.harness.events()
        kinds = {obj["type"] for _, obj in lab.server.objects(EVENT)}
        assert kinds == {"Normal"}

    async def test_second_budget_of_a_pod_is_reported_like_an_exhausted_one(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 1)
        lab.made(DISRUPTION_BUDGET, "b", spec={"minAvailable": 1, "selector": {"matchLabels": lab.own.labels("box")}})
        with pytest.raises(NotEvictable, match="Pod a-0 is not evicted yet: This pod has more than one"):
            await lab.do(Evict(pod))

    async def test_deleted_pod_needs_no_eviction_and_another_one_is_not_evicted(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 1)
        lab.user_client.delete(POD, NAMESPACE, "a-0", gracePeriodSeconds=0)
        assert await lab.do(Evict(pod))
        lab.pod()
        with pytest.raises(Conflict):
            await lab.do(Evict(pod))
        assert lab.server.objects(POD)
        [(_, budget)] = lab.server.objects(DISRUPTION_BUDGET)
        assert budget["status"]["disruptionsAllowed"] == 1, "a stale eviction would use up the budget for two minutes"

    async def test_other_rejections_of_too_many_requests_are_failures(self, lab: Lab) -> None:
        pod = self.budgeted_pod(lab, 1)
        lab.server.faults.answer(429, when=requests("POST", "/eviction"))
        with pytest.raises(Unavailable) as refused:
            await lab.do(Evict(pod))
        assert not isinstance(refused.value, NotEvictable)


async def test_object_that_is_being_deleted_is_deleted_again_only_to_end_sooner(lab: Lab) -> None:
    lab.pod()
    lab.user_client.merge(POD, NAMESPACE, "a-0", {"spec": {"nodeName": "node-1"}})
    lab.user_client.delete(POD, NAMESPACE, "a-0", gracePeriodSeconds=30)
    pod = lab.user_client.get(POD, NAMESPACE, "a-0")
    before = len(lab.server.log.all_writes)
    assert not await lab.do(Delete(POD, pod))
    assert not await lab.do(Delete(POD, pod, grace_seconds=30))
    assert len(lab.server.log.all_writes) == before
    assert await lab.do(Delete(POD, pod, grace_seconds=1))


@pytest.mark.parametrize("orphan", [True, False])
async def test_dependents_of_a_deleted_object_stay_if_orphaned(lab: Lab, *, orphan: bool) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "box", "image": "box:1"}]}}
    body = {"serviceName": "a", "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    owner = lab.made(STATEFUL_SET, "a", spec=body)
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": owner["metadata"]["uid"]}
    metadata = {"name": "a-0", "namespace": NAMESPACE, "ownerReferences": [reference | {"controller": True}]}
    lab.user_client.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    await lab.do(Delete(STATEFUL_SET, owner, orphan=orphan))
    lab.server.collect_garbage()
    assert not lab.server.objects(STATEFUL_SET)
    pods = [obj for _, obj in lab.server.objects(POD) if not obj["metadata"].get("deletionTimestamp")]
    assert len(pods) == orphan
    assert all(not pod["metadata"].get("ownerReferences") for pod in pods)


async def test_unwatched_object_is_read_live_and_written_only_if_it_differs(lab: Lab) -> None:
    desired = Apply(SECRET, lab.own.object(SECRET, "a", component="box", data={"key": "b25l"}))
    assert await lab.do(desired)
    lab.server.log.reset()
    assert not await lab.do(desired)
    assert not lab.server.log.all_writes
    [(_, made)] = lab.server.objects(SECRET)
    assert await lab.do(Delete(SECRET, made))
    assert not lab.server.objects(SECRET)


async def test_object_missing_since_its_resource_was_deleted_is_not_recreated(lab: Lab) -> None:
    service = Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"}))
    assert await lab.do(service)
    lab.user_client.delete(SERVICE, NAMESPACE, "a")
    deleted(lab)
    with pytest.raises(Conflict, match="was deleted"):
        await lab.do(service)
    assert not lab.server.objects(SERVICE)


async def test_object_that_ended_since_the_plan_is_not_created_from_its_parts(lab: Lab) -> None:
    """A StatefulSet that is recreated for a larger size got the former size again, for over a minute on a cluster."""
    service = Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"}))
    assert await lab.do(service)
    [(_, seen)] = lab.server.objects(SERVICE)
    assert await lab.do(Delete(SERVICE, seen, orphan=True))
    lab.server.collect_garbage()
    with pytest.raises(Conflict, match="was deleted"):
        await lab.do(replace(service, seen=seen))
    assert not lab.server.objects(SERVICE)
    assert await lab.do(service)


async def test_only_changes_by_other_clients_are_reported_as_restored(lab: Lab) -> None:
    def service(port: int) -> Apply:
        spec = {"clusterIP": "None", "ports": [{"port": port, "protocol": "TCP"}]}
        return Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec=spec))

    async def restored() -> set[str]:
        await lab.harness.events()
        return {obj["message"] for _, obj in lab.server.objects(EVENT) if obj["reason"] == "Restored"}

    lab.server.faults.lose_request(when=requests("PATCH", "/services/"))
    with pytest.raises(Unavailable):
        await lab.do(service(1))
    for port in (1, 2, 2):  # created, changed by a plan, unchanged
        await lab.do(service(port))
    assert not await restored()
    lab.user_client.merge(SERVICE, NAMESPACE, "a", {"spec": {"ports": [{"port": 3, "protocol": "TCP"}]}})
    assert await lab.do(service(2))
    edited = "Service a was changed by kubectl; restored: spec.ports."
    assert await restored() == {edited}
    [(_, made)] = lab.server.objects(SERVICE)
    await lab.do(Delete(SERVICE, made))
    assert await lab.do(service(2))
    assert await restored() == {edited}
    lab.user_client.delete(SERVICE, NAMESPACE, "a")
    assert await lab.do(service(2))
    assert await restored() == {edited, "Service a was missing and has been recreated."}


async def test_removal_of_many_fields_is_logged_in_short(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Another client can write fields into the record of the operator, which then removes them."""
    caplog.set_level("INFO")
    desired = lab.own.object(SERVICE, "a", component="box", spec={"clusterIP": "None"})
    labels = desired["metadata"]["labels"] | {f"label-{number}": "" for number in range(5_000)}
    lab.server.actor(OPERATOR).apply(SERVICE, {**desired, "metadata": {**desired["metadata"], "labels": labels}})
    await lab.do(Apply(SERVICE, desired))
    (line,) = (record.getMessage() for record in caplog.records if "applied Service a: " in record.getMessage())
    assert "metadata.labels.label-1" in line
    assert len(line) < 2_000


@pytest.mark.parametrize("where", ["observe_error", "call_error"])
async def test_unresponsive_database_is_reported_with_its_error_once_it_lasts(lab: Lab, where: str) -> None:
    await lab.plan()
    assert accessors.is_true(lab.harness.resource("a"), conditions.READY)
    panics = metrics.PANICS.labels(controller="box")._value.get()
    setattr(lab.boxes, where, BoxUnreachable("no answer from a-0 within 5 s"))
    ready = []
    for _ in range(3):
        assert await lab.plan(Shake()) == ["error"]
        ready.append(accessors.condition(lab.harness.resource("a"), conditions.READY))
    assert [condition["reason"] for condition in ready] == ["Ready", "Ready", "BoxUnreachable"]
    assert (ready[-1]["status"], ready[-1]["message"]) == ("False", "no answer from a-0 within 5 s")
    assert metrics.PANICS.labels(controller="box")._value.get() == panics
    setattr(lab.boxes, where, None)
    assert await lab.plan() == ["success"]
    assert accessors.is_true(lab.harness.resource("a"), conditions.READY)


async def test_invalid_spec_is_not_reported_as_a_database_error(lab: Lab) -> None:
    lab.boxes.observe_error = InvalidSpec("spec.lid: no such lid")
    assert await lab.plan() == ["terminal_error"]
    assert accessors.condition(lab.harness.resource("a"), conditions.STALLED)["reason"] == "InvalidSpec"


async def test_object_is_compared_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of a StatefulSet takes a millisecond, and most reconciles of a resource change nothing."""
    compared: list[str] = []
    difference = managed_fields.difference

    def counted(desired: Obj, observed: Obj, manager: str) -> list[str]:
        compared.append(desired["metadata"]["name"])
        return difference(desired, observed, manager)

    monkeypatch.setattr(managed_fields, "difference", counted)
    lab = Lab()
    one = lab.own.object(SERVICE, "a", component="box", spec={"ports": [{"port": 80}]})
    two = lab.own.object(SERVICE, "a", component="box", spec={"ports": [{"port": 81}]})
    for intent in (one, one, one, one):
        await lab.do(Apply(SERVICE, intent))
    assert not compared, "the response to the creation"
    await lab.do(Apply(SERVICE, two))
    await lab.do(Apply(SERVICE, two))
    assert len(compared) == 1, "a new intent, and not the response to it"
    lab.user_client.merge(SERVICE, NAMESPACE, "a", {"spec": {"ports": [{"port": 8080}]}})
    assert await lab.do(Apply(SERVICE, two)), "an edit by another client is restored"


@pytest.mark.parametrize("exists", [False, True])
async def test_edit_that_is_observed_before_the_response_is_restored(lab: Lab, *, exists: bool) -> None:
    """Only the content of the response needs no comparison, not a later version in the cache."""
    if exists:
        lab.made(SERVICE, "a", spec={"ports": [{"port": 80}]})
    intent = Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec={"ports": [{"port": 81}]}))

    def edit(*_: object) -> None:
        lab.server.check_write = lambda *_: None
        lab.user_client.merge(SERVICE, NAMESPACE, "a", {"spec": {"ports": [{"port": 8080}]}})

    lab.server.check_write = edit
    await lab.do(intent)
    assert await lab.do(intent)
    [(_, service)] = lab.server.objects(SERVICE)
    assert 81 in [port["port"] for port in service["spec"]["ports"]]
