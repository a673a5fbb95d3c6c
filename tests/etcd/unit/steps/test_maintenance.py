"""Maintenance of the database files: the space quota and scheduled defragmentation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import CORRUPT, NOSPACE, Alarm
from operators.etcd.facts.assessment import MIN_DEFRAGMENTED_BYTES
from operators.etcd.state.observed import Observed
from operators.etcd.steps.maintenance import (
    MAX_FULL_SHARE,
    defragment,
    last_defragmentation,
    quota,
    relieve_full_disk,
)
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.etcd.unit.world import DOWN, VOTER, At, acts, assess, cluster, member_id, plan, seen

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
    """Return a cluster with a NOSPACE alarm; `sizes` are MiB of each member's file, and MiB of it in use."""
    resource = cluster(len(sizes), recorded=range(len(sizes)), quotaBackendBytes=quota_now, status=status or ANNOUNCED)
    world = seen(resource, *(at or (VOTER,) * len(sizes)), compacted=compacted, **more)
    world = replace(world, alarms=(Alarm(member_id(0), NOSPACE), Alarm(member_id(1), NOSPACE)))
    return resource, sized(world, sizes)


def sized(world: Observed, sizes: tuple[Sizes, ...]) -> Observed:
    instances = []
    for instance, (size, in_use) in zip(world.instances, sizes, strict=True):
        reported = instance.status and replace(instance.status, db_size=size * MIB, db_in_use=in_use * MIB)
        instances.append(replace(instance, status=reported))
    return replace(world, instances=tuple(instances))


def with_quota(world: Observed, number: int, size: int) -> Observed:
    """Return `world` in which pod `number` was created with another quota."""
    container = {"name": "etcd", "args": ["--name=x", f"--quota-backend-bytes={size}"]}
    instances = [
        replace(instance, pod_obj={**(instance.pod_obj or {}), "spec": {"containers": [container]}})
        if instance.number == number
        else instance
        for instance in world.instances
    ]
    return replace(world, instances=tuple(instances))


def relieve(resource: EtcdCluster, world: Observed) -> Step:
    return relieve_full_disk(assess(resource, world))


def test_full_files_are_not_changed_without_an_alarm() -> None:
    resource, world = full((99, 99), (99, 99), (99, 99))
    assert relieve(resource, replace(world, alarms=())) == Step()


def test_history_is_compacted_up_to_the_leaders_revision() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), compacted=False)
    step = relieve(resource, world)
    assert acts(step.actions) == ["compact up to revision 10"]
    assert "Compacting the history before revision 10" in step.message
    assert step.progress is Progress.WAITING


def test_compaction_is_announced_in_the_status_first() -> None:
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


def test_member_with_a_small_file_is_not_defragmented() -> None:
    resource, world = full((100, 10), (20, 10), (100, 10), leader=2)
    assert acts(relieve(resource, world).actions) == ["defragment demo-0"]


def test_alarm_is_disarmed_once_every_file_is_below_the_quota() -> None:
    resource, world = full((90, 10), (10, 10), (10, 10))
    assert acts(relieve(resource, world).actions) == [
        f"disarm NOSPACE of {member_id(0):016x}",
        f"disarm NOSPACE of {member_id(1):016x}",
    ]


def test_history_is_not_compacted_while_files_are_below_the_quota() -> None:
    resource, world = full((10, 10), (10, 10), (10, 10), compacted=False)
    assert [act.split()[0] for act in acts(relieve(resource, world).actions)] == ["disarm", "disarm"]


def test_live_data_above_the_quota_is_reported_and_not_defragmented_again() -> None:
    resource, world = full((98, 98), (100, 98), (98, 98))
    step = relieve(resource, world)
    assert step.actions == ()
    assert step.reason == "QuotaExceeded"
    assert "uses 98 MiB of its quota of 100 MiB" in step.message
    assert "Delete keys, or raise spec.quotaBackendBytes (now 104857600)" in step.message
    assert step.warning
    assert step.progress is Progress.PROGRESSING, "later steps roll out a raised quota"


