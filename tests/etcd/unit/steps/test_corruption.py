"""Data corruption: which member is replaced, and when no member is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import CORRUPT, Alarm, HashKV
from operators.etcd.membership.corruption import suspected
from operators.etcd.objects.pod import INCONSISTENT
from operators.etcd.state.observed import Observed
from operators.etcd.steps.corruption import replace_corrupt_member
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.etcd.unit.world import DOWN, VOTER, At, acts, assess, cluster, member_id, plan, seen

ANNOUNCED = {"conditions": [{"type": "Ready", "status": "False", "reason": "ReplacingCorruptMember", "message": "…"}]}


def hashed(
    *hashes: int | None, alarm: int | None = 0, at: tuple[At, ...] = (), status: Any = None, **more: Any
) -> tuple[EtcdCluster, Observed]:
    """Return a cluster whose voters report `hashes` and whose CORRUPT alarm names a member (None: no alarm)."""
    resource = cluster(len(hashes), recorded=range(len(hashes)), status=ANNOUNCED if status is None else status)
    world = seen(resource, *(at or (VOTER,) * len(hashes)), **more)
    known = {member_id(n): HashKV(value, 10, 5) for n, value in enumerate(hashes) if value is not None}
    alarms = () if alarm is None else (Alarm(alarm, CORRUPT),)
    return resource, replace(world, hashes=known, alarms=alarms)


def ended(
    world: Observed, number: int, message: str = f'"error":"a0 {INCONSISTENT}"', *, runs: bool = False
) -> Observed:
    """Return `world` in which etcd in pod `number` has exited with a message, and runs again or not."""
    waiting: Obj = {"running": {}} if runs else {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    container: Obj = {
        "name": "etcd",
        "ready": False,
        "state": waiting,
        "lastState": {"terminated": {"message": message}},
    }
    instances = tuple(
        replace(instance, pod_obj={**(instance.pod_obj or {}), "status": {"containerStatuses": [container]}})
        if instance.number == number
        else instance
        for instance in world.instances
    )
    return replace(world, instances=instances)


def replace_corrupt(resource: EtcdCluster, world: Observed) -> Step:
    return replace_corrupt_member(assess(resource, world))


def test_hashes_are_not_compared_without_a_corrupt_alarm() -> None:
    resource, world = hashed(1, 1, 2, alarm=None)
    assert not suspected(world)
    assert replace_corrupt(resource, world) == Step()


def test_corrupt_alarm_in_the_status_of_any_member_raises_suspicion() -> None:
    _, world = hashed(1, 1, 1, alarm=None)
    instance = world.instances[1]
    assert instance.status is not None
    alarmed = replace(instance, status=replace(instance.status, errors=("memberID:5 alarm:CORRUPT ",)))
    assert suspected(replace(world, instances=(world.instances[0], alarmed, world.instances[2])))


@pytest.mark.parametrize("named", [0, member_id(0), member_id(1), member_id(2), 0xDEAD])
def test_differing_member_is_removed_whichever_member_the_alarm_names(named: int) -> None:
    resource, world = hashed(1, 2, 1, alarm=named)
    step = replace_corrupt(resource, world)
    assert acts(step.actions) == ["remove demo-1"]
    assert "demo-1 differs from the data that 2 of 3 voters agree on" in step.message


def test_removal_is_announced_in_the_status_first() -> None:
    resource, world = hashed(1, 2, 1, status={})
    step = replace_corrupt(resource, world)
    assert (step.actions, step.requeue, step.warning) == ((), 0, True)


def test_corrupt_leader_hands_over_first() -> None:
    resource, world = hashed(2, 1, 1, leader=0)
    assert acts(replace_corrupt(resource, world).actions) == ["move the leadership to demo-1"]


@pytest.mark.parametrize(
    "hashes",
    [(1, 2, 3), (1, 2), (1, 1, 2, 2), (1, 2, None)],
    ids=["all differ", "two voters differ", "equal halves", "one unreachable"],
)
def test_no_member_is_removed_without_a_majority_of_equal_hashes(hashes: tuple[int | None, ...]) -> None:
    at = tuple(VOTER if value else DOWN for value in hashes)
    resource, world = hashed(*hashes, at=at)
    step = replace_corrupt(resource, world)
    assert step.actions == ()
    assert (step.reason, step.progress) == ("CorruptionUnclear", Progress.BLOCKED)
    assert "demo-0: hash 00000001 at revision 10, compacted at 5" in step.message


def test_later_steps_run_while_too_few_members_answer() -> None:
    resource, world = hashed(1, None, None, at=(VOTER, DOWN, DOWN))
    step = replace_corrupt(resource, world)
    assert (step.actions, step.progress) == ((), Progress.PROGRESSING)


def test_hash_at_another_compaction_revision_is_not_compared() -> None:
    resource, world = hashed(1, 1, 2)
    hashes = {**world.hashes, member_id(2): HashKV(2, 10, 4)}
    step = replace_corrupt(resource, replace(world, hashes=hashes))
    assert (step.actions, step.progress) == ((), Progress.PROGRESSING)
    assert "demo-2 could not be compared yet" in step.message


def test_corrupt_member_is_not_removed_while_another_is_down() -> None:
    resource, world = hashed(1, 1, 2, 1, None, at=(VOTER, VOTER, VOTER, VOTER, DOWN))
    step = replace_corrupt(resource, world)
    assert (step.actions, step.reason) == ((), "CorruptMemberBlocked")
    assert "demo-4 is down" in step.message


def test_two_corrupt_members_of_five_are_removed_one_at_a_time() -> None:
    resource, world = hashed(1, 2, 1, 3, 1)
    assert acts(replace_corrupt(resource, world).actions) == ["remove demo-1"]
    resource, world = hashed(1, 1, 3, 1)
    assert acts(replace_corrupt(resource, world).actions) == ["remove demo-2"]


def test_alarm_is_disarmed_when_all_voters_agree() -> None:
    resource, world = hashed(1, 1, alarm=member_id(2))
    assert acts(replace_corrupt(resource, world).actions) == [f"disarm CORRUPT of {member_id(2):016x}"]


def test_alarm_is_not_disarmed_until_all_voters_are_compared() -> None:
    resource, world = hashed(1, 1, None, at=(VOTER, VOTER, DOWN))
    step = replace_corrupt(resource, world)
    assert (step.actions, step.reason, step.progress) == ((), "CorruptionUnclear", Progress.PROGRESSING)


def test_member_that_exits_as_inconsistent_is_replaced_if_its_peers_agree() -> None:
    resource, world = hashed(1, None, 1, at=(VOTER, DOWN, VOTER), alarm=None)
    world = ended(world, 1)
    assert suspected(world)
    assert acts(replace_corrupt(resource, world).actions) == ["remove demo-1"]


def test_member_that_runs_again_is_not_replaced_for_its_last_exit() -> None:
    """The peers may have been the corrupt ones; a member answers once it has read its data."""
    resource, world = hashed(1, None, 1, at=(VOTER, DOWN, VOTER), alarm=None)
    world = ended(world, 1, runs=True)
    assert not suspected(world)
    assert acts(replace_corrupt(resource, world).actions) == []


def test_member_that_exits_as_inconsistent_is_kept_if_its_peers_differ() -> None:
    resource, world = hashed(1, None, 2, at=(VOTER, DOWN, VOTER), alarm=None)
    step = replace_corrupt(resource, ended(world, 1))
    assert (step.actions, step.reason) == ((), "CorruptionUnclear")
    assert "demo-1: exits because its data differs from its peers" in step.message


def test_member_that_exits_for_another_reason_is_not_suspected() -> None:
    _, world = hashed(1, None, 1, at=(VOTER, DOWN, VOTER), alarm=None)
    assert not suspected(ended(world, 1, "no space left on device"))


def test_learner_that_the_alarm_names_is_removed_if_voters_agree() -> None:
    resource, world = hashed(1, 1, None, at=(VOTER, VOTER, At(learner=True)), alarm=member_id(2))
    assert acts(replace_corrupt(resource, world).actions) == ["remove demo-2"]


def test_single_member_is_never_removed() -> None:
    resource, world = hashed(1, alarm=member_id(0))
    assert acts(replace_corrupt(resource, world).actions) == [f"disarm CORRUPT of {member_id(0):016x}"]


def test_hashes_are_not_compared_without_a_quorum() -> None:
    resource, world = hashed(1, 2, 1, known=False)
    assert replace_corrupt(resource, world) == Step()


def test_replacement_of_a_corrupt_member_is_the_only_action_of_the_plan() -> None:
    resource, world = hashed(1, 2, 1, alarm=member_id(1))
    made = plan(resource, world)
    assert acts(made.actions) == ["remove demo-1"]
    assert made.verdict.reason == "ReplacingCorruptMember"


@given(
    hashes=st.lists(st.one_of(st.none(), st.integers(1, 3)), min_size=1, max_size=7),
    named=st.integers(0, 8),
    leader=st.integers(0, 6),
)
def test_member_that_agrees_with_the_majority_is_never_removed(
    hashes: list[int | None], named: int, leader: int
) -> None:
    at = tuple(DOWN if value is None else VOTER for value in hashes)
    resource, world = hashed(*hashes, at=at, alarm=member_id(named), leader=leader % len(hashes))
    for act in acts(replace_corrupt(resource, world).actions):
        counts = {value: hashes.count(value) for value in hashes if value is not None}
        most = max(counts, key=lambda value: counts[value])
        assert counts[most] >= len(hashes) // 2 + 1
        if act.startswith("remove"):
            number = int(act.removeprefix("remove demo-"))
            assert hashes[number] not in (None, most)
            remaining = len(hashes) - 1
            assert counts[most] >= remaining // 2 + 1, "the agreeing voters are a quorum of the remaining ones"
            assert None not in hashes, "no voter is removed while another is down"
        elif act.startswith("disarm"):
            assert set(hashes) == {most}
