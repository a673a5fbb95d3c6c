"""Changes that need a restart: who goes when, what holds them, and which versions are refused."""

from __future__ import annotations

from dataclasses import replace

from operators.etcd.objects.bootstrap import Closed
from shared.runtime.plan import Apply, Plan
from shared.status.verdict import Progress
from tests.unit.etcd.world import (
    ABSENT,
    DOWN,
    VOTER,
    At,
    acts,
    cluster,
    plan,
    seen,
)

OLD = replace(VOTER, old=True)
MEMORY = {"medium": "Memory"}
JUST_NOW = "2026-01-01T11:59:30Z"


def image(made: Plan) -> str:
    """What the plan lets members run."""
    (applied,) = [
        action.obj for action in made.actions if isinstance(action, Apply) and action.kind.name == "StatefulSet"
    ]
    return str(applied["spec"]["template"]["spec"]["containers"][0]["image"])


def test_followers_go_before_the_leader_and_one_at_a_time() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, OLD, OLD))
    assert acts(made.actions) == ["delete Pod demo-1 (pod-1)"]
    assert made.verdict.message == "Rolling update: 3 of 3 pods are outdated; demo-1 is being recreated."
    assert made.status["phase"] == "Updating"


def test_the_leader_hands_over_to_one_that_is_current_and_goes_last() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, VOTER, VOTER))
    assert acts(made.actions) == ["move the leadership to demo-1"]
    assert acts(plan(resource, seen(resource, OLD, VOTER, VOTER, leader=2)).actions) == ["delete Pod demo-0 (pod-0)"]


def test_a_broken_pod_goes_first() -> None:
    resource = cluster()
    broken = At(up=False, old=True, trouble="CrashLoopBackOff: back-off")
    assert acts(plan(resource, seen(resource, OLD, OLD, broken)).actions) == ["delete Pod demo-2 (pod-2)"]


def test_a_silent_pod_that_runs_may_still_answer_the_others_and_stays_while_one_is_down() -> None:
    resource = cluster(5, recorded=range(5))
    silent = At(up=False, old=True, runs=True)
    made = plan(resource, seen(resource, OLD, OLD, OLD, silent, DOWN))
    assert acts(made.actions) == []
    assert made.verdict.reason == "UpgradeHeld"
    alone = plan(resource, seen(resource, OLD, OLD, OLD, replace(silent, ready=False), VOTER))
    assert acts(alone.actions) == ["delete Pod demo-3 (pod-3)"], "all others are healthy"


def test_a_healthy_pod_stays_while_another_voter_is_down() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, OLD, DOWN))
    assert acts(made.actions) == []
    assert made.verdict.reason == "UpgradeHeld"
    assert (
        "demo-2 is down, so that only 1 of 3 voters would be healthy, and 2 must agree during the restart."
        in made.verdict.message
    )
    assert made.verdict.warning


def test_the_next_one_waits_until_the_one_before_is_back_and_that_is_no_trouble() -> None:
    resource = cluster()
    starting = replace(DOWN, runs=True, made=JUST_NOW)
    made = plan(resource, seen(resource, OLD, starting, OLD))
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.warning) == ("Updating", False)
    assert made.verdict.message == ("Rolling update: 2 of 3 pods are outdated. demo-1 was recreated and is starting.")


def test_the_moment_in_which_a_pod_is_gone_is_no_trouble_either() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, replace(DOWN, pod=False), OLD))
    assert (acts(made.actions), made.verdict.reason) == ([], "Updating")


def test_the_next_one_waits_until_the_one_before_takes_clients() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, replace(VOTER, ready=False), OLD))
    assert acts(made.actions) == []
    assert "demo-1 is healthy again, but not ready for clients yet" in made.verdict.message


def test_a_change_that_breaks_the_first_stops_there_and_is_named() -> None:
    resource = cluster()
    broken = At(up=False, trouble="ImagePullBackOff: no such image")
    made = plan(resource, seen(resource, OLD, broken, OLD))
    assert acts(made.actions) == []
    assert made.verdict.reason == "UpgradeHeld"
    assert "demo-1 is already updated and does not start: ImagePullBackOff: no such image" in (
        made.verdict.message
    )


def test_a_change_that_broke_the_first_can_be_taken_back() -> None:
    resource = cluster()
    broken = At(up=False, old=True, trouble="ImagePullBackOff: no such image")
    assert acts(plan(resource, seen(resource, VOTER, broken, VOTER)).actions) == ["delete Pod demo-1 (pod-1)"]


def test_a_pod_whose_node_is_lost_is_waited_for_and_it_is_said_what_a_person_can_do() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, OLD, OLD, At(up=False, leaving=True)))
    assert acts(made.actions) == []
    assert "demo-2 is terminating. If its node is permanently lost, run kubectl delete pod --force" in (
        made.verdict.message
    )
    settled = plan(resource, seen(resource, VOTER, VOTER, At(up=False, leaving=True)))
    assert "demo-2 is terminating. If its node is permanently lost" in settled.verdict.message


def test_the_only_member_is_simply_restarted() -> None:
    resource = cluster(1, recorded=[0])
    assert acts(plan(resource, seen(resource, OLD)).actions) == ["delete Pod demo-0 (pod-0)"]