def test_follower_is_defragmented_to_measure_the_live_data() -> None:
    """The size in use may include what a compaction freed: etcd updates it only after a write."""
    resource, world = full((100, 98), (100, 97), (100, 98))
    assert acts(relieve(resource, world).actions) == ["defragment demo-1"]
    resource, world = full((100, 98), (97, 97), (100, 98))
    assert relieve(resource, world).reason == "QuotaExceeded"
    resource, world = full((100, 98), (10, 10), (100, 98))
    assert acts(relieve(resource, world).actions) == ["defragment demo-2"]


def test_no_follower_is_defragmented_after_a_quota_exceeded_report() -> None:
    quota_exceeded = [{"type": "Ready", "status": "False", "reason": "QuotaExceeded", "message": "…"}]
    resource, world = full((100, 98), (100, 97), (100, 98), status={"conditions": quota_exceeded})
    assert relieve(resource, world).reason == "QuotaExceeded"


def test_compact_member_is_defragmented_if_another_has_less_in_use() -> None:
    resource, world = full((10, 10), (100, 100), (10, 10))
    assert acts(relieve(resource, world).actions) == ["defragment demo-1"]


def test_little_free_space_is_reclaimed_if_that_allows_writes() -> None:
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
    assert step.progress is Progress.PROGRESSING, "later steps recover the member that is down"


def test_history_is_compacted_while_a_member_is_down() -> None:
    resource, world = full((100, 99), (100, 99), (0, 0), at=(VOTER, VOTER, DOWN), compacted=False)
    assert acts(relieve(resource, world).actions) == ["compact up to revision 10"]


def test_alarm_is_disarmed_while_a_member_is_down() -> None:
    resource, world = full((10, 10), (10, 10), (0, 0), at=(VOTER, VOTER, DOWN))
    assert len(acts(relieve(resource, world).actions)) == 2


def test_alarm_is_not_disarmed_while_the_member_that_raised_it_is_unknown() -> None:
    unreachable = replace(DOWN, runs=True, ready=True)
    resource, world = full((10, 10), (10, 10), (10, 10), at=(VOTER, unreachable, VOTER))
    step = relieve(resource, world)
    assert (acts(step.actions), step.reason, step.warning) == ([], "OutOfSpace", True)
    assert "demo-1 raised the NOSPACE alarm, runs and does not answer the operator" in step.message
    resource, world = full((10, 10), (10, 10), (10, 10), at=(VOTER, VOTER, unreachable))
    assert len(acts(relieve(resource, world).actions)) == 2, "demo-2 did not raise it"


def test_version_that_may_corrupt_data_is_not_defragmented() -> None:
    known = replace(VOTER, version="3.5.5")
    resource, world = full((99, 10), (99, 10), (99, 10), at=(VOTER, known, VOTER))
    step = relieve(resource, world)
    assert (acts(step.actions), step.reason, step.progress) == ([], "UnsafeVersion", Progress.PROGRESSING)
    assert "issues/14685" in step.message
    assert "Set spec.version to 3.5.26 or later" in step.message
    resource, world = scheduled((2 * BIG, BIG), (2 * BIG, BIG), (2 * BIG, BIG), at=(VOTER, known, VOTER))
    assert acts(defragment(assess(resource, world)).actions) == ["defragment demo-2"]


def test_full_learner_is_not_defragmented_before_its_promotion() -> None:
    learner = At(learner=True, ready=False)
    resource, world = full((10, 10), (10, 10), (100, 10), at=(VOTER, VOTER, learner))
    step = relieve(resource, world)
    assert step.actions == ()
    assert step.progress is Progress.PROGRESSING
    assert "once it is a healthy voter" in step.message


def test_raised_quota_counts_once_the_pods_run_with_it() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), quota_now=200 * MIB, compacted=False)
    former = with_quota(with_quota(with_quota(world, 0, QUOTA), 1, QUOTA), 2, 200 * MIB)
    step = relieve(resource, former)
    assert step.actions == (), "history is not compacted without need"
    assert step.reason == "RaisingQuota"
    assert step.message.startswith("demo-0, demo-1: the former quota of 100 MiB is used up")
    assert [act.split()[0] for act in acts(relieve(resource, world).actions)] == ["disarm", "disarm"]


