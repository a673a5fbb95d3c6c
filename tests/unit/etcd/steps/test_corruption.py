"""Members whose data differs: which one is replaced, and when nobody is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.client.server import CORRUPT, Alarm, HashKV
from operators.etcd.membership.corruption import INCONSISTENT, suspected
from operators.etcd.observe import Observed
from operators.etcd.steps.corruption import replace_corrupt_member
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.unit.etcd.world import DOWN, NOW, VOTER, At, acts, cluster, member_id, plan, seen

ANNOUNCED = {"conditions": [{"type": "Ready", "status": "False", "reason": "ReplacingCorruptMember", "message": "…"}]}


def hashed(
    *hashes: int | None, alarm: int | None = 0, at: tuple[At, ...] = (), status: Any = None, **more: Any
) -> tuple[EtcdCluster, Observed]:
    """A cluster with an alarm that names a member (None: no alarm), and so many voters with these hashes."""
    resource = cluster(len(hashes), recorded=range(len(hashes)), status=ANNOUNCED if status is None else status)
    world = seen(resource, *(at or (VOTER,) * len(hashes)), **more)
    known = {member_id(n): HashKV(said, 10, 5) for n, said in enumerate(hashes) if said is not None}
    alarms = () if alarm is None else (Alarm(alarm, CORRUPT),)
    return resource, replace(world, hashes=known, alarms=alarms)


def ended(world: Observed, number: int, words: str = f'"error":"a0 {INCONSISTENT}"') -> Observed:
    """The same, but the pod at a place ended with these words."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    container: Obj = {"name": "etcd", "ready": False, "state": waiting, "lastState": {"terminated": {"message": words}}}
    instances = tuple(
        replace(instance, pod_obj={**(instance.pod_obj or {}), "status": {"containerStatuses": [container]}})
        if instance.number == number
        else instance
        for instance in world.instances
    )
    return replace(world, instances=instances)


def mend(resource: EtcdCluster, world: Observed) -> Step:
    return replace_corrupt_member(resource, Assessment.of(resource, world), NOW)


def test_nothing_is_asked_or_done_while_nobody_complains() -> None:
    resource, world = hashed(1, 1, 2, alarm=None)
    assert not suspected(world)
    assert mend(resource, world) == Step()


def test_an_alarm_in_any_members_status_is_reason_enough_to_ask() -> None:
    _, world = hashed(1, 1, 1, alarm=None)
    instance = world.instances[1]
    assert instance.status is not None
    told = replace(instance, status=replace(instance.status, errors=("memberID:5 alarm:CORRUPT ",)))
    assert suspected(replace(world, instances=(world.instances[0], told, world.instances[2])))


@pytest.mark.parametrize("named", [0, member_id(0), member_id(1), member_id(2), 0xDEAD])
def test_the_one_that_differs_is_removed_whomever_the_alarm_names(named: int) -> None:
    resource, world = hashed(1, 2, 1, alarm=named)
    step = mend(resource, world)
    assert acts(step.actions) == ["remove demo-1"]
    assert "demo-1 differs from the data that 2 of 3 voters agree on" in step.message


def test_that_a_member_is_removed_is_said_before_it_is_done() -> None:
    resource, world = hashed(1, 2, 1, status={})
    step = mend(resource, world)
    assert (step.actions, step.requeue, step.warning) == ((), 0, True)


def test_a_corrupt_leader_hands_over_first() -> None:
    resource, world = hashed(2, 1, 1, leader=0)
    assert acts(mend(resource, world).actions) == ["move the leadership to demo-1"]


@pytest.mark.parametrize(
    ("hashes", "why"), [((1, 2, 3), "three"), ((1, 2), "two"), ((1, 1, 2, 2), "halves"), ((1, 2, None), "silent")]
)
def test_without_a_majority_nothing_is_touched(hashes: tuple[int | None, ...], why: str) -> None:
    at = tuple(VOTER if said else DOWN for said in hashes)
    resource, world = hashed(*hashes, at=at)
    step = mend(resource, world)
    assert step.actions == ()
    assert (step.reason, step.progress) == ("CorruptionUnclear", Progress.BLOCKED)
    assert "demo-0: hash 00000001 at revision 10, compacted at 5" in step.message


def test_before_enough_members_answer_others_may_mend_them() -> None:
    resource, world = hashed(1, None, None, at=(VOTER, DOWN, DOWN))
    step = mend(resource, world)
    assert (step.actions, step.progress) == ((), Progress.PROGRESSING)


