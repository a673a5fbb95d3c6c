"""Room on disk: states of the cluster, and what is done and said about each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import MIN_DEFRAGMENTED_BYTES, Assessment
from operators.etcd.client.server import CORRUPT, NOSPACE, Alarm
from operators.etcd.observe import Observed
from operators.etcd.steps.maintenance import (
    MAX_FULL_SHARE,
    defragment,
    last_defragmentation,
    quota,
    relieve_full_disk,
)
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.unit.etcd.world import DOWN, NOW, VOTER, At, acts, cluster, member_id, plan, seen

MIB = 2**20
QUOTA = 100 * MIB
ANNOUNCED = {"conditions": [{"type": "Ready", "status": "False", "reason": "OutOfSpace", "message": "…"}]}

Sizes = tuple[int, int]


def full(
    *sizes: Sizes,
    at: tuple[At, ...] = (),
    compacted: bool = True,
    status: Any = None,
    quota_now: int = QUOTA,
    **more: Any,
) -> tuple[EtcdCluster, Observed]:
    """A cluster whose quota is used up, with so many MiB in each member's file, and of these in use."""
    resource = cluster(len(sizes), recorded=range(len(sizes)), quotaBackendBytes=quota_now, status=status or ANNOUNCED)
    world = seen(resource, *(at or (VOTER,) * len(sizes)), compacted=compacted, **more)
    world = replace(world, alarms=(Alarm(member_id(0), NOSPACE), Alarm(member_id(1), NOSPACE)))
    return resource, sized(world, sizes)


def sized(world: Observed, sizes: tuple[Sizes, ...]) -> Observed:
    instances = []
    for instance, (size, in_use) in zip(world.instances, sizes, strict=True):
        said = instance.status and replace(instance.status, db_size=size * MIB, db_in_use=in_use * MIB)
        instances.append(replace(instance, status=said))
    return replace(world, instances=tuple(instances))


def with_quota(world: Observed, number: int, size: int) -> Observed:
    """The same, but a pod was made with another quota."""
    container = {"name": "etcd", "args": ["--name=x", f"--quota-backend-bytes={size}"]}
    instances = [
        replace(instance, pod_obj={**(instance.pod_obj or {}), "spec": {"containers": [container]}})
        if instance.number == number
        else instance
        for instance in world.instances
    ]
    return replace(world, instances=tuple(instances))


def relieve(resource: EtcdCluster, world: Observed) -> Step:
    return relieve_full_disk(resource, Assessment.of(resource, world), NOW)


def test_nothing_is_done_while_nobody_complains() -> None:
    resource, world = full((99, 99), (99, 99), (99, 99))
    assert relieve(resource, replace(world, alarms=())) == Step()


def test_history_is_forgotten_up_to_the_leaders_revision() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), compacted=False)
    step = relieve(resource, world)
    assert acts(step.actions) == ["compact up to revision 10"]
    assert "Compacting the history before revision 10" in step.message
    assert step.progress is Progress.WAITING


def test_that_history_is_forgotten_is_said_before_it_is_done() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), compacted=False, status={"conditions": []})
    step = relieve(resource, world)
    assert step.actions == ()
    assert step.requeue == 0
    assert (step.reason, "Compacting" in step.message) == ("OutOfSpace", True)


def test_followers_are_defragmented_one_by_one_and_the_leader_last() -> None:
    sizes = [(100, 10), (100, 10), (100, 10)]
    done = []
    for _ in sizes:
        resource, world = full(*sizes, leader=0)
        (act,) = acts(relieve(resource, world).actions)
        done.append(act)
        number = int(act[-1])
        sizes[number] = (10, 10)
    assert done == ["defragment demo-1", "defragment demo-2", "defragment demo-0"]


def test_one_whose_file_is_small_enough_is_left_alone() -> None:
    resource, world = full((100, 10), (20, 10), (100, 10), leader=2)
    assert acts(relieve(resource, world).actions) == ["defragment demo-0"]


def test_writes_are_let_in_once_every_file_has_room() -> None:
    resource, world = full((90, 10), (10, 10), (10, 10))
    assert acts(relieve(resource, world).actions) == [
        f"disarm NOSPACE of {member_id(0):016x}",
        f"disarm NOSPACE of {member_id(1):016x}",
    ]


def test_no_history_is_forgotten_where_there_is_room() -> None:
    resource, world = full((10, 10), (10, 10), (10, 10), compacted=False)
    assert [act.split()[0] for act in acts(relieve(resource, world).actions)] == ["disarm", "disarm"]


