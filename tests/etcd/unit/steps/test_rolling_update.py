"""Rolling updates: order of the restarts, conditions that block them, and refused versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.etcd.objects.bootstrap import Closed
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Apply, Plan
from shared.status.verdict import Progress
from tests.etcd.unit.world import (
    ABSENT,
    DOWN,
    VOTER,
    At,
    acts,
    cluster,
    losing_volumes,
    plan,
    seen,
)

OLD = replace(VOTER, old=True)
LOST = At(up=False, disk="another", problem="CrashLoopBackOff: back-off", empty_data_dir=True)
MEMORY = {"medium": "Memory"}
JUST_NOW = "2026-01-01T11:59:30Z"


def image(made: Plan) -> str:
    """Return the image of the StatefulSet that the plan applies."""
    (applied,) = [
        action.obj for action in made.actions if isinstance(action, Apply) and action.kind.name == "StatefulSet"
    ]
    return str(applied["spec"]["template"]["spec"]["containers"][0]["image"])


def test_followers_restart_one_at_a_time_before_the_leader() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, OLD, OLD))
    assert acts(made.actions) == ["evict Pod demo-1 (pod-1)"]
    assert made.verdict.message == "Rolling update: 3 of 3 pods are outdated; demo-1 is being recreated."
    assert made.status["phase"] == "Updating"


def test_leader_hands_over_to_an_updated_member_and_restarts_last() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, VOTER, VOTER))
    assert acts(made.actions) == ["move the leadership to demo-1"]
    assert acts(plan(resource, seen(resource, OLD, VOTER, VOTER, leader=2)).actions) == ["evict Pod demo-0 (pod-0)"]


@pytest.mark.parametrize(
    ("budget", "stops"),
    [
        ({"maxUnavailable": 1}, "evict"),
        ({"minAvailable": 2}, "evict"),
        ({"maxUnavailable": 0}, "delete"),
        ({"minAvailable": "100%"}, "delete"),
    ],
)
def test_budget_that_allows_no_eviction_does_not_prevent_a_rolling_update(budget: Obj, stops: str) -> None:
    """No drain can stop another member at the same time. Other workloads of Kubernetes roll out their changes too."""
    resource = cluster(podDisruptionBudget=budget)
    assert acts(plan(resource, seen(resource, OLD, OLD, OLD)).actions) == [f"{stops} Pod demo-1 (pod-1)"]


@pytest.mark.parametrize(("allowed", "stops"), [(0, "delete"), (1, "evict")])
def test_missing_member_does_not_prevent_a_rolling_update_that_it_waits_for(allowed: int, stops: str) -> None:
    """The pod of a missing member is not ready before the update ends: the budget would never allow an eviction."""
    resource = cluster()
    budget: Obj = {"metadata": {"name": "demo", "namespace": "default"}, "status": {"disruptionsAllowed": allowed}}
    budget["spec"] = {"maxUnavailable": 1}
    without = replace(seen(resource, OLD, ABSENT, VOTER, leader=2), disruption_budget=budget)
    (stopped,) = [act for act in acts(plan(resource, without).actions) if "Pod demo-0" in act]
    assert stopped == f"{stops} Pod demo-0 (pod-0)"
    complete = replace(seen(resource, VOTER, OLD, VOTER), disruption_budget=budget)
    assert acts(plan(resource, complete).actions) == ["evict Pod demo-1 (pod-1)"]


def test_broken_pod_restarts_first() -> None:
    resource = cluster()
    broken = At(up=False, old=True, problem="CrashLoopBackOff: back-off")
    assert acts(plan(resource, seen(resource, OLD, OLD, broken)).actions) == ["delete Pod demo-2 (pod-2)"]


def test_unreachable_running_pod_is_not_restarted_while_another_is_down() -> None:
    resource = cluster(5, recorded=range(5))
    unreachable = At(up=False, old=True, runs=True)
    made = plan(resource, seen(resource, OLD, OLD, OLD, unreachable, DOWN))
    assert acts(made.actions) == []
    assert made.verdict.reason == "UpgradeBlocked"
    alone = plan(resource, seen(resource, OLD, OLD, OLD, replace(unreachable, ready=False), VOTER))
    assert acts(alone.actions) == ["delete Pod demo-3 (pod-3)"], "all other voters are healthy"


def test_healthy_pod_is_not_restarted_while_another_voter_is_down() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, OLD, DOWN))
    assert acts(made.actions) == []
    assert made.verdict.reason == "UpgradeBlocked"
    assert (
        "demo-2 is down, so that only 1 of 3 voters would be healthy, and 2 must agree during the restart."
        in made.verdict.message
    )
    assert made.verdict.warning


def test_next_restart_waits_for_the_previous_pod_without_a_warning() -> None:
    resource = cluster()
    starting = replace(DOWN, runs=True, made=JUST_NOW)
    made = plan(resource, seen(resource, OLD, starting, OLD))
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.warning) == ("Updating", False)
    assert made.verdict.message == ("Rolling update: 2 of 3 pods are outdated. demo-1 was recreated and is starting.")


def test_deleted_pod_that_is_not_recreated_yet_is_no_warning() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, replace(DOWN, pod=False), OLD))
    assert (acts(made.actions), made.verdict.reason) == ([], "Updating")


def test_next_restart_waits_until_the_previous_pod_is_ready() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, replace(VOTER, ready=False), OLD))
    assert acts(made.actions) == []
    assert "demo-1 is healthy again, but not ready for clients yet" in made.verdict.message


def test_rollout_stops_at_the_first_pod_that_does_not_start() -> None:
    resource = cluster()
    broken = At(up=False, problem="ImagePullBackOff: no such image")
    made = plan(resource, seen(resource, OLD, broken, OLD))
    assert acts(made.actions) == []
    assert made.verdict.reason == "ImagePullFailed"
    assert "demo-1 is already updated and cannot pull its image: no such image. Fix" in made.verdict.message


def test_change_that_broke_the_first_pod_can_be_reverted() -> None:
    resource = cluster()
    broken = At(up=False, old=True, problem="ImagePullBackOff: no such image")
    assert acts(plan(resource, seen(resource, VOTER, broken, VOTER)).actions) == ["delete Pod demo-1 (pod-1)"]


def test_message_names_the_remedy_for_a_pod_on_a_lost_node() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, OLD, At(up=False, leaving=True)))
    assert acts(made.actions) == []
    assert "demo-2 is terminating. If its node is permanently lost, delete the pod with --force" in made.verdict.message
    settled = plan(resource, seen(resource, VOTER, VOTER, At(up=False, leaving=True)))
    assert "demo-2 is terminating. If its node is permanently lost" in settled.verdict.message


def test_only_member_is_restarted() -> None:
    resource = cluster(1, recorded=[0])
    assert acts(plan(resource, seen(resource, OLD)).actions) == ["evict Pod demo-0 (pod-0)"]


def test_leader_of_two_members_restarts_last() -> None:
    resource = cluster(2, recorded=[0, 1])
    assert acts(plan(resource, seen(resource, OLD, OLD)).actions) == ["evict Pod demo-1 (pod-1)"]
    assert acts(plan(resource, seen(resource, OLD, VOTER)).actions) == ["move the leadership to demo-1"]


def test_next_change_recovers_the_only_member_that_a_change_broke() -> None:
    resource = cluster(1, recorded=[0])
    broken = At(up=False, old=True, problem="CrashLoopBackOff: back-off")
    assert acts(plan(resource, seen(resource, broken, known=False)).actions) == ["delete Pod demo-0 (pod-0)"]


def test_seed_that_never_started_is_recreated_with_the_next_spec() -> None:
    resource = cluster(recorded=None)
    broken = At(up=False, old=True, problem="ErrImagePull: no such image")
    world = seen(resource, broken, ABSENT, ABSENT, known=False)
    assert acts(plan(resource, world).actions) == ["delete Pod demo-0 (pod-0)"]


def test_running_member_is_not_restarted_without_a_member_list() -> None:
    resource = cluster()
    unreachable = At(up=False, old=True, runs=True, ready=False)
    assert acts(plan(resource, seen(resource, unreachable, unreachable, unreachable, known=False)).actions) == []


def test_in_memory_member_is_not_restarted_without_a_member_list() -> None:
    resource = cluster(1, recorded=[0], storage=MEMORY)
    broken = At(up=False, old=True, problem="CrashLoopBackOff: back-off")
    assert acts(plan(resource, seen(resource, broken, known=False)).actions) == []


def test_in_memory_member_is_removed_together_with_its_pod() -> None:
    """The eviction comes first: without the budget, a drain could delete the data of a second member."""
    resource = cluster(storage=MEMORY)
    made = plan(resource, seen(resource, OLD, OLD, OLD))
    assert acts(made.actions) == ["evict Pod demo-1 (disk-1)", "remove demo-1"]
    pair = cluster(2, recorded=[0, 1], storage=MEMORY)
    made = plan(pair, seen(pair, OLD, OLD))
    assert acts(made.actions) == ["remove demo-1"], "one of two voters without data would be a lost quorum"
    assert acts(plan(resource, seen(resource, OLD, VOTER, VOTER)).actions) == ["move the leadership to demo-1"]


def test_member_whose_claim_is_being_deleted_leaves_with_its_pod_or_stays() -> None:
    """The data ends with the pod, as in memory: another member must have it."""
    resource, single = cluster(), cluster(1, recorded=[0])
    made = plan(resource, losing_volumes(seen(resource, VOTER, OLD, OLD), 1))
    assert acts(made.actions) == ["evict Pod demo-1 (pod-1)", "remove demo-1"]
    made = plan(single, losing_volumes(seen(single, OLD), 0))
    assert (acts(made.actions), made.verdict.reason) == ([], "UpgradeBlocked")
    assert "its data would be deleted with its pod (its claim is being deleted). Set spec.size to 3." in (
        made.verdict.message
    )
    broken = losing_volumes(seen(single, replace(OLD, up=False), known=False), 0)
    assert acts(plan(single, broken).actions) == []


@pytest.mark.parametrize("number", [0, 1])
def test_broken_pod_that_its_claim_protects_is_named(number: int) -> None:
    """E5: the status reported only a missing quorum, not why the corrected spec repaired nothing."""
    stuck = replace(OLD, up=False, problem="ErrImagePull: no such image")
    resource = cluster(1 + number, recorded=range(1 + number))
    at = (*[replace(stuck, old=False)] * number, stuck)
    made = plan(resource, losing_volumes(seen(resource, *at, known=False, leader=None), number))
    assert (acts(made.actions), made.verdict.reason, made.verdict.warning) == ([], "NoQuorum", True)
    for text in (f"demo-{number} does not run", f"PersistentVolumeClaim data-demo-{number}", "no such image", "Retain"):
        assert text in made.verdict.message
    assert made.health is not None
    assert made.health.available is not None
    assert made.health.available.reason == "NoQuorum"


@pytest.mark.parametrize(
    ("first", "reason", "lost"),
    [
        (At(ready=False, runs=True), "NoQuorum", "demo-1 (another volume) lost their data."),
        (LOST, "QuorumLost", "of the 3 voters lost their data: the quorum is permanently lost."),
    ],
    ids=["one of three lost", "two of three lost"],
)
def test_broken_pod_that_its_claim_protects_does_not_hide_a_lost_quorum(first: At, reason: str, lost: str) -> None:
    """The member may have the only copy: the message has what to do to keep it."""
    resource, stuck = cluster(), replace(OLD, up=False, problem="ErrImagePull: no such image")
    made = plan(resource, losing_volumes(seen(resource, first, LOST, stuck, known=False, leader=None), 2))
    assert (acts(made.actions), made.verdict.reason, made.verdict.warning) == ([], reason, True)
    kept = "set the reclaim policy of its volume to Retain, delete the pod, and bind the volume to the new claim."
    for text in (lost, "It is not recreated: PersistentVolumeClaim data-demo-2 is being deleted", kept):
        assert text in made.verdict.message


def test_broken_pod_of_a_cluster_that_was_never_recorded_is_named() -> None:
    resource, stuck = cluster(recorded=None), replace(OLD, up=False, problem="ErrImagePull: no such image")
    made = plan(resource, losing_volumes(seen(resource, stuck, ABSENT, ABSENT, known=False), 0))
    assert (acts(made.actions), made.verdict.reason) == ([], "VolumesTerminating")
    assert "data-demo-0 is being deleted" in made.verdict.message


def test_broken_pod_on_a_volume_that_stays_is_recreated_before_one_is_named_whose_claim_is_deleted() -> None:
    resource, broken = cluster(), replace(OLD, up=False)
    world = losing_volumes(seen(resource, broken, broken, broken, known=False, leader=None), 0)
    assert acts(plan(resource, world).actions) == ["delete Pod demo-1 (pod-1)"]


def test_pod_of_a_learner_that_may_not_join_is_recreated() -> None:
    """The pod is older than the member: its template did not allow any member to join."""
    resource = cluster()
    waiting = At(learner=True, started=False, up=False, empty_data_dir=True, start=Closed())
    made = plan(resource, seen(resource, VOTER, waiting, VOTER))
    assert acts(made.actions) == ["delete Pod demo-1 (pod-1)"]
    assert made.verdict.reason == "Joining"


def test_pod_of_a_stuck_learner_with_an_older_template_is_recreated() -> None:
    resource = cluster()
    stuck = At(learner=True, up=False, old=True, problem="ErrImagePull: no such image")
    assert acts(plan(resource, seen(resource, VOTER, stuck, VOTER)).actions) == ["delete Pod demo-1 (pod-1)"]


def test_added_learner_is_given_time_to_start() -> None:
    resource = cluster()
    starting = At(learner=True, started=False, up=False, runs=True, made=JUST_NOW)
    assert acts(plan(resource, seen(resource, VOTER, starting, VOTER)).actions) == []


def test_downgrade_by_two_minor_versions_is_refused() -> None:
    resource = cluster(version="3.4.33")
    world = seen(resource, VOTER, VOTER, VOTER, image="example.com/etcd:v3.6.8")
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.verdict.reason) == (Progress.BLOCKED, "UpgradeRefused")
    assert "3.4.33 is more than one minor version below 3.6" in made.verdict.message
    assert image(made) == "example.com/etcd:v3.6.8"


def test_upgrade_that_skips_a_minor_version_is_refused() -> None:
    resource = cluster(version="3.7.0", status={"version": "3.5.26"})
    own = replace(VOTER, version="3.5.26")
    world = replace(seen(resource, own, own, own, image="example.com/etcd:v3.5.26"), cluster_version="3.5.0")
    made = plan(resource, world)
    assert made.verdict.reason == "UpgradeRefused"
    assert image(made) == "example.com/etcd:v3.5.26"


def test_lost_member_is_replaced_while_an_upgrade_is_refused() -> None:
    resource = cluster(version="3.4.33")
    world = seen(resource, VOTER, replace(DOWN, disk="another"), VOTER, image="example.com/etcd:v3.6.8")
    made = plan(resource, world)
    assert acts(made.actions) == ["remove demo-1"]
    assert image(made) == "example.com/etcd:v3.6.8"


def test_recreated_stateful_set_does_not_get_a_refused_image() -> None:
    resource = cluster(version="3.4.33")
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, stateful_set=False))
    assert image(made) == "example.com/etcd:v3.6.8"


def test_upgrade_in_progress_can_be_reverted() -> None:
    resource = cluster(version="3.5.26")
    ahead = At(version="3.6.8", old=True)
    own = replace(VOTER, version="3.5.26")
    world = replace(seen(resource, own, own, ahead), cluster_version="3.5.0")
    assert acts(plan(resource, world).actions) == ["evict Pod demo-2 (pod-2)"]


def test_last_known_version_decides_when_no_member_is_reachable() -> None:
    resource = cluster(version="3.5.26")
    made = plan(resource, seen(resource, DOWN, DOWN, DOWN, known=False, image="example.com/etcd:v3.6.8"))
    assert image(made) == "example.com/etcd:v3.6.8"