def test_a_hash_with_another_compaction_behind_it_proves_nothing() -> None:
    resource, world = hashed(1, 1, 2)
    hashes = {**world.hashes, member_id(2): HashKV(2, 10, 4)}
    step = mend(resource, replace(world, hashes=hashes))
    assert (step.actions, step.progress) == ((), Progress.PROGRESSING)
    assert "demo-2 could not be compared yet" in step.message


def test_a_corrupt_member_stays_while_another_is_down() -> None:
    resource, world = hashed(1, 1, 2, 1, None, at=(VOTER, VOTER, VOTER, VOTER, DOWN))
    step = mend(resource, world)
    assert (step.actions, step.reason) == ((), "CorruptMemberHeld")
    assert "demo-4 is down" in step.message


def test_of_two_corrupt_members_of_five_one_goes_at_a_time() -> None:
    resource, world = hashed(1, 2, 1, 3, 1)
    assert acts(mend(resource, world).actions) == ["remove demo-1"]
    resource, world = hashed(1, 1, 3, 1)
    assert acts(mend(resource, world).actions) == ["remove demo-2"]


def test_the_alarm_goes_when_all_voters_agree() -> None:
    resource, world = hashed(1, 1, alarm=member_id(2))
    assert acts(mend(resource, world).actions) == [f"disarm CORRUPT of {member_id(2):016x}"]


def test_the_alarm_stays_until_everybody_was_compared() -> None:
    resource, world = hashed(1, 1, None, at=(VOTER, VOTER, DOWN))
    step = mend(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "CorruptionUnclear", Progress.PROGRESSING)


def test_a_member_that_ends_over_its_peers_is_replaced_if_they_agree() -> None:
    resource, world = hashed(1, None, 1, at=(VOTER, DOWN, VOTER), alarm=None)
    world = ended(world, 1)
    assert suspected(world)
    assert acts(mend(resource, world).actions) == ["remove demo-1"]


def test_a_member_that_ends_over_its_peers_may_be_the_right_one() -> None:
    resource, world = hashed(1, None, 2, at=(VOTER, DOWN, VOTER), alarm=None)
    step = mend(resource, ended(world, 1))
    assert (step.actions, step.reason) == ((), "CorruptionUnclear")
    assert "demo-1: exits because its data differs from its peers" in step.message


def test_a_member_that_ended_for_another_reason_is_not_suspected() -> None:
    _, world = hashed(1, None, 1, at=(VOTER, DOWN, VOTER), alarm=None)
    assert not suspected(ended(world, 1, "no space left on device"))


def test_a_learner_that_the_alarm_names_is_removed_if_voters_agree() -> None:
    resource, world = hashed(1, 1, None, at=(VOTER, VOTER, At(learner=True)), alarm=member_id(2))
    assert acts(mend(resource, world).actions) == ["remove demo-2"]


def test_a_single_member_is_never_removed() -> None:
    resource, world = hashed(1, alarm=member_id(0))
    assert acts(mend(resource, world).actions) == [f"disarm CORRUPT of {member_id(0):016x}"]


def test_without_a_quorum_nothing_is_judged() -> None:
    resource, world = hashed(1, 2, 1, known=False)
    assert mend(resource, world) == Step()


def test_in_the_whole_plan_nothing_else_is_done_meanwhile() -> None:
    resource, world = hashed(1, 2, 1, alarm=member_id(1))
    made = plan(resource, world)
    assert acts(made.actions) == ["remove demo-1"]
    assert made.verdict.reason == "ReplacingCorruptMember"


@given(
    hashes=st.lists(st.one_of(st.none(), st.integers(1, 3)), min_size=1, max_size=7),
    named=st.integers(0, 8),
    leader=st.integers(0, 6),
)
def test_whoever_agrees_with_the_majority_is_never_removed(hashes: list[int | None], named: int, leader: int) -> None:
    at = tuple(DOWN if said is None else VOTER for said in hashes)
    resource, world = hashed(*hashes, at=at, alarm=member_id(named), leader=leader % len(hashes))
    for act in acts(mend(resource, world).actions):
        counts = {said: hashes.count(said) for said in hashes if said is not None}
        most = max(counts, key=lambda said: counts[said])
        assert counts[most] >= len(hashes) // 2 + 1
        if act.startswith("remove"):
            number = int(act.removeprefix("remove demo-"))
            assert hashes[number] not in (None, most)
            remaining = len(hashes) - 1
            assert counts[most] >= remaining // 2 + 1, "those that agree are a quorum of those that remain"
            assert None not in hashes, "no voter is removed while another is down"
        elif act.startswith("disarm"):
            assert set(hashes) == {most}
