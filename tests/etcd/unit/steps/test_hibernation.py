"""Hibernation of an EtcdCluster: when members stop, what is kept meanwhile, and how they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.api.backup import API, SCHEDULED
from operators.etcd.api.spec import MAX_SIZE
from operators.etcd.backup.view import BackupView
from operators.etcd.client.commands import Remove
from operators.etcd.client.server import NOSPACE, Alarm, HashKV
from operators.etcd.report.metrics import HAS_LEADER, cluster_states
from operators.etcd.state.observed import Observed
from shared.kubernetes.encoding import canonical
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Apply, Plan
from shared.status.resource_metrics import DESIRED
from shared.status.verdict import Progress, Verdict
from shared.steps.database import HIBERNATION
from shared.steps.hibernation import WAKES, record
from tests.etcd.unit.steps.test_corruption import ended
from tests.etcd.unit.world import (
    DOWN,
    LEARNER,
    UID,
    VOTER,
    At,
    acts,
    cluster,
    losing_volumes,
    member_id,
    plan,
    replicas_and_start,
    seen,
)
from tests.harness import cost
from tests.support.hibernating import annotated

QUOTA = 16 * 2**20

PODLESS = At(up=False, pod=False)
"""A member without a pod, on its volume."""

ASLEEP = (PODLESS, PODLESS, PODLESS)
STOPPED, WAKING = {"size": 3, WAKES: 0}, {"size": 3, WAKES: 1}
ANNOUNCED: Obj = {"conditions": [{"type": "Ready", "status": "False", "reason": "Hibernating", "message": ""}]}
DAILY: Obj = {"schedule": "0 0 * * *", "destination": {"volume": {"claimName": "snapshots"}}}


def recorded(found: Observed, *, wakes: bool = False, size: int = 3) -> Observed:
    """Return an observed state whose StatefulSet records a hibernation."""
    assert found.stateful_set is not None
    note = canonical({"size": size, WAKES: int(wakes)}).decode()
    return replace(found, stateful_set=annotated(found.stateful_set, note))


def hibernating(*at: At, known: bool = True, pods: int = 3, wakes: bool = False, size: int = 3, **spec: Any) -> Plan:
    """Return the plan of a cluster that records a hibernation.

    Args:
        pods: replicas of the StatefulSet.
        size: size at which the pods stopped; that of the spec is in `spec`.
    """
    given: dict[str, Any] = {"hibernate": not wakes, "recorded": range(size), **spec}
    resource = cluster(given.pop("requested", size), **given)
    found = seen(resource, *at, known=known, replicas=pods, leader=0 if known else None)
    return plan(resource, recorded(found, wakes=wakes, size=size))


def record_of(made: Plan) -> dict[str, int]:
    """Return the record in the StatefulSet that is applied last."""
    *_, last = (None, *_applied(made))
    return record(last)


def replicas(made: Plan) -> int:
    *_, last = _applied(made)
    return int(last["spec"]["replicas"])


def _applied(made: Plan) -> Iterator[Obj]:
    """Yield the applied StatefulSets; a dry run applies nothing."""
    applies = (action for action in made.actions if isinstance(action, Apply) and not action.dry_run)
    return (each.obj for each in applies if each.obj["kind"] == "StatefulSet")


def begun(*at: At, **spec: Any) -> Plan:
    """Return the plan of a cluster that has reported that it is about to hibernate."""
    resource = cluster(hibernate=True, status=ANNOUNCED, **spec)
    return plan(resource, seen(resource, *at))


def test_hibernation_is_reported_before_anything_stops() -> None:
    resource = cluster(hibernate=True)
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER))
    assert (made.verdict.reason, record_of(made), replicas(made)) == ("Hibernating", {}, 3)


def test_all_members_stop_in_the_write_of_the_record() -> None:
    made = begun(VOTER, VOTER, VOTER)
    assert (acts(made.actions), record_of(made), replicas(made)) == ([], STOPPED, 0)


@pytest.mark.parametrize(
    "other",
    [DOWN, LEARNER, replace(VOTER, old=True), replace(VOTER, ready=False), replace(VOTER, disk="another")],
    ids=["down", "learner", "outdated", "not ready", "lost"],
)
def test_hibernation_waits_for_the_end_of_what_is_in_progress(other: At) -> None:
    made = begun(VOTER, VOTER, other)
    assert not record_of(made)
    assert made.verdict.reason not in ("Hibernating", "Hibernated")
    assert made.verdict.message.endswith("spec.hibernate waits until this is over.")


def test_hibernation_does_not_stop_a_pod_with_whose_end_its_volume_is_deleted() -> None:
    """A user deleted the claims: Kubernetes protects them only as long as the pods exist."""
    resource = cluster(hibernate=True, status=ANNOUNCED)
    made = plan(resource, losing_volumes(seen(resource, VOTER, VOTER, VOTER), 0, 2))
    assert (acts(made.actions), record_of(made), replicas(made)) == ([], {}, 3)
    assert (made.verdict.reason, made.verdict.ready) == ("VolumesTerminating", None)
    assert "PersistentVolumeClaim data-demo-0, data-demo-2" in made.verdict.message
    assert made.health is not None
    assert made.health.available is not None
    assert made.health.available.holds, "clients are served"


def test_hibernation_waits_for_a_scheduled_snapshot() -> None:
    resource = cluster(hibernate=True, status=ANNOUNCED, backup=DAILY)
    metadata = {"name": "demo-1", "namespace": "default", "uid": "b-1", "labels": {SCHEDULED: UID}}
    backup: Obj = {"kind": API.kind.name, "metadata": metadata, "spec": {}, "status": {"phase": "Running"}}
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, backup=BackupView((backup,))))
    assert (record_of(made), made.verdict.reason, made.status["phase"]) == ({}, "Hibernating", "Hibernating")
    assert "EtcdBackup demo-1 is not complete" in made.verdict.message


def test_stopped_cluster_is_at_rest_and_has_lost_nothing() -> None:
    made = hibernating(*ASLEEP, known=False, pods=0)
    assert (made.verdict.reason, made.verdict.progress, made.verdict.ready) == ("Hibernated", Progress.PAUSED, False)
    assert (acts(made.actions), replicas_and_start(made), record_of(made)) == ([], (0, "existing"), STOPPED)
    status = made.status
    assert (status["phase"], status.get("recovery"), status.get("progress")) == ("Hibernated", None, None)
    assert [(each["name"], each["healthy"]) for each in status["members"]] == [(f"demo-{n}", False) for n in range(3)]
    assert made.health is not None
    found = (made.health.available, made.health.degraded)
    assert [(each.holds, each.reason) for each in found if each] == [(False, "Hibernated")] * 2


def test_nothing_is_repaired_while_pods_end() -> None:
    made = hibernating(replace(PODLESS, pod=True, leaving=True), PODLESS, PODLESS, known=False, pods=0)
    assert (made.verdict.reason, made.status["phase"], acts(made.actions)) == ("Hibernating", "Hibernating", [])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_members_return_with_the_size_at_which_they_stopped(size: int) -> None:
    made = hibernating(*ASLEEP, known=False, pods=0, hibernate=False, requested=size)
    assert (acts(made.actions), replicas(made), record_of(made)) == ([], 3, WAKING)


@pytest.mark.parametrize("known", [False, True])
def test_size_of_the_spec_waits_until_all_members_are_back(*, known: bool) -> None:
    made = hibernating(VOTER, DOWN, VOTER if known else DOWN, known=known, wakes=True, requested=1)
    assert (acts(made.actions), replicas(made), record_of(made)) == ([], 3, WAKING)
    assert (made.verdict.reason, made.status["phase"]) == ("WakingUp", "WakingUp")


def test_record_is_removed_once_all_members_are_back_and_then_the_size_applies() -> None:
    made = hibernating(VOTER, VOTER, VOTER, wakes=True, requested=1)
    assert (acts(made.actions), replicas(made), record_of(made)) == ([], 3, {})
    resource = cluster(1, recorded=range(3), phase="WakingUp")
    following = plan(resource, seen(resource, VOTER, VOTER, VOTER))
    assert [type(action) for action in following.actions if isinstance(action, Remove)] == [Remove]
    assert following.verdict.reason == "Scaling"


@pytest.mark.parametrize("hibernate", [False, True])
def test_members_that_another_client_starts_are_repaired_while_the_cluster_is_paused(hibernate: bool) -> None:
    made = hibernating(VOTER, VOTER, VOTER, pods=3, paused=True, hibernate=hibernate)
    assert (made.verdict.reason, made.status["phase"]) == ("Paused", "Paused")
    assert made.health is not None
    assert made.health.available is not None
    assert made.health.available.holds
    lost = hibernating(VOTER, VOTER, replace(VOTER, up=False, disk="another"), pods=3, paused=True, hibernate=hibernate)
    assert acts(lost.actions) == ["remove demo-2"]


def test_members_that_another_client_starts_return_before_they_stop_again() -> None:
    made = hibernating(*ASLEEP, known=False, pods=1)
    assert (acts(made.actions), replicas(made), record_of(made)) == ([], 3, WAKING)


PENDING = replace(DOWN, problem="ImagePullBackOff: the node pool shrank")
"""A member on its volume, whose pod cannot start."""


def test_woken_members_with_a_quorum_stop_again_although_one_cannot_start() -> None:
    """E4: the node pool shrank, and the cluster could neither wake up nor hibernate again."""
    woken = {"wakes": True, "hibernate": True}
    made = hibernating(VOTER, VOTER, PENDING, **woken)
    assert (made.verdict.reason, record_of(made), replicas(made)) == ("Hibernating", WAKING, 3), "it is reported first"
    made = hibernating(VOTER, VOTER, PENDING, status=ANNOUNCED, **woken)
    assert (acts(made.actions), record_of(made), replicas(made)) == ([], STOPPED, 0)
    made = hibernating(VOTER, VOTER, PENDING, status=ANNOUNCED, requested=1, **woken)
    assert (record_of(made), replicas(made)) == (STOPPED, 0), "the size at which they stopped first"


@pytest.mark.parametrize(
    ("at", "spec"),
    [
        ((VOTER, PENDING, PENDING), {"known": False}),
        ((VOTER, VOTER, replace(PENDING, disk="another")), {}),
        ((VOTER, VOTER, replace(PENDING, disk="")), {}),
        ((VOTER, VOTER, LEARNER), {}),
        ((VOTER, replace(VOTER, old=True), PENDING), {}),
        ((VOTER, replace(VOTER, ready=False), PENDING), {}),
        ((VOTER, VOTER, PENDING), {"paused": True}),
        ((VOTER, VOTER, PENDING), {"backup": DAILY, "unfinished": True}),
    ],
    ids=["no quorum", "lost", "no volume", "learner", "outdated", "not ready", "paused", "snapshot"],
)
def test_woken_members_do_not_stop_again_in_the_middle_of_something(at: tuple[At, ...], spec: dict[str, Any]) -> None:
    metadata = {"name": "demo-1", "namespace": "default", "uid": "b-1", "labels": {SCHEDULED: UID}}
    backup: Obj = {"kind": API.kind.name, "metadata": metadata, "spec": {}, "status": {"phase": "Running"}}
    known, unfinished = spec.pop("known", True), spec.pop("unfinished", False)
    resource = cluster(3, hibernate=True, status=ANNOUNCED, **spec)
    found = seen(resource, *at, known=known, replicas=3, backup=BackupView((backup,) if unfinished else ()))
    made = plan(resource, recorded(found, wakes=True))
    assert record_of(made) in (WAKING, {}), made.verdict.message
    applied = (getattr(action, "obj", {}) for action in made.actions)
    assert not any(obj["spec"]["replicas"] == 0 for obj in applied if obj.get("kind") == "StatefulSet")


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("hashes", [(), (1, 2)], ids=["none", "two"])
def test_woken_members_do_not_stop_again_while_one_differs_from_its_peers(hashes: tuple[int, ...], runs: bool) -> None:
    """E2: at the next start, all members start at once, so that the corrupt one compares itself with no peer."""
    resource = cluster(3, hibernate=True, status=ANNOUNCED)
    found = ended(seen(resource, VOTER, VOTER, DOWN, replicas=3), 2, runs=runs)
    found = replace(found, hashes={member_id(n): HashKV(value, 10, 5) for n, value in enumerate(hashes)})
    made = plan(resource, recorded(found, wakes=True))
    assert (record_of(made), replicas(made)) == (WAKING, 3)


@pytest.mark.parametrize("hibernate", [False, True])
def test_member_that_differs_is_replaced_during_the_wake_up(hibernate: bool) -> None:
    """The removal is reported first. Before, that never counted, so that the members woke up for ever."""
    resource = cluster(3, hibernate=hibernate)
    found = ended(seen(resource, VOTER, VOTER, DOWN, replicas=3), 2)
    found = replace(found, hashes={member_id(n): HashKV(1, 10, 5) for n in range(2)})
    made = plan(resource, recorded(found, wakes=True))
    assert (made.verdict.reason, acts(made.actions)) == ("WakingUp", [])
    ready = {"type": "Ready", "status": "False", "reason": made.verdict.reason, "message": made.verdict.message}
    resource = cluster(3, hibernate=hibernate, status={"conditions": [ready]})
    assert acts(plan(resource, recorded(found, wakes=True)).actions) == ["remove demo-2"]


def test_woken_members_do_not_stop_again_while_a_claim_is_being_deleted() -> None:
    resource = cluster(3, hibernate=True, status=ANNOUNCED)
    found = losing_volumes(seen(resource, VOTER, VOTER, PENDING, replicas=3), 1)
    made = plan(resource, recorded(found, wakes=True))
    assert (record_of(made), replicas(made)) == (WAKING, 3)


def repair_of_a_full_cluster(report: Callable[[Verdict], tuple[str, str]]) -> tuple[list[list[str]], Verdict]:
    """Return what two plans execute while a full cluster wakes up, and the last verdict.

    Args:
        report: returns the reason and the message that the status has of a verdict.
    """
    status, executed = ANNOUNCED, []
    for _ in range(2):
        resource = cluster(3, quotaBackendBytes=QUOTA, status=status)
        found = replace(seen(resource, VOTER, VOTER, VOTER), alarms=(Alarm(member_id(1), NOSPACE),))
        full = [replace(each, status=each.status and replace(each.status, db_size=QUOTA)) for each in found.instances]
        made = plan(resource, recorded(replace(found, instances=tuple(full)), wakes=True))
        executed.append(acts(made.actions))
        reason, message = report(made.verdict)
        status = {"conditions": [{"type": "Ready", "reason": reason, "message": message}]}
    return executed, made.verdict


def test_repair_that_is_announced_first_is_executed_while_members_return() -> None:
    """WakingUp replaced the announcement in the status, so that the history was never compacted."""
    executed, last = repair_of_a_full_cluster(lambda verdict: (verdict.reason, verdict.message))
    assert executed == [[], ["compact up to revision 10"]], last
    assert last.reason == "WakingUp"


def test_repair_is_announced_during_the_wake_up_although_other_actions_keep_failing() -> None:
    """The report of the failure began with the error and had the reason WakingUp, so that the repair never ran."""
    executed, last = repair_of_a_full_cluster(lambda verdict: (verdict.announces, f"Rejected. {verdict.message}"))
    assert executed == [[], ["compact up to revision 10"]], last


def test_smaller_size_applies_although_a_member_cannot_start() -> None:
    """E4: the size at which the members stopped hid the smaller one for as long as a pod was missing."""
    at = (VOTER, VOTER, VOTER, PENDING, PENDING)
    made = hibernating(*at, size=5, pods=5, requested=3, wakes=True)
    assert (acts(made.actions), replicas(made), record_of(made)) == ([], 5, {})
    resource = cluster(3, recorded=range(5), phase="WakingUp")
    following = plan(resource, seen(resource, *at))
    assert acts(following.actions) == ["remove demo-4"]
    for requested, others in ((5, PENDING), (7, PENDING), (3, DOWN)):
        made = hibernating(VOTER, VOTER, VOTER, others, others, size=5, pods=5, requested=requested, wakes=True)
        assert record_of(made) == {"size": 5, WAKES: 1}, "nothing to give up, or pods that are starting"
    made = hibernating(PENDING, VOTER, VOTER, pods=3, requested=1, wakes=True)
    assert record_of(made) == WAKING, "demo-0 stays, so that no healthy member may be removed before it is back"


FORGED = ['{"size":3,"wakes":0}', '{"size":1,"wakes":1}', '{"size":-1,"wakes":1}', '{"storage":1,"wakes":1}']


@pytest.mark.parametrize("text", FORGED)
@pytest.mark.parametrize("hibernate", [False, True])
def test_record_that_the_operator_did_not_write_changes_nothing(text: str, hibernate: bool) -> None:
    """A backup tool or kubectl restored a former StatefulSet, or a person edited it."""
    resource = cluster(hibernate=hibernate)
    found = seen(resource, VOTER, VOTER, VOTER)
    assert found.stateful_set is not None
    made = plan(resource, replace(found, stateful_set=annotated(found.stateful_set, text, by="kubectl")))
    expected = plan(resource, found)
    assert (made.verdict, acts(made.actions)) == (expected.verdict, acts(expected.actions))
    assert (replicas(made), record_of(made)) == (3, {})


@pytest.mark.parametrize("hibernate", [False, True])
def test_stopped_members_neither_return_nor_are_missed_while_the_cluster_is_paused(*, hibernate: bool) -> None:
    made = hibernating(*ASLEEP, known=False, pods=0, paused=True, hibernate=hibernate)
    assert not [obj for action in made.actions if (obj := getattr(action, "obj", {})).get("kind") == "StatefulSet"]
    assert (acts(made.actions), made.verdict.reason, made.status["phase"]) == ([], "Paused", "Hibernated")


def test_no_snapshot_is_due_while_the_members_are_stopped() -> None:
    due = "2026-01-01T00:00:00Z"
    made = hibernating(*ASLEEP, known=False, pods=0, backup=DAILY, status={"backup": {"nextTime": due}})
    assert not [obj for action in made.actions if (obj := getattr(action, "obj", {})).get("kind") == API.kind.name]
    assert made.status["backup"]["nextTime"] == due, "the latest missed one is taken after the wake-up"
    woken = hibernating(VOTER, VOTER, VOTER, wakes=True, backup=DAILY, status={"backup": {"nextTime": due}})
    assert [obj for action in woken.actions if (obj := getattr(action, "obj", {})).get("kind") == API.kind.name]


def test_metrics_of_a_stopped_cluster_request_no_server() -> None:
    obj: Obj = {"spec": {"size": 3}, "status": {"phase": "Hibernated", "members": []}}
    samples = {state: value for state, value, _ in cluster_states(obj)}
    assert (samples[DESIRED], samples[HAS_LEADER]) == (0, None)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "3", '{"size": "x"}', '{"size": null}', '{"size": {}}'])
def test_record_that_cannot_be_read_is_none(text: str) -> None:
    assert record({"metadata": {"annotations": {HIBERNATION: text}}}) == {}


@pytest.mark.parametrize("size", [0, MAX_SIZE + 1, 10**9])
async def test_recorded_size_that_no_spec_permits_is_ignored(size: int) -> None:
    """Someone edited the record: the size of the spec applies."""
    resource = cluster()
    async with cost.bounded():
        made = plan(resource, recorded(seen(resource, VOTER, VOTER, VOTER), wakes=True, size=size))
    assert (acts(made.actions), replicas(made), record_of(made)) == ([], 3, {})


def test_members_without_a_record_return() -> None:
    """Someone removed the record: no member may stay away for ever."""
    resource = cluster(hibernate=True)
    made = plan(resource, seen(resource, *ASLEEP, known=False, replicas=0, leader=None))
    assert (acts(made.actions), replicas(made)) == ([], 3)
