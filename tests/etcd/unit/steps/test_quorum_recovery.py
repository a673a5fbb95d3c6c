"""Quorum recovery: evidence of data loss, the report, and the steps of a confirmed recovery."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import MAX_OUTSIDE_VOTERS, EtcdCluster
from operators.etcd.backup import pods
from operators.etcd.backup.pods import recovery_pod_name
from operators.etcd.client.server import Member, RaftProgress
from operators.etcd.objects import bootstrap
from operators.etcd.objects import names as object_names
from operators.etcd.objects.bootstrap import successor, successor_of
from operators.etcd.state.observed import Observed
from operators.etcd.steps.data_loss import QuorumLoss, loss
from operators.etcd.steps.quorum_recovery import clear_marks, executing, recover_quorum, replicas, report
from operators.etcd.steps.recording import record_cluster
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.runtime import plan as steps
from shared.runtime.plan import Step
from shared.status import verdict
from shared.steps.confirmed_recovery import RENEWAL
from tests.etcd.unit.world import (
    CLUSTER_ID,
    DOWN,
    NOW,
    UID,
    VOTER,
    At,
    acts,
    assess,
    cluster,
    losing_volumes,
    member_id,
    plan,
    seen,
)

UNREACHABLE = At(up=False, problem="ContainerCreating: ")
LOST = At(up=False, disk="another", problem="CrashLoopBackOff: back-off", empty_data_dir=True)
"""A member whose volume was replaced: etcd found an empty data directory."""

UNMOUNTED = replace(LOST, disk=None)
"""A member that started twice with an empty directory on its own volume."""

MOVED = At(up=False, disk="another")
SURVIVES = At(ready=False, runs=True)
"""A member that runs and answers, but knows no leader."""

RECORDED = {"token": "20260101T120000Z-abcdefabcdef", "survivor": "demo-0", "revision": 10, "message": "…"}
MARK = f"{RECORDED['token']}@{CLUSTER_ID:016x}"


def without_quorum(
    *at: At, status: Any = None, replicas: int | None = None, **spec: Any
) -> tuple[EtcdCluster, Observed]:
    resource = cluster(len(at), recorded=range(len(at)), status=status, **spec)
    return resource, seen(resource, *at, leader=None, known=False, replicas=len(at) if replicas is None else replicas)


def recover(resource: EtcdCluster, world: Observed) -> Step:
    return recover_quorum(assess(resource, world))


def found(resource: EtcdCluster, world: Observed) -> QuorumLoss:
    left = loss(assess(resource, world))
    assert left is not None
    return left


def names(members: Iterable[Any]) -> list[str]:
    return [member.name for member in members]


def token(resource: EtcdCluster, world: Observed, now: datetime = NOW) -> str:
    """Return the token of the recovery that is offered."""
    recovery = report(assess(resource, world, now))
    assert recovery is not None
    return str(recovery["token"])


def with_metrics(world: Observed, number: int, applied: int, revision: int = 7) -> Observed:
    """Return `world` in which member `number` serves only metrics, which report its progress."""
    progress = RaftProgress(member_id(number), applied, revision)
    instances = [
        replace(instance, progress=progress) if instance.number == number else instance for instance in world.instances
    ]
    return replace(world, instances=tuple(instances))


# Evidence


def test_unreachable_members_are_not_lost() -> None:
    resource, world = without_quorum(UNREACHABLE, UNREACHABLE, UNREACHABLE)
    left = found(resource, world)
    assert not left.is_permanent
    assert names(left.unreachable) == ["demo-0", "demo-1", "demo-2"]
    step = recover(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "NoQuorum", verdict.Progress.PROGRESSING)
    assert "2 of 3 voters must agree" in step.message
    assert "demo-1 is unreachable" in step.message
    assert "Nothing is permanently lost" in step.message


def test_members_without_pods_but_with_volumes_are_named() -> None:
    missing = At(up=False, pod=False)
    resource, world = without_quorum(SURVIVES, missing, missing)
    step = recover(resource, world)
    assert "demo-1 is unreachable (no pod), demo-2 is unreachable (no pod)" in step.message
    assert report(assess(resource, world)) is None


def test_quorum_is_not_lost_with_one_volume_of_three() -> None:
    resource, world = without_quorum(SURVIVES, UNREACHABLE, LOST)
    assert not found(resource, world).is_permanent
    assert "demo-2 (another volume) lost their data" in recover(resource, world).message


@pytest.mark.parametrize("evidence", [LOST, MOVED, At(up=False, empty_data_dir=True)])
def test_replaced_volume_or_empty_data_directory_proves_data_loss(evidence: At) -> None:
    resource, world = without_quorum(SURVIVES, evidence, evidence)
    left = found(resource, world)
    assert names(left.lost) == ["demo-1", "demo-2"]
    assert left.is_permanent
    assert left.identity


def test_directory_that_was_empty_at_one_start_is_no_evidence_of_loss() -> None:
    resource, world = without_quorum(SURVIVES, At(up=False, empty_once=True), LOST)
    assert names(found(resource, world).lost) == ["demo-2"]
    step = recover(resource, world)
    assert step.reason == "NoQuorum"
    assert "demo-1 is unreachable (its data directory was empty at the start at 11:10:00 UTC)" in step.message
    assert "demo-2 (another volume) lost their data. Check that the disk is mounted" in step.message
    assert report(assess(resource, world)) is None


def test_message_names_the_kind_of_evidence() -> None:
    resource, world = without_quorum(SURVIVES, At(up=False, empty_data_dir=True), LOST)
    message = recover(resource, world).message
    assert "demo-2 (another volume), demo-1 (empty directory) of the 3 voters lost their data" in message


@pytest.mark.parametrize("at", [At(up=False, disk=""), At(up=False, disk="another", ready=True), DOWN])
def test_missing_volume_ready_pod_or_no_response_is_no_evidence_of_loss(at: At) -> None:
    resource, world = without_quorum(SURVIVES, at, at)
    assert names(found(resource, world).lost) == []


def test_member_that_answers_is_not_lost_even_on_another_volume() -> None:
    resource, world = without_quorum(SURVIVES, replace(SURVIVES, disk="another"), LOST)
    assert names(found(resource, world).lost) == ["demo-2"]


def test_volume_recorded_for_a_former_member_is_no_evidence_of_loss() -> None:
    """The survivor's member list has newer ids than the status, which does not record the replacements yet."""
    resource, world = without_quorum(SURVIVES, MOVED, MOVED)
    urls = [(object_names.peer_url(resource, number),) for number in range(3)]
    remembered = tuple(Member(0x50 + number, f"demo-{number}", urls[number]) for number in range(3))
    assert names(found(resource, replace(world, remembered=remembered)).lost) == []


