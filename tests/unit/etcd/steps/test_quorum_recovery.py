"""Quorum lost: what counts as evidence, what is said, and how a confirmed recovery goes on from every state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.backup import pods
from operators.etcd.backup.pods import recovery_pod, recovery_pod_name
from operators.etcd.client.server import Member, RaftProgress
from operators.etcd.objects import bootstrap
from operators.etcd.objects import names as object_names
from operators.etcd.objects.bootstrap import successor
from operators.etcd.observe import Observed
from operators.etcd.steps import quorum_recovery
from operators.etcd.steps.data_loss import QuorumLoss, loss
from operators.etcd.steps.quorum_recovery import executing, recover_quorum, replicas, report
from operators.etcd.steps.recording import record_cluster
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.runtime import plan as steps
from shared.runtime.plan import Step
from shared.status import verdict
from tests.unit.etcd.world import CLUSTER_ID, DOWN, NOW, SETTINGS, UID, VOTER, At, acts, cluster, member_id, plan, seen

AWAY = At(up=False, trouble="ContainerCreating: ")
LOST = At(up=False, disk="another", trouble="CrashLoopBackOff: back-off", empty_data_dir=True)
"""Its volume is another, and etcd found it empty."""

MOVED = At(up=False, disk="another")
SURVIVES = At(ready=False, runs=True)
"""It runs, answers, and knows no leader."""

RECORDED = {"token": "abcdefabcdef", "survivor": "demo-0", "revision": 10, "message": "…"}


def without_quorum(
    *at: At, status: Any = None, replicas: int | None = None, **spec: Any
) -> tuple[EtcdCluster, Observed]:
    resource = cluster(len(at), recorded=range(len(at)), status=status, **spec)
    return resource, seen(resource, *at, leader=None, known=False, replicas=len(at) if replicas is None else replicas)


def recover(resource: EtcdCluster, world: Observed) -> Step:
    return recover_quorum(partial(recovery_pod, SETTINGS), resource, world, NOW)


def found(resource: EtcdCluster, world: Observed) -> QuorumLoss:
    left = loss(resource, world)
    assert left is not None
    return left


def names(members: Iterable[Any]) -> list[str]:
    return [member.name for member in members]


def speaking(world: Observed, number: int, applied: int, revision: int = 7) -> Observed:
    """The same, but the server at a place, which serves no client, tells by its metrics how far it is."""
    told = RaftProgress(member_id(number), applied, revision)
    instances = [
        replace(instance, progress=told) if instance.number == number else instance for instance in world.instances
    ]
    return replace(world, instances=tuple(instances))


# Evidence


def test_members_that_are_away_are_not_lost() -> None:
    resource, world = without_quorum(AWAY, AWAY, AWAY)
    left = found(resource, world)
    assert not left.is_permanent
    assert names(left.unreachable) == ["demo-0", "demo-1", "demo-2"]
    step = recover(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "NoQuorum", verdict.Progress.PROGRESSING)
    assert "2 of 3 voters must agree" in step.message
    assert "demo-1 is unreachable" in step.message
    assert "Nothing is permanently lost" in step.message


def test_pods_that_are_gone_without_their_volumes_are_named() -> None:
    gone = At(up=False, pod=False)
    resource, world = without_quorum(SURVIVES, gone, gone)
    step = recover(resource, world)
    assert "demo-1 is unreachable (no pod), demo-2 is unreachable (no pod)" in step.message
    assert report(resource, world) is None


def test_one_lost_volume_of_three_is_no_lost_quorum() -> None:
    resource, world = without_quorum(SURVIVES, AWAY, LOST)
    assert not found(resource, world).is_permanent
    assert "demo-2 lost their data" in recover(resource, world).message


@pytest.mark.parametrize("evidence", [LOST, MOVED, At(up=False, empty_data_dir=True)])
def test_another_disk_or_an_empty_one_is_evidence(evidence: At) -> None:
    resource, world = without_quorum(SURVIVES, evidence, evidence)
    left = found(resource, world)
    assert names(left.lost) == ["demo-1", "demo-2"]
    assert left.is_permanent
    assert left.token


@pytest.mark.parametrize("at", [At(up=False, disk=""), At(up=False, disk="another", ready=True), DOWN])
def test_no_disk_a_ready_pod_or_mere_silence_is_no_evidence(at: At) -> None:
    resource, world = without_quorum(SURVIVES, at, at)
    assert names(found(resource, world).lost) == []


def test_a_member_that_answers_is_not_lost_wherever_its_disk_came_from() -> None:
    resource, world = without_quorum(SURVIVES, replace(SURVIVES, disk="another"), LOST)
    assert names(found(resource, world).lost) == ["demo-2"]


def test_a_disk_that_is_recorded_for_a_former_member_proves_nothing() -> None:
    """The survivor's list has other ids than the status: members were replaced, and that was not written down yet."""
    resource, world = without_quorum(SURVIVES, MOVED, MOVED)
    urls = [(object_names.peer_url(resource, number),) for number in range(3)]
    remembered = tuple(Member(0x50 + number, f"demo-{number}", urls[number]) for number in range(3))
    assert names(found(resource, replace(world, remembered=remembered)).lost) == []