def test_of_two_the_leader_goes_last_as_ever() -> None:
    resource = cluster(2, recorded=[0, 1])
    assert acts(plan(resource, seen(resource, OLD, OLD)).actions) == ["delete Pod demo-1 (pod-1)"]
    assert acts(plan(resource, seen(resource, OLD, VOTER)).actions) == ["move the leadership to demo-1"]


def test_a_change_that_broke_the_only_member_is_mended_by_the_next() -> None:
    resource = cluster(1, recorded=[0])
    broken = At(up=False, old=True, trouble="CrashLoopBackOff: back-off")
    assert acts(plan(resource, seen(resource, broken, known=False)).actions) == ["delete Pod demo-0 (pod-0)"]


def test_a_seed_that_never_started_is_made_anew_with_the_next_spec() -> None:
    resource = cluster(recorded=None)
    broken = At(up=False, old=True, trouble="ErrImagePull: no such image")
    world = seen(resource, broken, ABSENT, ABSENT, known=False)
    assert acts(plan(resource, world).actions) == ["delete Pod demo-0 (pod-0)"]


def test_without_a_list_nobody_who_runs_is_restarted() -> None:
    resource = cluster()
    silent = At(up=False, old=True, runs=True, ready=False)
    assert acts(plan(resource, seen(resource, silent, silent, silent, known=False)).actions) == []


def test_in_memory_without_a_list_nobody_loses_his_data_to_a_restart() -> None:
    resource = cluster(1, recorded=[0], storage=MEMORY)
    broken = At(up=False, old=True, trouble="CrashLoopBackOff: back-off")
    assert acts(plan(resource, seen(resource, broken, known=False)).actions) == []


def test_in_memory_a_member_leaves_before_its_pod_goes() -> None:
    resource = cluster(storage=MEMORY)
    assert acts(plan(resource, seen(resource, OLD, OLD, OLD)).actions) == ["remove demo-1"]
    assert acts(plan(resource, seen(resource, OLD, VOTER, VOTER)).actions) == ["move the leadership to demo-1"]


def test_a_learner_whose_pod_may_not_begin_is_made_anew() -> None:
    """Its place was there before it was a member: its pod was made of a template that let nobody join."""
    resource = cluster()
    waiting = At(learner=True, started=False, up=False, empty_data_dir=True, start=Closed())
    made = plan(resource, seen(resource, VOTER, waiting, VOTER))
    assert acts(made.actions) == ["delete Pod demo-1 (pod-1)"]
    assert made.verdict.reason == "Joining"


def test_a_learner_with_an_older_template_that_does_not_start_is_made_anew() -> None:
    resource = cluster()
    stuck = At(learner=True, up=False, old=True, trouble="ErrImagePull: no such image")
    assert acts(plan(resource, seen(resource, VOTER, stuck, VOTER)).actions) == ["delete Pod demo-1 (pod-1)"]


def test_a_learner_that_was_added_is_left_to_start() -> None:
    resource = cluster()
    starting = At(learner=True, started=False, up=False, runs=True, made=JUST_NOW)
    assert acts(plan(resource, seen(resource, VOTER, starting, VOTER)).actions) == []


def test_a_version_that_the_data_would_not_survive_changes_nothing() -> None:
    resource = cluster(version="3.5.26")
    world = seen(resource, VOTER, VOTER, VOTER, image="example.com/etcd:v3.6.8")
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.verdict.reason) == (Progress.BLOCKED, "UpgradeRefused")
    assert "3.5.26 is below 3.6, the current version of the cluster" in made.verdict.message
    assert image(made) == "example.com/etcd:v3.6.8"


def test_a_minor_version_is_not_skipped() -> None:
    resource = cluster(version="3.7.0", status={"version": "3.5.26"})
    own = replace(VOTER, version="3.5.26")
    world = replace(seen(resource, own, own, own, image="example.com/etcd:v3.5.26"), cluster_version="3.5.0")
    made = plan(resource, world)
    assert made.verdict.reason == "UpgradeRefused"
    assert image(made) == "example.com/etcd:v3.5.26"


def test_while_an_upgrade_is_refused_a_lost_member_is_still_replaced() -> None:
    resource = cluster(version="3.5.26")
    world = seen(resource, VOTER, replace(DOWN, disk="another"), VOTER, image="example.com/etcd:v3.6.8")
    made = plan(resource, world)
    assert acts(made.actions) == ["remove demo-1"]
    assert image(made) == "example.com/etcd:v3.6.8"


def test_a_refused_image_is_not_given_to_a_stateful_set_that_is_made_again() -> None:
    resource = cluster(version="3.5.26")
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, stateful_set=False))
    assert image(made) == "example.com/etcd:v3.6.8"


def test_an_upgrade_under_way_can_be_taken_back() -> None:
    resource = cluster(version="3.5.26")
    ahead = At(version="3.6.8", old=True)
    own = replace(VOTER, version="3.5.26")
    world = replace(seen(resource, own, own, ahead), cluster_version="3.5.0")
    assert acts(plan(resource, world).actions) == ["delete Pod demo-2 (pod-2)"]


def test_where_nobody_answers_the_last_known_version_decides() -> None:
    resource = cluster(version="3.5.26")
    made = plan(resource, seen(resource, DOWN, DOWN, DOWN, known=False, image="example.com/etcd:v3.6.8"))
    assert image(made) == "example.com/etcd:v3.6.8"