def test_single_member_is_defragmented() -> None:
    resource, world = full((100, 10))
    assert acts(relieve(resource, world).actions) == ["defragment demo-0"]


def test_corrupt_cluster_is_not_compacted() -> None:
    resource, world = full((100, 99), (100, 99), (100, 99), compacted=False)
    assert relieve(resource, replace(world, alarms=(*world.alarms, Alarm(member_id(1), CORRUPT)))) == Step()


def test_quota_of_the_pod_takes_precedence_over_the_spec() -> None:
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
def test_relief_ends_with_free_space_or_a_reported_reason(
    live: int, extra: list[Sizes], leader: int, down: set[int], compacted: bool
) -> None:
    """Whichever sizes members report: each is defragmented at most once, and never two at a time."""
    now = [(live + more, live + more * share // 100) for more, share in extra]
    leader %= len(now)
    at = tuple(DOWN if number in down and number != leader else VOTER for number in range(len(now)))
    if 2 * sum(spot is VOTER for spot in at) <= len(at):
        return
    defragmented: list[int] = []
    for _ in range(len(now) + 3):
        resource, world = full(*now, at=at, leader=leader, compacted=compacted)
        step = relieve(resource, world)
        steps = acts(step.actions)
        if not steps:
            assert step.warning
            assert DOWN in at or (step.reason == "QuotaExceeded" and live > MAX_FULL_SHARE * 100)
            return
        if steps[0].startswith("disarm"):
            assert all(size <= MAX_FULL_SHARE * 100 for (size, _), spot in zip(now, at, strict=True) if spot is VOTER)
            return
        assert len(steps) == 1
        if steps[0].startswith("compact"):
            assert not compacted
            compacted = True
            continue
        number = int(steps[0].removeprefix("defragment demo-"))
        assert compacted
        assert DOWN not in at
        assert number not in defragmented
        defragmented.append(number)
        now[number] = (live, live)
    pytest.fail("relief does not end")


# Scheduled defragmentation

NIGHTLY = {"schedule": "0 3 * * *", "threshold": 45}
LAST_NIGHT = "2026-01-01T03:00:00Z"
HANDLED = {"lastDefragmentation": "2025-12-31T03:00:00Z"}
BIG = MIN_DEFRAGMENTED_BYTES // MIB


def scheduled(*sizes: Sizes, at: tuple[At, ...] = (), status: Any = None, **more: Any) -> tuple[EtcdCluster, Observed]:
    given = HANDLED if status is None else status
    resource = cluster(len(sizes), recorded=range(len(sizes)), defragmentation=NIGHTLY, status=given)
    return resource, sized(seen(resource, *(at or (VOTER,) * len(sizes)), **more), sizes)


def test_first_fragmented_follower_is_defragmented_on_schedule() -> None:
    resource, world = scheduled((2 * BIG, BIG), (2 * BIG, BIG), (2 * BIG, 2 * BIG))
    step = defragment(assess(resource, world))
    assert acts(step.actions) == ["defragment demo-1"]
    assert step.progress is Progress.DONE, "a healthy cluster stays Ready"


def test_leader_is_defragmented_last() -> None:
    resource, world = scheduled((2 * BIG, BIG), (BIG, BIG), (BIG, BIG))
    assert acts(defragment(assess(resource, world)).actions) == ["defragment demo-0"]


@pytest.mark.parametrize("sizes", [(BIG - 1, 1), (2 * BIG, 2 * BIG), (2 * BIG, int(2 * BIG * 0.56))])
def test_small_or_compact_files_are_not_defragmented(sizes: Sizes) -> None:
    resource, world = scheduled(sizes, sizes, sizes)
    assert defragment(assess(resource, world)) == Step()


@pytest.mark.parametrize(
    ("at", "more"),
    [
        ((VOTER, VOTER, DOWN), {}),
        ((VOTER, VOTER, At(learner=True)), {}),
        ((VOTER, VOTER, VOTER), {"alarms": (Alarm(1, CORRUPT),)}),
        ((VOTER, VOTER, VOTER), {"known": False}),
    ],
)
def test_scheduled_run_waits_while_the_cluster_is_unhealthy(at: tuple[At, ...], more: dict[str, Any]) -> None:
    resource, world = scheduled(*[(2 * BIG, BIG)] * 3, at=at, **more)
    assert defragment(assess(resource, world)) == Step()
    assert last_defragmentation(assess(resource, world)) == HANDLED["lastDefragmentation"], (
        "the missed run is still due"
    )


def test_scheduled_run_is_recorded_once_no_member_is_fragmented() -> None:
    resource, world = scheduled((2 * BIG, BIG), (BIG, BIG), (BIG, BIG))
    assert last_defragmentation(assess(resource, world)) == HANDLED["lastDefragmentation"]
    resource, world = scheduled((BIG, BIG), (BIG, BIG), (BIG, BIG))
    assert last_defragmentation(assess(resource, world)) == LAST_NIGHT


def test_recorded_run_is_not_due_again() -> None:
    resource, world = scheduled(*[(2 * BIG, BIG)] * 3, status={"lastDefragmentation": LAST_NIGHT})
    assert defragment(assess(resource, world)) == Step()
    assert last_defragmentation(assess(resource, world)) == LAST_NIGHT


def test_only_one_of_many_missed_runs_is_made() -> None:
    resource, world = scheduled(*[(BIG, BIG)] * 3, status={"lastDefragmentation": "2025-06-01T03:00:00Z"})
    assert last_defragmentation(assess(resource, world)) == LAST_NIGHT


def test_new_schedule_waits_for_its_first_run() -> None:
    resource, world = scheduled(*[(2 * BIG, BIG)] * 3, status={})
    assert defragment(assess(resource, world)) == Step()
    assert last_defragmentation(assess(resource, world)) == "2026-01-01T12:00:00Z"


def test_last_run_stays_in_the_status_when_the_schedule_is_removed() -> None:
    resource = cluster(status=HANDLED)
    assert last_defragmentation(assess(resource, seen(resource, VOTER, VOTER, VOTER))) == HANDLED["lastDefragmentation"]
    resource = cluster()
    assert last_defragmentation(assess(resource, seen(resource, VOTER, VOTER, VOTER))) is None


def test_plan_defragments_three_members_in_one_scheduled_run() -> None:
    """Members are defragmented one at a time; the status records the run only after the last one."""
    sizes = [(2 * BIG, BIG)] * 3
    done, recorded = [], []
    status: dict[str, Any] = dict(HANDLED)
    for _ in range(5):
        resource, world = scheduled(*sizes, status=status)
        made = plan(resource, world)
        done += acts(made.actions)
        for act in acts(made.actions):
            sizes[int(act[-1])] = (BIG, BIG)
        recorded.append(made.status["lastDefragmentation"])
        status = {"lastDefragmentation": made.status["lastDefragmentation"]}
    assert done == ["defragment demo-1", "defragment demo-2", "defragment demo-0"]
    assert recorded == [HANDLED["lastDefragmentation"]] * 3 + [LAST_NIGHT] * 2


@given(
    passed=st.timedeltas(timedelta(0), timedelta(days=10)),
    fragmented=st.booleans(),
)
def test_recorded_run_never_moves_back(passed: timedelta, fragmented: bool) -> None:
    sizes = (2 * BIG, BIG if fragmented else 2 * BIG)
    resource, world = scheduled(sizes, sizes, sizes)
    now = datetime(2025, 12, 31, 3, 0, tzinfo=UTC) + passed
    recorded = last_defragmentation(assess(resource, world, now))
    assert recorded is not None
    assert HANDLED["lastDefragmentation"] <= recorded <= now.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert bool(defragment(assess(resource, world, now)).actions) == (fragmented and passed >= timedelta(days=1))


def test_full_cluster_does_not_scale_up() -> None:
    _, world = full((98, 98), (98, 98), (98, 98))
    resource = cluster(5, recorded=range(3), quotaBackendBytes=QUOTA, status=ANNOUNCED)
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.verdict.reason == "GrowBlocked"
    assert "the space quota is used up" in made.verdict.message