def test_learners_are_no_voters() -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    urls = [(object_names.peer_url(resource, number),) for number in range(3)]
    remembered = tuple(Member(member_id(n), f"demo-{n}", urls[n], learner=n > 0) for n in range(3))
    assert names(found(resource, replace(world, remembered=remembered)).voters) == ["demo-0"]


def test_where_a_quorum_answers_or_nothing_ever_began_nothing_is_lost() -> None:
    resource = cluster()
    assert loss(resource, seen(resource, VOTER, LOST, LOST)) is None
    resource = cluster(recorded=None)
    assert loss(resource, seen(resource, AWAY, known=False)) is None


# The survivor and the token


def test_whoever_applied_most_of_the_log_is_the_survivor() -> None:
    behind, ahead = replace(SURVIVES, applied=900), replace(SURVIVES, applied=950)
    resource, world = without_quorum(behind, ahead, LOST, LOST, LOST)
    told = report(resource, world)
    assert told is not None
    assert told["survivor"] == "demo-1"
    assert "demo-1, the most recent data of the 2 remaining members: revision 10, log entry 950" in told["message"]


def test_a_higher_term_counts_for_nothing() -> None:
    behind, ahead = replace(SURVIVES, applied=900), replace(SURVIVES, applied=950)
    resource, world = without_quorum(behind, ahead, LOST, LOST, LOST)
    instance = world.instances[0]
    assert instance.status is not None
    candidate = replace(instance, status=replace(instance.status, raft_term=99))
    told = report(resource, replace(world, instances=(candidate, *world.instances[1:])))
    assert told is not None
    assert told["survivor"] == "demo-1"


def test_one_that_serves_no_client_is_judged_by_its_metrics() -> None:
    resource, world = without_quorum(replace(SURVIVES, applied=900), AWAY, LOST, LOST, LOST)
    assert report(resource, world) is None
    told = report(resource, speaking(world, 1, 901))
    assert told is not None
    assert (told["survivor"], told["revision"]) == ("demo-1", 7)


def test_while_one_is_silent_there_is_no_token() -> None:
    resource, world = without_quorum(SURVIVES, AWAY, LOST, LOST, LOST)
    step = recover(resource, world)
    assert (step.reason, step.progress) == ("QuorumLost", verdict.Progress.PROGRESSING)
    assert "demo-1 is unreachable" in step.message
    assert "delete their volume claims" in step.message
    assert report(resource, world) is None


def test_the_token_stands_for_this_loss_and_this_survivor() -> None:
    tokens = set()
    for at in [(SURVIVES, LOST, LOST), (LOST, SURVIVES, LOST), (SURVIVES, SURVIVES, LOST, LOST, LOST)]:
        left = found(*without_quorum(*at))
        tokens.add(left.token)
        tokens.add(replace(left, cluster_id=5).token)
    assert len(tokens) == 6
    assert found(*without_quorum(SURVIVES, LOST, MOVED)).token == found(*without_quorum(SURVIVES, LOST, LOST)).token