def test_learners_do_not_count_as_voters() -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    urls = [(object_names.peer_url(resource, number),) for number in range(3)]
    remembered = tuple(Member(member_id(n), f"demo-{n}", urls[n], learner=n > 0) for n in range(3))
    assert names(found(resource, replace(world, remembered=remembered)).voters) == ["demo-0"]


def test_no_loss_is_reported_with_a_quorum_or_before_the_bootstrap() -> None:
    resource = cluster()
    assert loss(assess(resource, seen(resource, VOTER, LOST, LOST))) is None
    resource = cluster(recorded=None)
    assert loss(assess(resource, seen(resource, UNREACHABLE, known=False))) is None


# The survivor and the token


def test_survivor_is_the_member_that_applied_most_of_the_log() -> None:
    behind, ahead = replace(SURVIVES, applied=900), replace(SURVIVES, applied=950)
    resource, world = without_quorum(behind, ahead, LOST, LOST, LOST)
    recovery = report(assess(resource, world))
    assert recovery is not None
    assert recovery["survivor"] == "demo-1"
    assert (
        "demo-1, the most recent data of the 2 remaining members: revision 10, applied up to log entry 950"
        in recovery["message"]
    )
    assert "The volumes of demo-0 are kept until you release them." in recovery["message"]
    assert recovery["kept"] == ["demo-0"]


def test_higher_term_does_not_make_a_survivor() -> None:
    behind, ahead = replace(SURVIVES, applied=900), replace(SURVIVES, applied=950)
    resource, world = without_quorum(behind, ahead, LOST, LOST, LOST)
    instance = world.instances[0]
    assert instance.status is not None
    candidate = replace(instance, status=replace(instance.status, raft_term=99))
    recovery = report(assess(resource, replace(world, instances=(candidate, *world.instances[1:]))))
    assert recovery is not None
    assert recovery["survivor"] == "demo-1"


def test_survivor_may_be_chosen_by_its_metrics_alone() -> None:
    resource, world = without_quorum(replace(SURVIVES, applied=900), UNREACHABLE, LOST, LOST, LOST)
    assert report(assess(resource, world)) is None
    recovery = report(assess(resource, with_metrics(world, 1, 901)))
    assert recovery is not None
    assert (recovery["survivor"], recovery["revision"]) == ("demo-1", 7)


def test_no_token_is_offered_while_a_voter_is_unreachable() -> None:
    resource, world = without_quorum(SURVIVES, UNREACHABLE, LOST, LOST, LOST)
    step = recover(resource, world)
    assert (step.reason, step.progress) == ("QuorumLost", verdict.Progress.PROGRESSING)
    assert "demo-1 is unreachable" in step.message
    assert "delete their volume claims" in step.message
    assert report(assess(resource, world)) is None


def test_token_identifies_the_loss_and_the_survivor() -> None:
    tokens = set()
    for at in [(SURVIVES, LOST, LOST), (LOST, SURVIVES, LOST), (SURVIVES, SURVIVES, LOST, LOST, LOST)]:
        resource, world = without_quorum(*at)
        tokens |= {token(resource, world), token(resource, world, NOW + timedelta(days=300))}
        left = found(resource, world)
        tokens |= {left.identity, replace(left, cluster_id=5).identity}
    assert len(tokens) == 12
    assert token(*without_quorum(SURVIVES, LOST, MOVED)) == token(*without_quorum(SURVIVES, LOST, LOST))


def test_report_names_the_remedy_and_changes_nothing() -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    step, offered = recover(resource, world), token(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "QuorumLost", verdict.Progress.BLOCKED)
    assert "demo-1, demo-2 (another volume) of the 3 voters lost their data" in step.message
    assert f"set spec.recovery.confirm to {offered}" in step.message
    confirm = json.dumps({"spec": {"recovery": {"confirm": offered}}}, separators=(",", ":"))
    assert step.message.endswith(f": `kubectl patch etcdcluster demo -n default --type merge -p '{confirm}'`")
    assert replicas(assess(resource, world)) is None
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.status["recovery"]["token"] == offered
    assert made.status["clusterID"] == f"{CLUSTER_ID:016x}"


def test_in_memory_survivor_is_not_stopped() -> None:
    lost = At(up=False, disk="another-pod")
    resource, world = without_quorum(SURVIVES, lost, lost, storage={"medium": "Memory"})
    step = recover(resource, world)
    assert "take an EtcdBackup of it now" in step.message
    assert report(assess(resource, world)) is None


def test_survivor_whose_claim_is_being_deleted_is_not_stopped() -> None:
    """The volume would be deleted before the pod of the recovery can mount it, although a user confirmed it before."""
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    offered = report(assess(resource, world))
    assert offered is not None
    resource = cluster(status=resource.reported | {"recovery": offered}, recovery={"confirm": offered["token"]})
    assert executing(assess(resource, world))
    world = losing_volumes(world, 0)
    step = recover(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "QuorumLost", verdict.Progress.BLOCKED)
    assert "demo-0 would lose its data if it stopped (its claim is being deleted)" in step.message
    assert "take an EtcdBackup of it now" in step.message
    assert replicas(assess(resource, world)) is None