def test_what_is_in_use_and_does_not_fit_is_said_and_not_tried_again() -> None:
    resource, world = full((98, 98), (100, 98), (98, 98))
    step = relieve(resource, world)
    assert step.actions == ()
    assert step.reason == "QuotaExceeded"
    assert "uses 98 MiB of its quota of 100 MiB" in step.message
    assert "Delete keys, or raise spec.quotaBackendBytes (now 104857600)" in step.message
    assert step.warning
    assert step.progress is Progress.PROGRESSING, "raising the quota replaces pods, so the chain must go on"


def test_where_nobody_is_compact_yet_one_follower_is_defragmented_to_find_out() -> None:
    """What is said to be in use may have been freed by compaction: etcd counts that only once something is written."""
    resource, world = full((100, 98), (100, 97), (100, 98))
    assert acts(relieve(resource, world).actions) == ["defragment demo-1"]
    resource, world = full((100, 98), (97, 97), (100, 98))
    assert relieve(resource, world).reason == "QuotaExceeded"
    resource, world = full((100, 98), (10, 10), (100, 98))
    assert acts(relieve(resource, world).actions) == ["defragment demo-2"]


def test_once_it_was_told_that_live_data_fill_the_quota_nobody_is_defragmented_to_find_out() -> None:
    said = [{"type": "Ready", "status": "False", "reason": "QuotaExceeded", "message": "…"}]
    resource, world = full((100, 98), (100, 97), (100, 98), status={"conditions": said})
    assert relieve(resource, world).reason == "QuotaExceeded"


def test_one_that_says_to_be_compact_is_not_believed_if_another_has_less_in_use() -> None:
    resource, world = full((10, 10), (100, 100), (10, 10))
    assert acts(relieve(resource, world).actions) == ["defragment demo-1"]


def test_even_a_little_is_given_back_if_it_lets_writes_in() -> None:
    sizes = [(92, 89), (92, 89), (92, 89)]
    for number in (1, 2, 0):
        resource, world = full(*sizes)
        assert acts(relieve(resource, world).actions) == [f"defragment demo-{number}"]
        sizes[number] = (89, 89)
    resource, world = full(*sizes)
    assert len(acts(relieve(resource, world).actions)) == 2


def test_no_member_is_defragmented_while_another_is_down() -> None:
    resource, world = full((100, 10), (100, 10), (0, 0), at=(VOTER, VOTER, DOWN))
    step = relieve(resource, world)
    assert step.actions == ()
    assert "waits for demo-2" in step.message
    assert step.progress is Progress.PROGRESSING, "what mends the one that is down comes later in the chain"


def test_history_is_forgotten_though_a_member_is_down() -> None:
    resource, world = full((100, 99), (100, 99), (0, 0), at=(VOTER, VOTER, DOWN), compacted=False)
    assert acts(relieve(resource, world).actions) == ["compact up to revision 10"]


def test_a_member_that_is_down_keeps_nobody_from_writing_where_the_others_have_room() -> None:
    resource, world = full((10, 10), (10, 10), (0, 0), at=(VOTER, VOTER, DOWN))
    assert len(acts(relieve(resource, world).actions)) == 2


def test_a_full_learner_is_promoted_first_for_it_takes_no_defragmentation() -> None:
    learner = At(learner=True, ready=False)
    resource, world = full((10, 10), (10, 10), (100, 10), at=(VOTER, VOTER, learner))
    step = relieve(resource, world)
    assert step.actions == ()
    assert step.progress is Progress.PROGRESSING
    assert "once it is a healthy voter" in step.message


def test_a_quota_that_was_raised_counts_once_the_pods_have_it() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), quota_now=200 * MIB, compacted=False)
    former = with_quota(with_quota(with_quota(world, 0, QUOTA), 1, QUOTA), 2, 200 * MIB)
    step = relieve(resource, former)
    assert step.actions == (), "no history is forgotten for nothing"
    assert step.reason == "RaisingQuota"
    assert step.message.startswith("demo-0, demo-1: the former quota of 100 MiB is used up")
    assert [act.split()[0] for act in acts(relieve(resource, world).actions)] == ["disarm", "disarm"]


def test_a_single_member_is_relieved_too() -> None:
    resource, world = full((100, 10))
    assert acts(relieve(resource, world).actions) == ["defragment demo-0"]