def test_the_report_says_what_to_do_and_nothing_is_done() -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    step, token = recover(resource, world), found(resource, world).token
    assert (step.actions, step.reason, step.progress) == ((), "QuorumLost", verdict.Progress.BLOCKED)
    assert "demo-1, demo-2 of the 3 voters lost their data" in step.message
    assert f"set spec.recovery.confirm to {token}" in step.message
    assert replicas(resource, world) is None
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.status["recovery"]["token"] == token
    assert made.status["clusterID"] == f"{CLUSTER_ID:016x}"


def test_a_survivor_in_memory_cannot_be_stopped() -> None:
    lost = At(up=False, disk="another-pod")
    resource, world = without_quorum(SURVIVES, lost, lost, storage={"medium": "Memory"})
    step = recover(resource, world)
    assert "take an EtcdBackup of it now" in step.message
    assert report(resource, world) is None


def test_where_nobody_has_any_data_a_person_is_told_how_to_begin_anew() -> None:
    for at in [(LOST,), (LOST, LOST, LOST)]:
        resource, world = without_quorum(*at, recovery={"confirm": "anything"})
        step = recover(resource, world)
        assert (step.actions, step.reason, step.progress) == ((), "DataLost", verdict.Progress.BLOCKED)
        assert "spec.restore" in step.message


def test_a_learner_that_is_left_is_better_than_nothing() -> None:
    resource, world = without_quorum(LOST, replace(SURVIVES, learner=True))
    status = {"members": [resource.reported["members"][0], {**resource.reported["members"][1], "role": "learner"}]}
    resource = cluster(2, recorded=range(2), status=status)
    told = report(resource, world)
    assert told is not None
    assert told["survivor"] == "demo-1"


# Confirmation


def confirmed(*at: At, token: str = "", **more: Any) -> tuple[EtcdCluster, Observed]:
    """A loss that was told, and confirmed with its token or another."""
    resource, world = without_quorum(*at)
    told = report(resource, world)
    assert told is not None
    return without_quorum(*at, status={"recovery": told}, recovery={"confirm": token or told["token"]}, **more)


def test_another_token_is_refused_with_both() -> None:
    resource, world = confirmed(SURVIVES, LOST, LOST, token="000000000000")
    step, token = recover(resource, world), found(resource, world).token
    assert (step.actions, step.reason, step.progress) == ((), "TokenRefused", verdict.Progress.BLOCKED)
    assert "'000000000000'" in step.message
    assert token in step.message
    assert replicas(resource, world) is None


def test_a_token_that_was_not_told_yet_is_written_down_first() -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    token = found(resource, world).token
    resource, world = without_quorum(SURVIVES, LOST, LOST, recovery={"confirm": token})
    step = recover(resource, world)
    assert (step.actions, step.requeue, step.progress) == ((), 0, verdict.Progress.WAITING)
    assert not executing(resource, world)


def test_a_confirmed_recovery_stops_the_members() -> None:
    resource, world = confirmed(SURVIVES, LOST, LOST)
    assert replicas(resource, world) == 0
    step = recover(resource, world)
    assert (step.actions, step.reason) == ((), "Recovering")
    made = plan(resource, world)
    (stateful_set,) = [getattr(act, "obj", {}) for act in made.actions if getattr(act, "kind", None) == STATEFUL_SET]
    assert stateful_set["spec"]["replicas"] == 0
    assert acts(made.actions) == []


def test_a_survivor_that_comes_back_before_members_were_stopped_ends_it() -> None:
    """demo-1's volume came back (somebody restored it under its claim's UID, or its node): it is a quorum again."""
    resource, _ = confirmed(SURVIVES, LOST, LOST)
    back = seen(resource, VOTER, VOTER, LOST)
    assert replicas(resource, back) is None
    assert not executing(resource, back)
    assert report(resource, back) is None
    assert recover(resource, back) == Step()


def test_another_loss_after_the_confirmation_needs_another() -> None:
    resource, _ = confirmed(SURVIVES, SURVIVES, LOST, LOST, LOST)
    worse = seen(resource, LOST, SURVIVES, LOST, LOST, LOST, leader=None, known=False, replicas=5)
    assert replicas(resource, worse) is None
    assert recover(resource, worse).reason == "TokenRefused"