def test_message_names_the_remedy_when_all_data_is_lost() -> None:
    for at in [(LOST,), (LOST, LOST, LOST)]:
        resource, world = without_quorum(*at, recovery={"confirm": "anything"})
        step = recover(resource, world)
        assert (step.actions, step.reason, step.progress) == ((), "DataLost", verdict.Progress.BLOCKED)
        assert "spec.restore" in step.message


@pytest.mark.parametrize(
    ("at", "medium", "may_return"),
    [
        ((UNMOUNTED,), "Volume", "demo-0"),
        ((UNMOUNTED,) * 3, "Volume", "demo-0, demo-1, demo-2"),
        ((LOST, UNMOUNTED, LOST), "Volume", "demo-1"),
        ((UNMOUNTED,), "Memory", ""),
    ],
)
def test_data_on_disks_that_may_not_be_mounted_is_not_given_up(
    at: tuple[At, ...], medium: str, may_return: str
) -> None:
    """E5: the advice was to delete the resource, although a mounted disk brings the cluster back."""
    step = recover(*without_quorum(*at, storage={"medium": medium}))
    assert (step.actions, step.reason, step.progress) == ((), "DataLost", verdict.Progress.BLOCKED)
    assert (f"{may_return} started with an empty directory" in step.message) == bool(may_return)
    assert ("check that the disk is mounted" in step.message) == bool(may_return)
    given_up = [text for text in ("permanently", "cannot be recovered", "Delete this") if text in step.message]
    assert len(given_up) == (0 if may_return else 3)