def test_a_corrupt_cluster_is_not_compacted() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), compacted=False)
    assert relieve(resource, replace(world, alarms=(*world.alarms, Alarm(member_id(1), CORRUPT)))) == Step()


def test_the_pods_own_quota_counts_before_the_specs() -> None:
    resource, world = full((1, 1), (1, 1), (1, 1))
    instance = with_quota(world, 1, 12345).instances[1]
    assert quota(resource, instance) == 12345
    assert quota(resource, replace(instance, pod_obj=None)) == QUOTA


@given(
    live=st.integers(1, 120),
    extra=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 90)), min_size=1, max_size=5),
    leader=st.integers(0, 4),
    down=st.sets(st.integers(0, 4), max_size=2),
    compacted=st.booleans(),
)
def test_relief_ends_with_room_or_with_the_reason_why_there_is_none(
    live: int, extra: list[Sizes], leader: int, down: set[int], compacted: bool
) -> None:
    """Whatever members say to be in use beyond what is: each is defragmented once at most, and never two at a time."""
    now = [(live + more, live + more * told // 100) for more, told in extra]
    leader %= len(now)
    at = tuple(DOWN if number in down and number != leader else VOTER for number in range(len(now)))
    if 2 * sum(spot is VOTER for spot in at) <= len(at):
        return
    defragmented: list[int] = []
    for _ in range(len(now) + 3):
        resource, world = full(*now, at=at, leader=leader, compacted=compacted)
        step = relieve(resource, world)
        does = acts(step.actions)
        if not does:
            assert step.warning
            assert DOWN in at or (step.reason == "QuotaExceeded" and live > MAX_FULL_SHARE * 100)
            return
        if does[0].startswith("disarm"):
            assert all(size <= MAX_FULL_SHARE * 100 for (size, _), spot in zip(now, at, strict=True) if spot is VOTER)
            return
        assert len(does) == 1
        if does[0].startswith("compact"):
            assert not compacted
            compacted = True
            continue
        number = int(does[0].removeprefix("defragment demo-"))
        assert compacted
        assert DOWN not in at
        assert number not in defragmented
        defragmented.append(number)
        now[number] = (live, live)
    pytest.fail("it never ends")


# By the clock

NIGHTLY = {"schedule": "0 3 * * *", "threshold": 45}
LAST_NIGHT = "2026-01-01T03:00:00Z"
HANDLED = {"lastDefragmentation": "2025-12-31T03:00:00Z"}
BIG = MIN_DEFRAGMENTED_BYTES // MIB


def scheduled(*sizes: Sizes, at: tuple[At, ...] = (), status: Any = None, **more: Any) -> tuple[EtcdCluster, Observed]:
    given = HANDLED if status is None else status
    resource = cluster(len(sizes), recorded=range(len(sizes)), defragmentation=NIGHTLY, status=given)
    return resource, sized(seen(resource, *(at or (VOTER,) * len(sizes)), **more), sizes)


def test_at_its_time_the_first_fragmented_follower_gives_back_what_is_free() -> None:
    resource, world = scheduled((2 * BIG, BIG), (2 * BIG, BIG), (2 * BIG, 2 * BIG))
    step = defragment(resource, Assessment.of(resource, world), NOW)
    assert acts(step.actions) == ["defragment demo-1"]
    assert step.progress is Progress.DONE, "a healthy cluster stays Ready meanwhile"


def test_the_leader_is_defragmented_last() -> None:
    resource, world = scheduled((2 * BIG, BIG), (BIG, BIG), (BIG, BIG))
    assert acts(defragment(resource, Assessment.of(resource, world), NOW).actions) == ["defragment demo-0"]


@pytest.mark.parametrize("sizes", [(BIG - 1, 1), (2 * BIG, 2 * BIG), (2 * BIG, int(2 * BIG * 0.56))])
def test_small_or_compact_files_are_left_alone(sizes: Sizes) -> None:
    resource, world = scheduled(sizes, sizes, sizes)
    assert defragment(resource, Assessment.of(resource, world), NOW) == Step()


@pytest.mark.parametrize(
    ("at", "more"),
    [
        ((VOTER, VOTER, DOWN), {}),
        ((VOTER, VOTER, At(learner=True)), {}),
        ((VOTER, VOTER, VOTER), {"alarms": (Alarm(1, CORRUPT),)}),
        ((VOTER, VOTER, VOTER), {"known": False}),
    ],
)
def test_it_waits_while_anything_is_the_matter(at: tuple[At, ...], more: dict[str, Any]) -> None:
    resource, world = scheduled(*[(2 * BIG, BIG)] * 3, at=at, **more)
    assert defragment(resource, Assessment.of(resource, world), NOW) == Step()
    assert last_defragmentation(resource, Assessment.of(resource, world), NOW) == HANDLED["lastDefragmentation"], (
        "it is made up for later"
    )


def test_a_moment_is_dealt_with_once_nobody_is_left() -> None:
    resource, world = scheduled((2 * BIG, BIG), (BIG, BIG), (BIG, BIG))
    assert last_defragmentation(resource, Assessment.of(resource, world), NOW) == HANDLED["lastDefragmentation"]
    resource, world = scheduled((BIG, BIG), (BIG, BIG), (BIG, BIG))
    assert last_defragmentation(resource, Assessment.of(resource, world), NOW) == LAST_NIGHT


def test_a_moment_that_was_dealt_with_is_not_due_again() -> None:
    resource, world = scheduled(*[(2 * BIG, BIG)] * 3, status={"lastDefragmentation": LAST_NIGHT})
    assert defragment(resource, Assessment.of(resource, world), NOW) == Step()
    assert last_defragmentation(resource, Assessment.of(resource, world), NOW) == LAST_NIGHT


def test_of_many_missed_moments_one_is_made_up_for() -> None:
    resource, world = scheduled(*[(BIG, BIG)] * 3, status={"lastDefragmentation": "2025-06-01T03:00:00Z"})
    assert last_defragmentation(resource, Assessment.of(resource, world), NOW) == LAST_NIGHT


def test_a_new_schedule_waits_for_its_first_moment() -> None:
    resource, world = scheduled(*[(2 * BIG, BIG)] * 3, status={})
    assert defragment(resource, Assessment.of(resource, world), NOW) == Step()
    assert last_defragmentation(resource, Assessment.of(resource, world), NOW) == "2026-01-01T12:00:00Z"


def test_what_was_done_stays_told_when_the_schedule_goes() -> None:
    resource = cluster(status=HANDLED)
    assert (
        last_defragmentation(resource, Assessment.of(resource, seen(resource, VOTER, VOTER, VOTER)), NOW)
        == HANDLED["lastDefragmentation"]
    )
    resource = cluster()
    assert last_defragmentation(resource, Assessment.of(resource, seen(resource, VOTER, VOTER, VOTER)), NOW) is None


def test_a_night_of_three_members_in_the_whole_plan() -> None:
    """One after another, each once, the status moving on only at the end; then nothing until the next night."""
    sizes = [(2 * BIG, BIG)] * 3
    done, told = [], []
    status: dict[str, Any] = dict(HANDLED)
    for _ in range(5):
        resource, world = scheduled(*sizes, status=status)
        made = plan(resource, world)
        done += acts(made.actions)
        for act in acts(made.actions):
            sizes[int(act[-1])] = (BIG, BIG)
        told.append(made.status["lastDefragmentation"])
        status = {"lastDefragmentation": made.status["lastDefragmentation"]}
    assert done == ["defragment demo-1", "defragment demo-2", "defragment demo-0"]
    assert told == [HANDLED["lastDefragmentation"]] * 3 + [LAST_NIGHT] * 2


@given(
    passed=st.timedeltas(timedelta(0), timedelta(days=10)),
    fragmented=st.booleans(),
)
def test_the_told_moment_never_goes_back(passed: timedelta, fragmented: bool) -> None:
    sizes = (2 * BIG, BIG if fragmented else 2 * BIG)
    resource, world = scheduled(sizes, sizes, sizes)
    now = datetime(2025, 12, 31, 3, 0, tzinfo=UTC) + passed
    told = last_defragmentation(resource, Assessment.of(resource, world), now)
    assert told is not None
    assert HANDLED["lastDefragmentation"] <= told <= now.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert bool(defragment(resource, Assessment.of(resource, world), now).actions) == (
        fragmented and passed >= timedelta(days=1)
    )


def test_a_full_cluster_does_not_grow_until_there_is_room() -> None:
    _, world = full((98, 98), (98, 98), (98, 98))
    resource = cluster(5, recorded=range(3), quotaBackendBytes=QUOTA, status=ANNOUNCED)
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.verdict.reason == "GrowHeld"
    assert "the space quota is used up" in made.verdict.message