STOPPED = At(up=False, pod=False)


def stopped(pod: Obj | None = None, **spec: Any) -> tuple[EtcdCluster, Observed]:
    """All members are stopped for a recovery that was confirmed."""
    given: dict[str, Any] = {"recovery": {"confirm": RECORDED["token"]}, **spec}
    given = {key: value for key, value in given.items() if value is not None}
    resource = cluster(3, status={"recovery": RECORDED}, **given)
    world = seen(resource, STOPPED, STOPPED, STOPPED, leader=None, known=False, replicas=0)
    return resource, replace(world, job_pods={recovery_pod_name(resource): pod} if pod else {})


def recovery_s_pod(phase: str, *, token: str = RECORDED["token"], ended: str = "", words: str = "") -> Obj:  # type: ignore[assignment]
    terminated = {"exitCode": 1, "message": words, "finishedAt": ended}
    containers = [{"name": "seal", "state": {"terminated": terminated}}] if ended else []
    return {
        "kind": "Pod",
        "metadata": {"name": "demo-recovery", "uid": "p", "annotations": {pods.TOKEN: token}},
        "status": {"phase": phase, "containerStatuses": containers},
    }


def test_once_stopped_the_survivors_data_is_made_a_new_cluster() -> None:
    resource, world = stopped()
    assert replicas(resource, world) == 0
    (act,) = recover(resource, world).actions
    assert isinstance(act, steps.Apply)
    assert act.obj["metadata"]["name"] == recovery_pod_name(resource)
    assert quorum_recovery.token_of(act.obj) == RECORDED["token"]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in act.obj["spec"]["volumes"]]
    assert claims == ["data-demo-0"]
    (restore,) = [made for made in act.obj["spec"]["initContainers"] if "--skip-hash-check=true" in made["args"]]
    assert f"--initial-cluster-token={UID}-{RECORDED['token']}" in restore["args"]


def test_the_volume_is_not_touched_while_the_survivors_pod_is_there() -> None:
    resource, world = stopped()
    instance = replace(world.instances[0], pod_obj={"metadata": {"name": "demo-0"}})
    assert recover(resource, replace(world, instances=(instance, *world.instances[1:]))).actions == ()


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_the_recovery_is_waited_for(phase: str) -> None:
    resource, world = stopped(recovery_s_pod(phase))
    step = recover(resource, world)
    assert (step.actions, step.reason, replicas(resource, world)) == ((), "Recovering", 0)
    assert report(resource, world) == RECORDED


def test_a_recovery_that_failed_says_why_and_is_tried_again_after_a_while() -> None:
    resource, world = stopped(recovery_s_pod("Failed", ended="2026-01-01T11:59:45Z", words="no space left"))
    step = recover(resource, world)
    assert (step.actions, step.reason, step.warning) == ((), "RecoveryFailed", True)
    assert "no space left" in step.message
    resource, world = stopped(recovery_s_pod("Failed", ended="2026-01-01T11:59:30Z", words="no space left"))
    assert acts(recover(resource, world).actions) == ["delete Pod demo-recovery (p)"]


def test_the_pod_of_a_former_recovery_goes_first() -> None:
    resource, world = stopped(recovery_s_pod("Succeeded", token="another"))
    assert acts(recover(resource, world).actions) == ["delete Pod demo-recovery (p)"]
    assert replicas(resource, world) == 0


def test_a_confirmation_that_is_taken_back_brings_the_members_back() -> None:
    resource, world = stopped(recovery_s_pod("Running"), recovery=None)
    assert replicas(resource, world) == 0, "the pod may hold the volume yet"
    assert acts(recover(resource, world).actions) == ["delete Pod demo-recovery (p)"]
    resource, world = stopped(recovery=None)
    assert replicas(resource, world) == 3
    assert not executing(resource, world)