def with_outside(world: Observed, own: int, *outside: int) -> Observed:
    """Return a world whose survivors remember voters that a user runs elsewhere."""
    listed = tuple(Member(member_id(n), f"demo-{n}", (object_names.peer_url(cluster(), n),)) for n in range(own))
    external = tuple(Member(each, f"demo-{each}", (f"http://external-{each}:2380",)) for each in outside)
    return replace(world, remembered=(*listed, *external))


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_loss_of_voters_outside_the_cluster_is_named_in_what_a_user_confirms(lost: int) -> None:
    """E9: a token gave up the writes of two voters that it did not name. E3: then there was no way out at all."""
    resource, world = without_quorum(SURVIVES, *[MOVED] * lost)
    ids = ["00000000000000e0", "00000000000000e1"]
    without = found(resource, replace(world, remembered=()))
    world = with_outside(world, 1 + lost, 0xE0, 0xE1)
    left, step, offered = found(resource, world), recover(resource, world), report(assess(resource, world))
    assert (len(left.voters), left.needed, left.is_permanent) == (3 + lost, (3 + lost) // 2 + 1, True)
    assert (step.actions, step.reason, step.progress) == ((), "QuorumLost", verdict.Progress.BLOCKED)
    assert offered is not None
    assert set(ids) < set(offered["lost"]) | {""}
    assert left.identity not in ("", without.identity)
    assert "claim" not in step.message, "these voters have none here"
    for text in (step.message, offered["message"]):
        assert all(each in text for each in ids), text
    assert f"set spec.recovery.confirm to {offered['token']}" in step.message
    assert "First make sure that 00000000000000e0, 00000000000000e1 never start again." in step.message


def test_voters_outside_stay_part_of_the_offer_while_the_survivor_restarts() -> None:
    """Without a quorum, a restarted member serves no list of members, only metrics."""
    resource, world = without_quorum(SURVIVES, MOVED)
    offered = report(assess(resource, with_outside(world, 2, 0xE0, 0xE1)))
    assert offered is not None
    resource = cluster(2, recorded=range(2), status=resource.reported | {"recovery": offered})
    restarted = with_metrics(seen(resource, DOWN, MOVED, leader=None, known=False), 0, 1000, 10)
    again = report(assess(resource, restarted))
    assert again is not None
    assert (again["lost"], again["token"]) == (offered["lost"], offered["token"])


def listed_outside(*at: At, learner: bool = False, outside: tuple[int, ...] = (0xE0, 0xE1)) -> Obj:
    """Return the status of a cluster whose quorum lists voters that a user runs elsewhere."""
    resource = cluster(len(at), recorded=range(len(at)))
    world = seen(resource, *at)
    external = (Member(each, "elsewhere", (f"http://external-{each}:2380",), learner) for each in outside)
    return plan(resource, replace(world, members=(*(world.members or ()), *external))).status


def restarted(*at: At, status: Obj) -> tuple[EtcdCluster, Observed]:
    """Return a cluster without a quorum, whose members serve no list of members, but metrics if they are `DOWN`."""
    resource, world = without_quorum(*at, status=status)
    for number in (number for number, each in enumerate(at) if each is DOWN):
        world = with_metrics(world, number, 1000, 10)
    return resource, world


@pytest.mark.parametrize("own", [(DOWN,), (DOWN, DOWN, MOVED), (DOWN, MOVED, MOVED)])
def test_listed_voters_outside_are_given_up_by_name_although_no_member_lists_them(own: tuple[At, ...]) -> None:
    """E1: all pods restarted. The token did not name them; without other losses, there was no token."""
    resource, world = restarted(*own, status=listed_outside(*[VOTER] * len(own)))
    assert (len(found(resource, world).voters), found(resource, world).is_permanent) == (len(own) + 2, True)
    step, offered = recover(resource, world), report(assess(resource, world))
    assert (step.reason, step.progress) == ("QuorumLost", verdict.Progress.BLOCKED)
    assert offered is not None
    assert {"00000000000000e0", "00000000000000e1"} <= set(offered["lost"])
    for text in (step.message, offered["message"]):
        assert "00000000000000e0, 00000000000000e1" in text


def test_voters_outside_are_recorded_until_a_quorum_lists_others() -> None:
    listed = listed_outside(VOTER, VOTER, VOTER)
    kept = plan(*restarted(DOWN, MOVED, MOVED, status=listed)).status
    assert kept["outsideVoters"] == listed["outsideVoters"] == ["00000000000000e0", "00000000000000e1"]
    resource = cluster(3, status=listed)
    assert "outsideVoters" not in plan(resource, seen(resource, VOTER, VOTER, VOTER)).status
    assert "outsideVoters" not in listed_outside(VOTER, learner=True)
    assert len(listed_outside(VOTER, outside=tuple(range(0x100, 0x200)))["outsideVoters"]) == MAX_OUTSIDE_VOTERS


def test_voters_outside_may_have_the_data_that_no_pod_has() -> None:
    resource, world = without_quorum(MOVED, MOVED, MOVED)
    step = recover(resource, with_outside(world, 3, 0xE0, 0xE1))
    assert (step.actions, step.reason) == ((), "DataLost")
    assert "If 00000000000000e0, 00000000000000e1 still run, save their data first" in step.message


@pytest.mark.parametrize("own", [DOWN, UNREACHABLE])
def test_voters_outside_are_not_given_up_while_a_pod_may_return(own: At) -> None:
    resource, world = without_quorum(SURVIVES, own, SURVIVES)
    world = with_outside(world, 3, 0xE0, 0xE1)
    step = recover(resource, world)
    assert (step.reason, report(assess(resource, world))) == ("NoQuorum", None)
    assert "00000000000000e0" in step.message
    assert "Nothing is permanently lost" not in step.message, "that is unknown of voters without a pod"


def test_own_pod_whose_voter_has_an_unknown_url_is_not_outside() -> None:
    """The status was lost, so that no recorded id shows whose the voter is; the pod itself does."""
    resource, world = without_quorum(SURVIVES, SURVIVES, MOVED)
    urls = [object_names.peer_url(resource, 0), "http://10.0.0.9:2380", object_names.peer_url(resource, 2)]
    moved = tuple(Member(member_id(n), f"demo-{n}", (url,)) for n, url in enumerate(urls))
    recorded = resource.reported["members"]
    resource = cluster(3, status=resource.reported | {"members": [recorded[0], recorded[2]]})
    assert report(assess(resource, replace(world, remembered=moved))) is None


@pytest.mark.parametrize("is_listed", [True, False], ids=["a survivor lists it", "the status lists its id"])
def test_recovery_is_offered_although_the_survivor_has_an_unknown_url_and_no_recorded_id(is_listed: bool) -> None:
    """The survivor was a voter of no pod, which never answers: no recovery was offered."""
    resource, world = without_quorum(SURVIVES, MOVED, MOVED)
    urls = ["http://10.0.0.9:2380", *(object_names.peer_url(resource, n) for n in (1, 2))]
    moved = tuple(Member(member_id(n), f"demo-{n}", (url,)) for n, url in enumerate(urls))
    lost = {"members": resource.reported["members"][1:], "outsideVoters": [f"{member_id(0):016x}"]}
    resource = cluster(3, status=resource.reported | lost)
    world = replace(world, remembered=moved if is_listed else ())
    assert names(found(resource, world).voters) == ["demo-0", "demo-1", "demo-2"]
    offered = report(assess(resource, world))
    assert offered is not None
    assert (offered["survivor"], offered["lost"]) == ("demo-0", [f"{member_id(n):016x}" for n in (1, 2)])


def test_claim_names_the_voter_of_a_pod_unless_that_reports_another_member() -> None:
    resource, world = without_quorum(SURVIVES, UNREACHABLE, MOVED)
    for instance in world.instances[:2]:
        assert instance.volume is not None
        record = {
            "etcd.ydzs.io/cluster-id": f"{CLUSTER_ID:016x}",
            "etcd.ydzs.io/member-id": f"{0xB0 + instance.number:016x}",
        }
        instance.volume["metadata"]["annotations"] = record
    listed = (Member(member_id(0), "", ()), Member(0xB0, "", ()), Member(0xB1, "", ()))
    left = found(resource, replace(world, remembered=listed))
    assert [(each.name, each.id) for each in left.voters] == [
        (f"{0xB0:016x}", 0xB0),
        ("demo-0", member_id(0)),
        ("demo-1", 0xB1),
    ]
    assert {each.id for each in left.unreachable} == {0xB0, 0xB1}


@pytest.mark.parametrize("uid", ["", "u-0"])
def test_voter_of_a_pod_whose_claim_has_another_label_is_not_given_up(uid: str) -> None:
    """E5: a person or a backup tool edited the label; the volume may have the newest data."""
    resource, world = without_quorum(SURVIVES, MOVED, At(up=False, pod=False))
    claim = world.instances[2].volume
    assert claim is not None
    claim["metadata"]["labels"] |= {object_names.CLUSTER_UID: uid}
    made = plan(resource, world)
    assert "recovery" not in made.status


def test_voter_with_another_url_is_known_by_its_recorded_id() -> None:
    resource, world = without_quorum(SURVIVES, MOVED, MOVED)
    urls = [object_names.peer_url(resource, 0), object_names.peer_url(resource, 5), "http://10.0.0.9:2380"]
    moved = tuple(Member(member_id(n), f"demo-{n}", (url,)) for n, url in enumerate(urls))
    assert names(found(resource, replace(world, remembered=moved)).lost) == ["demo-1", "demo-2"]


def test_learner_may_be_the_survivor_when_no_voter_is_left() -> None:
    resource, world = without_quorum(LOST, replace(SURVIVES, learner=True))
    status = {"members": [resource.reported["members"][0], {**resource.reported["members"][1], "role": "learner"}]}
    resource = cluster(2, recorded=range(2), status=status)
    recovery = report(assess(resource, world))
    assert recovery is not None
    assert recovery["survivor"] == "demo-1"


# Confirmation


def confirmed(*at: At, token: str = "", **more: Any) -> tuple[EtcdCluster, Observed]:
    """Return a reported loss that is confirmed, with its own token or another."""
    resource, world = without_quorum(*at)
    recovery = report(assess(resource, world))
    assert recovery is not None
    return without_quorum(*at, status={"recovery": recovery}, recovery={"confirm": token or recovery["token"]}, **more)


def test_wrong_token_is_refused_and_both_tokens_are_named() -> None:
    resource, world = confirmed(SURVIVES, LOST, LOST, token="000000000000")
    step, offered = recover(resource, world), token(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "TokenRefused", verdict.Progress.BLOCKED)
    assert "'000000000000'" in step.message
    assert offered in step.message
    assert replicas(assess(resource, world)) is None


def test_correct_token_is_recorded_before_the_recovery_starts() -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    resource, world = without_quorum(SURVIVES, LOST, LOST, recovery={"confirm": token(resource, world)})
    step = recover(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "QuorumLost", verdict.Progress.BLOCKED)
    assert "its present value is of an earlier loss" in step.message
    assert not executing(assess(resource, world))


@pytest.mark.parametrize(("minutes", "carried_out"), [(0, True), (60, True), (61, False), (300 * 24 * 60, False)])
def test_confirmation_ends_with_the_observation_of_its_loss(minutes: float, carried_out: bool) -> None:
    resource, world = confirmed(SURVIVES, LOST, LOST)
    assert executing(assess(resource, world, NOW + timedelta(minutes=minutes))) is carried_out
    resource, world = stopped(marked=False)
    assert executing(assess(resource, world, NOW + timedelta(minutes=minutes))) is carried_out
    resource, world = stopped()
    assert executing(assess(resource, world, NOW + timedelta(minutes=minutes))), "its volume is marked: it has begun"


@pytest.mark.parametrize(
    ("at", "stays"),
    [
        ((SURVIVES, UNREACHABLE, LOST), True),
        ((UNREACHABLE, LOST, LOST), True),
        ((SURVIVES, SURVIVES, LOST), False),
        ((SURVIVES, LOST, replace(DOWN, ready=True)), False),
    ],
)
def test_loss_that_is_uncertain_for_a_moment_keeps_its_token(at: tuple[At, ...], stays: bool) -> None:
    resource, _ = confirmed(SURVIVES, LOST, LOST, token="000000000000")
    world = seen(resource, *at, leader=None, known=False, replicas=3)
    recovery = report(assess(resource, world))
    assert (recovery is not None) is stays
    assert not executing(assess(resource, world))
    if recovery is not None:
        assert recovery["token"] == resource.reported["recovery"]["token"]
    assert report(assess(resource, world, NOW + timedelta(minutes=61))) is None


def test_confirmed_recovery_stops_the_members() -> None:
    resource, world = confirmed(SURVIVES, LOST, LOST)
    assert replicas(assess(resource, world)) == 0
    step = recover(resource, world)
    assert (step.actions, step.reason) == ((), "Recovering")
    made = plan(resource, world)
    (stateful_set,) = [getattr(act, "obj", {}) for act in made.actions if getattr(act, "kind", None) == STATEFUL_SET]
    assert stateful_set["spec"]["replicas"] == 0
    assert acts(made.actions) == []


def test_quorum_that_returns_before_members_are_stopped_ends_the_recovery() -> None:
    """The node or the volume of demo-1 is back, so a quorum exists again."""
    resource, _ = confirmed(SURVIVES, LOST, LOST)
    back = seen(resource, VOTER, VOTER, LOST)
    assert replicas(assess(resource, back)) is None
    assert not executing(assess(resource, back))
    assert report(assess(resource, back)) is None
    assert recover(resource, back) == Step()


def test_further_loss_after_a_confirmation_needs_another_confirmation() -> None:
    resource, _ = confirmed(SURVIVES, SURVIVES, LOST, LOST, LOST)
    worse = seen(resource, LOST, SURVIVES, LOST, LOST, LOST, leader=None, known=False, replicas=5)
    assert replicas(assess(resource, worse)) is None
    step = recover(resource, worse)
    assert step.reason == "QuorumLost"
    assert "its present value is of an earlier loss" in step.message


STOPPED = At(up=False, pod=False)


def stopped(
    pod: Obj | None = None, *, marked: bool = True, kept: list[str] | None = None, **spec: Any
) -> tuple[EtcdCluster, Observed]:
    """Return a cluster whose members are stopped for a confirmed recovery.

    Args:
        marked: whether the claim of the survivor is marked with the token.
        kept: other members with data, which the status records.
    """
    given: dict[str, Any] = {"recovery": {"confirm": RECORDED["token"]}, **spec}
    given = {key: value for key, value in given.items() if value is not None}
    resource = cluster(3, status={"recovery": RECORDED | ({"kept": kept} if kept else {})}, **given)
    world = seen(resource, STOPPED, STOPPED, STOPPED, leader=None, known=False, replicas=0)
    if marked:
        volume = world.instances[0].volume
        assert volume is not None
        volume["metadata"]["annotations"] = {object_names.SET_ASIDE: MARK}
    return resource, replace(world, job_pods={recovery_pod_name(resource): pod} if pod else {})


def recovery_pod_obj(phase: str, *, token: str = RECORDED["token"], ended: str = "", message: str = "") -> Obj:  # type: ignore[assignment]
    """Return the pod of a recovery, which the API server created at 11:59, and its node started at `:59` of an hour."""
    terminated = {"exitCode": 1, "message": message, "finishedAt": ended}
    containers = [{"name": "seal", "state": {"terminated": terminated}}] if ended else []
    return {
        "kind": "Pod",
        "metadata": {
            "name": "demo-recovery",
            "uid": "p",
            "annotations": {pods.TOKEN: token},
            "creationTimestamp": "2026-01-01T11:59:00Z",
        },
        "status": {
            "phase": phase,
            "containerStatuses": containers,
            "startTime": f"{ended[:14]}59:00Z" if ended else None,
        },
    }


def test_recovery_pod_of_another_owner_is_neither_used_nor_deleted_and_no_member_starts() -> None:
    """W10: a pod with the labels, the name and the token was taken for a recovery that had succeeded."""
    resource, world = stopped()
    pod = recovery_pod_obj("Succeeded")
    other = {"apiVersion": "batch/v1", "kind": "Job", "name": "copy", "uid": "j", "controller": True}
    world = replace(world, stray_pods={"demo-recovery": pod})
    for owners, named in (([], "is not controlled by this EtcdCluster."), ([other], "but by Job copy (uid j).")):
        pod["metadata"]["ownerReferences"] = owners
        for of in (resource, stopped(recovery=None)[0]):  # confirmed, and withdrawn
            made = plan(of, world)
            kinds = {action.obj["kind"] for action in made.actions if isinstance(action, steps.Apply)}
            assert (made.verdict.progress, made.verdict.reason) == (verdict.Progress.BLOCKED, "ForeignObject")
            assert made.verdict.message.startswith("Pod demo-recovery")
            assert named in made.verdict.message
            assert acts(made.actions) == [], "no pod is deleted, and no volume is marked"
            assert not {"Pod", "StatefulSet"}.intersection(kinds)


def test_recovery_pod_of_a_deleted_resource_of_this_name_is_waited_for() -> None:
    resource, world = stopped()
    pod = recovery_pod_obj("Running")
    pod["metadata"]["ownerReferences"] = [object_names.owner(resource, "").reference() | {"uid": "former"}]
    made = plan(resource, replace(world, stray_pods={"demo-recovery": pod}))
    assert (made.verdict.progress, made.verdict.reason) == (verdict.Progress.WAITING, "ForeignObject")
    assert acts(made.actions) == []


def test_recovery_pod_of_another_owner_does_not_disturb_a_cluster_with_a_quorum() -> None:
    resource = cluster(3)
    world = replace(seen(resource, VOTER, VOTER, VOTER), stray_pods={"demo-recovery": recovery_pod_obj("Running")})
    assert plan(resource, world).verdict.done


def test_volumes_of_survivors_are_marked_before_a_new_cluster_is_created() -> None:
    resource, world = stopped(marked=False, kept=["demo-2"])
    step = recover(resource, world)
    marks = {}
    for action in step.actions:
        assert isinstance(action, steps.Patch)
        marks[action.obj["metadata"]["name"]] = action.change["metadata"]["annotations"]
    assert marks == {"data-demo-0": {object_names.SET_ASIDE: MARK}, "data-demo-2": {object_names.KEPT: MARK}}


def marked(world: Observed, number: int, **annotations: str) -> None:
    volume = world.instances[number].volume
    assert volume is not None
    names = {"kept": object_names.KEPT, "set_aside": object_names.SET_ASIDE}
    volume["metadata"]["annotations"] = {names[key]: text for key, text in annotations.items()}


def changed_marks(step: Step) -> dict[str, Obj]:
    found = [action for action in step.actions if isinstance(action, steps.Patch)]
    return {action.obj["metadata"]["name"]: action.change["metadata"]["annotations"] for action in found}


def test_mark_of_an_earlier_recovery_stays_and_that_of_a_withdrawn_one_is_removed() -> None:
    """X8: the data of the earlier one is on the volume until a user releases it; the withdrawn one left none."""
    resource, world = stopped(marked=False, kept=["demo-2"])
    marked(world, 0, set_aside=f"earlier@00000000000000b0,withdrawn@{CLUSTER_ID:016x}")
    marked(world, 2, set_aside=f"withdrawn@{CLUSTER_ID:016x}")
    assert changed_marks(recover(resource, world)) == {
        "data-demo-0": {object_names.SET_ASIDE: f"earlier@00000000000000b0,{MARK}"},
        "data-demo-2": {object_names.SET_ASIDE: None, object_names.KEPT: MARK},
    }


def test_marks_of_a_withdrawn_recovery_are_removed_once_a_quorum_answers() -> None:
    resource = cluster(3)
    world = seen(resource, VOTER, VOTER, VOTER)
    marked(world, 0, set_aside=f"earlier@00000000000000b0,withdrawn@{CLUSTER_ID:016x}")
    marked(world, 1, kept=f"withdrawn@{CLUSTER_ID:016x}")
    assert changed_marks(clear_marks(assess(resource, world))) == {
        "data-demo-0": {object_names.SET_ASIDE: "earlier@00000000000000b0"},
        "data-demo-1": {object_names.KEPT: None},
    }


def test_marks_stay_while_the_recovery_may_have_succeeded() -> None:
    resource = cluster(3)
    world = seen(resource, VOTER, VOTER, VOTER)
    marked(world, 1, set_aside=MARK)
    pod = {recovery_pod_name(resource): recovery_pod_obj("Succeeded")}
    assert clear_marks(assess(resource, replace(world, job_pods=pod))) == Step()
    stray = clear_marks(assess(resource, replace(world, stray_pods=pod)))
    assert (stray.actions, stray.reason, stray.progress) == ((), "ForeignObject", verdict.Progress.PROGRESSING)
    assert "Pod demo-recovery is not controlled by this EtcdCluster." in stray.message
    assert clear_marks(assess(resource, seen(resource, SURVIVES, LOST, LOST, leader=None, known=False))) == Step()
    instance = world.instances[2]
    assert instance.status is not None
    made = successor_of(resource, {"survivor": "demo-1", "token": RECORDED["token"]})
    instances = (*world.instances[:2], replace(instance, status=replace(instance.status, cluster_id=made)))
    assert clear_marks(assess(resource, replace(world, instances=instances))) == Step()


def test_recovery_waits_until_every_member_with_data_has_stopped() -> None:
    """X9: a survivor that still runs may be part of a quorum again, which accepts writes."""
    resource, _ = stopped(marked=False, kept=["demo-2"])
    late = seen(resource, STOPPED, STOPPED, SURVIVES, leader=None, known=False, replicas=0)
    step = recover(resource, late)
    assert (step.actions, "stopping demo-2" in step.message) == ((), True)
    late = seen(resource, STOPPED, DOWN, STOPPED, leader=None, known=False, replicas=0)
    assert recover(resource, late).actions, "the pod of a lost member may never report its end"


def test_no_recovery_is_offered_while_a_survivor_applies_its_log() -> None:
    resource, world = without_quorum(SURVIVES, SURVIVES, LOST, LOST, LOST)
    assert report(assess(resource, world)) is not None
    instance = world.instances[1]
    assert instance.status is not None
    behind = replace(instance, status=replace(instance.status, raft_index=1001))
    world = replace(world, instances=(world.instances[0], behind, *world.instances[2:]))
    assert report(assess(resource, world)) is None
    step = recover(resource, world)
    assert (step.reason, step.actions) == ("QuorumLost", ())
    assert "demo-1: still applying the log" in step.message


@pytest.mark.parametrize(
    ("version", "image"), [("3.7.0", "v3.6.8"), ("3.5.26", "v3.6.8"), ("3.6.11", "v3.6.11"), ("3.6.8", "v3.6.8")]
)
def test_recovery_during_a_version_change_uses_the_version_that_the_member_runs(version: str, image: str) -> None:
    resource, world = stopped(version=version)
    _, before = stopped(version="3.6.8")
    made = plan(resource, replace(world, stateful_set=before.stateful_set))
    applied = [action.obj for action in made.actions if isinstance(action, steps.Apply)]
    (pod,) = [obj for obj in applied if obj["kind"] == "Pod"]
    assert pod["spec"]["initContainers"][1]["image"] == f"example.com/etcd:{image}"
    (members,) = [obj for obj in applied if obj["kind"] == "StatefulSet"]
    assert members["spec"]["template"]["spec"]["containers"][0]["image"] == f"example.com/etcd:{image}"


def test_recovery_makes_a_new_cluster_of_the_survivors_data() -> None:
    resource, world = stopped()
    assert replicas(assess(resource, world)) == 0
    (act,) = recover(resource, world).actions
    assert isinstance(act, steps.Apply)
    assert act.obj["metadata"]["name"] == recovery_pod_name(resource)
    assert annotation(act.obj, pods.TOKEN) == RECORDED["token"]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in act.obj["spec"]["volumes"]]
    assert claims == ["data-demo-0"]
    (restore,) = [made for made in act.obj["spec"]["initContainers"] if "--skip-hash-check=true" in made["args"]]
    assert f"--initial-cluster-token={UID}-{RECORDED['token']}" in restore["args"]