@pytest.mark.parametrize("still", [{"confirm": RECORDED["token"]}, None])
def test_once_the_data_is_made_only_the_survivor_starts(still: Obj | None) -> None:
    """Whether or not the confirmation still stands: there is no way back any more."""
    resource, world = stopped(recovery_s_pod("Succeeded"), recovery=still)
    assert replicas(resource, world) == 1
    step = recover(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "Recovering", verdict.Progress.PROGRESSING)
    assert report(resource, world) == RECORDED


def test_a_survivor_with_a_higher_number_keeps_its_place() -> None:
    resource = cluster(3, status={"recovery": {**RECORDED, "survivor": "demo-2"}})
    world = seen(resource, STOPPED, STOPPED, STOPPED, leader=None, known=False, replicas=0)
    world = replace(world, job_pods={recovery_pod_name(resource): recovery_s_pod("Succeeded")})
    assert replicas(resource, world) == 3


def alone(resource: EtcdCluster, cluster_id: int) -> Observed:
    """The survivor answers as the only member of a cluster."""
    world = seen(resource, At(id=0x77), replace(STOPPED, member=False), replace(STOPPED, member=False))
    instance = world.instances[0]
    assert instance.status is not None
    said = replace(instance.status, cluster_id=cluster_id, member_id=0x77, leader=0x77)
    return replace(world, cluster_id=cluster_id, instances=(replace(instance, status=said), *world.instances[1:]))


def test_the_cluster_that_the_recovery_makes_is_recorded_and_no_other() -> None:
    resource, _ = stopped()
    step = record_cluster(resource, Assessment.of(resource, alone(resource, successor(resource))), NOW)
    assert (step.reason, step.requeue) == ("Recording", 0)
    assert record_cluster(resource, Assessment.of(resource, alone(resource, 0x123)), NOW).reason == "AnotherCluster"
    made = plan(resource, alone(resource, successor(resource)))
    assert made.status["clusterID"] == f"{successor(resource):016x}"
    assert "recovery" not in made.status
    assert plan(resource, alone(resource, 0x123)).status["clusterID"] == f"{CLUSTER_ID:016x}"


def test_afterwards_the_pod_goes_and_the_token_counts_for_nothing() -> None:
    resource, _ = stopped()
    new = f"{successor(resource):016x}"
    members = [{"name": "demo-0", "id": f"{0x77:016x}", "volume": "disk-0"}]
    after = cluster(3, status={"clusterID": new, "members": members}, recovery={"confirm": RECORDED["token"]})
    world = alone(after, successor(resource))
    world = replace(world, job_pods={recovery_pod_name(after): recovery_s_pod("Succeeded")})
    assert acts(recover(after, world).actions) == ["delete Pod demo-recovery (p)"]
    assert recover(after, replace(world, job_pods={})) == Step()
    assert replicas(after, world) is None


def test_the_ids_of_a_new_cluster_are_known_beforehand() -> None:
    """These ones an etcd 3.6.8 gave itself; 3.4 to 3.7, and their restores, do the same."""
    ids = bootstrap.ids("http://127.0.0.1:23500", "u-1-abcdefabcdef")
    assert ids == (0x404A778CE9321B38, 0x0A83E1BAA8B2FF6C)


@given(
    at=st.lists(st.sampled_from([SURVIVES, AWAY, LOST, MOVED, STOPPED]), min_size=1, max_size=7),
    confirm=st.sampled_from(["right", "wrong", "none"]),
)
def test_nothing_is_ever_stopped_but_by_the_right_token_for_a_majority_of_lost_disks(
    at: list[At], confirm: str
) -> None:
    resource, world = without_quorum(*at)
    told = report(resource, world)
    left = found(resource, world)
    lost, up = sum(spot in (LOST, MOVED) for spot in at), sum(spot is SURVIVES for spot in at)
    assert (told is not None) == (len(at) - lost < len(at) // 2 + 1 and up == len(at) - lost > 0)
    given: Any = {"right": left.token or "none", "wrong": "wrong"}.get(confirm)
    more: dict[str, Any] = {} if confirm == "none" else {"recovery": {"confirm": given}}
    resource, world = without_quorum(*at, status={"recovery": told} if told else None, **more)
    assert executing(resource, world) == (told is not None and confirm == "right")
    assert recover(resource, world).actions == ()