def test_volume_is_not_changed_while_the_survivors_pod_exists() -> None:
    resource, world = stopped()
    instance = replace(world.instances[0], pod_obj={"metadata": {"name": "demo-0"}})
    assert recover(resource, replace(world, instances=(instance, *world.instances[1:]))).actions == ()


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_members_stay_stopped_while_the_recovery_pod_runs(phase: str) -> None:
    resource, world = stopped(recovery_pod_obj(phase))
    step = recover(resource, world)
    assert (step.actions, step.reason, replicas(assess(resource, world))) == ((), "Recovering", 0)
    assert report(assess(resource, world)) == RECORDED


@pytest.mark.parametrize("hour", [9, 11, 16], ids="{}:00 on the node".format)
def test_failed_recovery_reports_its_reason_and_is_retried_later(hour: int) -> None:
    at = f"2026-01-01T{hour:02}:59"
    resource, world = stopped(recovery_pod_obj("Failed", ended=f"{at}:45Z", message="no space left"))
    step = recover(resource, world)
    assert (step.actions, step.reason, step.warning) == ((), "RecoveryFailed", True)
    assert "no space left" in step.message
    resource, world = stopped(recovery_pod_obj("Failed", ended=f"{at}:30Z", message="no space left"))
    assert acts(recover(resource, world).actions) == ["delete Pod demo-recovery (p)"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_pause_after_a_failed_recovery_does_not_depend_on_the_clock_of_the_api_server(hours: int) -> None:
    """E7: with a clock that is ahead, the cluster was down for an hour longer."""
    resource, world = stopped()
    [pod] = [act.obj for act in recover(resource, world).actions if isinstance(act, steps.Apply)]
    failed = recovery_pod_obj("Failed", ended="2026-01-01T09:59:30Z", message="no space left")
    created = (NOW + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
    failed["metadata"] |= {"annotations": pod["metadata"]["annotations"], "creationTimestamp": created}
    resource, world = stopped(failed)
    later = {seconds: assess(resource, world, NOW + timedelta(seconds=seconds)) for seconds in (35, 61)}
    assert [acts(recover_quorum(each).actions) for each in later.values()] == [[], ["delete Pod demo-recovery (p)"]]


def test_pod_of_a_former_recovery_is_deleted_first() -> None:
    resource, world = stopped(recovery_pod_obj("Succeeded", token="another"))
    assert acts(recover(resource, world).actions) == ["delete Pod demo-recovery (p)"]
    assert replicas(assess(resource, world)) == 0


def test_withdrawn_confirmation_starts_the_members_again() -> None:
    resource, world = stopped(recovery_pod_obj("Running"), recovery=None)
    assert replicas(assess(resource, world)) == 0, "the recovery pod may still mount the volume"
    assert acts(recover(resource, world).actions) == ["delete Pod demo-recovery (p)"]
    resource, world = stopped(recovery=None)
    assert replicas(assess(resource, world)) == 3
    assert not executing(assess(resource, world))


@pytest.mark.parametrize("still", [{"confirm": RECORDED["token"]}, None])
def test_only_the_survivor_starts_once_the_data_is_recovered(still: Obj | None) -> None:
    """Holds whether or not the confirmation is still in the spec: the recovery cannot be undone."""
    resource, world = stopped(recovery_pod_obj("Succeeded"), recovery=still)
    assert replicas(assess(resource, world)) == 1
    step = recover(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "Recovering", verdict.Progress.PROGRESSING)
    assert report(assess(resource, world)) == RECORDED


def test_survivor_keeps_its_ordinal() -> None:
    resource = cluster(3, status={"recovery": {**RECORDED, "survivor": "demo-2"}})
    world = seen(resource, STOPPED, STOPPED, STOPPED, leader=None, known=False, replicas=0)
    world = replace(world, job_pods={recovery_pod_name(resource): recovery_pod_obj("Succeeded")})
    assert replicas(assess(resource, world)) == 3


def alone(resource: EtcdCluster, cluster_id: int) -> Observed:
    """Return a world in which the survivor is the only member of cluster `cluster_id`."""
    world = seen(resource, At(id=0x77), replace(STOPPED, member=False), replace(STOPPED, member=False))
    instance = world.instances[0]
    assert instance.status is not None
    reported = replace(instance.status, cluster_id=cluster_id, member_id=0x77, leader=0x77)
    return replace(world, cluster_id=cluster_id, instances=(replace(instance, status=reported), *world.instances[1:]))


def test_only_the_recovered_cluster_is_recorded() -> None:
    resource, _ = stopped()
    step = record_cluster(assess(resource, alone(resource, successor(resource))))
    assert (step.reason, step.requeue) == ("Recording", 0)
    assert record_cluster(assess(resource, alone(resource, 0x123))).reason == "AnotherCluster"
    made = plan(resource, alone(resource, successor(resource)))
    assert made.status["clusterID"] == f"{successor(resource):016x}"
    assert "recovery" not in made.status
    assert plan(resource, alone(resource, 0x123)).status["clusterID"] == f"{CLUSTER_ID:016x}"


def test_recovery_pod_is_deleted_and_the_token_ignored_afterwards() -> None:
    resource, _ = stopped()
    new = f"{successor(resource):016x}"
    members = [{"name": "demo-0", "id": f"{0x77:016x}", "volume": "disk-0"}]
    after = cluster(3, status={"clusterID": new, "members": members}, recovery={"confirm": RECORDED["token"]})
    world = alone(after, successor(resource))
    world = replace(world, job_pods={recovery_pod_name(after): recovery_pod_obj("Succeeded")})
    assert acts(recover(after, world).actions) == ["delete Pod demo-recovery (p)"]
    assert recover(after, replace(world, job_pods={})) == Step()
    assert replicas(assess(after, world)) is None


def test_ids_of_a_new_cluster_are_computed_as_etcd_does() -> None:
    """The expected ids are those of an etcd 3.6.8; 3.4 to 3.7 and their restores compute the same."""
    ids = bootstrap.ids("http://127.0.0.1:23500", "u-1-abcdefabcdef")
    assert ids == (0x404A778CE9321B38, 0x0A83E1BAA8B2FF6C)


@given(
    at=st.lists(st.sampled_from([SURVIVES, UNREACHABLE, LOST, MOVED, STOPPED]), min_size=1, max_size=7),
    confirm=st.sampled_from(["right", "wrong", "none"]),
)
def test_members_stop_only_for_the_right_token_and_a_lost_majority(at: list[At], confirm: str) -> None:
    resource, world = without_quorum(*at)
    recovery = report(assess(resource, world))
    lost, up = sum(spot in (LOST, MOVED) for spot in at), sum(spot is SURVIVES for spot in at)
    assert (recovery is not None) == (len(at) - lost < len(at) // 2 + 1 and up == len(at) - lost > 0)
    given: Any = {"right": recovery["token"] if recovery else "none", "wrong": "wrong"}.get(confirm)
    more: dict[str, Any] = {} if confirm == "none" else {"recovery": {"confirm": given}}
    resource, world = without_quorum(*at, status={"recovery": recovery} if recovery else None, **more)
    assert executing(assess(resource, world)) == (recovery is not None and confirm == "right")
    assert recover(resource, world).actions == ()


@pytest.mark.parametrize(("revision", "same"), [(10, True), (11, False)])
def test_writes_after_a_loss_was_found_show_that_it_ended(revision: int, *, same: bool) -> None:
    resource, world = without_quorum(SURVIVES, LOST, LOST)
    offered = report(assess(resource, world))
    assert offered is not None
    resource, world = without_quorum(SURVIVES, LOST, LOST, status={"recovery": offered})
    instance = world.instances[0]
    assert instance.status is not None
    written = replace(instance, status=replace(instance.status, revision=revision))
    again = report(assess(resource, replace(world, instances=(written, *world.instances[1:]))))
    assert again is not None
    assert (again["token"] == offered["token"]) is same


def test_loss_stays_observed_while_members_stop() -> None:
    """A pod on a dead node may terminate for hours."""
    resource, world = stopped(marked=False)
    later = NOW + RENEWAL
    renewed = report(assess(resource, world, later))
    assert renewed is not None
    assert renewed | {"observed": ""} == RECORDED | {"observed": ""}
    assert renewed["observed"] == later.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_confirmed_recovery_ends_when_it_becomes_unknown_what_is_lost() -> None:
    """Stopping all members by hand, to mount disks, does not begin it."""
    resource, seen = without_quorum(SURVIVES, LOST, LOST)
    offered = report(assess(resource, seen))
    assert offered
    confirmed = {"confirm": offered["token"]}
    resource, seen = without_quorum(SURVIVES, LOST, UNREACHABLE, status={"recovery": offered}, recovery=confirmed)
    left = report(assess(resource, seen))
    status = {"recovery": left} if left else {}
    resource, seen = without_quorum(STOPPED, STOPPED, STOPPED, status=status, replicas=0, recovery=confirmed)
    assert not executing(assess(resource, seen))
