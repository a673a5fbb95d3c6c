"""Who becomes a member, who goes, and what holds it: every state a cluster can be in, one step at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.etcd.client.commands import MoveLeader, Promote
from operators.etcd.client.server import Member
from shared.runtime.plan import Patch, Plan
from shared.status.verdict import Progress
from tests.unit.etcd.world import (
    ABSENT,
    AWAITED,
    DOWN,
    LEARNER,
    VOTER,
    At,
    acts,
    cluster,
    member_id,
    plan,
    replicas_and_start,
    seen,
)

LOST = replace(DOWN, disk="another", empty_data_dir=True)


def test_a_new_cluster_begins_with_one_seed() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, seen(resource, ABSENT, ABSENT, ABSENT, known=False, stateful_set=False))
    assert replicas_and_start(made) == (1, "new demo-0")
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.status["phase"]) == (Progress.PROGRESSING, "Creating")


def test_what_has_begun_is_written_down_before_anything_else() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, seen(resource, VOTER, ABSENT, ABSENT, stateful_set=False))
    assert (made.verdict.reason, made.requeue) == ("Recording", 0)
    assert acts(made.actions) == []
    assert made.status["clusterID"] == "00000000000000c1"
    assert made.status["members"][0]["volume"] == "disk-0"


def test_once_recorded_nobody_begins_again() -> None:
    resource = cluster(recorded=[0])
    for world in (
        seen(resource, VOTER, ABSENT, ABSENT),
        seen(resource, DOWN, ABSENT, ABSENT, known=False),
        seen(resource, ABSENT, ABSENT, ABSENT, known=False, stateful_set=False),
    ):
        assert replicas_and_start(plan(resource, world)) == (1, "existing")


def test_a_lost_status_does_not_let_anybody_begin_again() -> None:
    recorded, resource = cluster(), cluster(recorded=None)
    closed = seen(recorded, DOWN, DOWN, DOWN, known=False)
    assert replicas_and_start(plan(resource, closed)) == (3, "existing"), "the StatefulSet tells"
    without = replace(closed, stateful_set=None)
    assert replicas_and_start(plan(resource, without)) == (3, "existing"), "the volumes tell"


def test_a_cluster_that_begins_with_a_snapshot_never_begins_empty() -> None:
    restore = {"from": {"backup": "yesterday"}}
    resource = cluster(recorded=None, restore=restore)
    world = seen(resource, ABSENT, ABSENT, ABSENT, known=False, stateful_set=False)
    made = plan(resource, world)
    applied = [action for action in made.actions if getattr(action, "obj", {}).get("kind") == "StatefulSet"]
    assert not applied or replicas_and_start(made) == (1, "existing")


def test_a_stateful_set_that_was_deleted_is_made_again_for_all_members() -> None:
    resource = cluster()
    world = seen(resource, *[replace(DOWN, pod=False)] * 3, known=False, stateful_set=False)
    assert replicas_and_start(plan(resource, world)) == (3, "existing")


def test_the_lowest_missing_number_is_added_as_a_learner() -> None:
    resource = cluster(recorded=[0])
    made = plan(resource, seen(resource, VOTER, ABSENT, ABSENT))
    assert acts(made.actions) == ["add a learner at http://demo-1.demo.default.svc:2380"]


def test_an_added_learner_gets_its_place_and_nobody_else_may_join() -> None:
    resource = cluster(recorded=[0])
    made = plan(resource, seen(resource, VOTER, AWAITED, ABSENT))
    assert replicas_and_start(made) == (2, "existing demo-1")
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.message) == ("Joining", "demo-1 is joining: it has no pod yet.")


def test_where_a_learner_will_write_is_recorded_before_it_starts() -> None:
    resource = cluster(recorded=[0])
    made = plan(resource, seen(resource, VOTER, replace(AWAITED, pod=True, disk="fresh"), ABSENT))
    assert made.verdict.message == "demo-1 is joining: recording its volume in status."
    assert made.requeue == 0
    assert made.status["members"][1] == {
        "name": "demo-1",
        "id": f"{member_id(1):016x}",
        "role": "learner",
        "healthy": False,
        "volume": "fresh",
    }


def test_a_learner_that_has_started_lets_nobody_join_any_more() -> None:
    resource = cluster(recorded=[0, 1])
    assert replicas_and_start(plan(resource, seen(resource, VOTER, LEARNER, ABSENT))) == (2, "existing")


def test_a_learner_that_has_caught_up_gets_its_vote() -> None:
    resource = cluster(recorded=[0, 1])
    assert acts(plan(resource, seen(resource, VOTER, LEARNER, ABSENT)).actions) == ["promote demo-1"]


def test_a_learner_that_lags_is_waited_for() -> None:
    resource = cluster(recorded=[0, 1])
    fresh = replace(LEARNER, applied=899, made="2026-01-01T11:59:00Z")
    made = plan(resource, seen(resource, VOTER, fresh, ABSENT))
    assert acts(made.actions) == []
    assert made.verdict.message == "demo-1 is joining: it has applied 899 of 1000 log entries."


def test_a_learner_that_never_comes_is_removed() -> None:
    resource = cluster(recorded=[0, 1])
    stuck = At(learner=True, started=False, up=False, trouble="ImagePullBackOff: no such image")
    world = seen(resource, VOTER, replace(stuck, made="2026-01-01T11:51:00Z"), ABSENT)
    times = [instance.volume for instance in world.instances if instance.number == 1 and instance.volume]
    times[0]["metadata"]["creationTimestamp"] = "2026-01-01T11:51:00Z"
    assert acts(plan(resource, world).actions) == [], "9 minutes"
    times[0]["metadata"]["creationTimestamp"] = "2026-01-01T11:49:59Z"
    world.instances[1].pod_obj["metadata"]["creationTimestamp"] = "2026-01-01T11:49:59Z"  # type: ignore[index]
    told = plan(resource, world)
    assert acts(told.actions) == [], "it is said before it is done"
    assert told.verdict.reason == "LearnerStuck"
    assert "ImagePullBackOff: no such image" in told.verdict.message
    resource.obj["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "LearnerStuck"}]
    assert acts(plan(resource, world).actions) == ["remove http://demo-1.demo.default.svc:2380"]


def test_a_learner_that_is_not_wanted_any_more_never_gets_a_vote() -> None:
    resource = cluster(1, recorded=[0, 1])
    assert acts(plan(resource, seen(resource, VOTER, LEARNER)).actions) == ["remove demo-1"]


def patched(made: Plan, what: str) -> list[str]:
    """Pods of which this part of the metadata is changed."""
    patches = [action for action in made.actions if isinstance(action, Patch) and what in action.change["metadata"]]
    return [patch.obj["metadata"]["name"] for patch in patches]


def test_voters_are_admitted_to_clients_and_learners_are_not() -> None:
    resource = cluster(recorded=[0, 1])
    assert patched(plan(resource, seen(resource, VOTER, LEARNER, ABSENT)), "labels") == ["demo-0"]


def test_who_has_begun_may_not_begin_again_in_the_same_pod() -> None:
    """A node that starts again with its memory gone starts the same pod, on an empty disk."""
    resource = cluster(recorded=[0, 1])
    made = plan(resource, seen(resource, VOTER, LEARNER, ABSENT))
    assert patched(made, "annotations") == ["demo-0", "demo-1"]
    closing = [at for at, action in enumerate(made.actions) if isinstance(action, Patch)]
    voting = [at for at, action in enumerate(made.actions) if isinstance(action, Promote)]
    assert max(closing) < min(voting), "before it has a vote"
    awaited = seen(resource, VOTER, At(learner=True, started=False, up=False, runs=True), ABSENT)
    assert patched(plan(resource, awaited), "annotations") == ["demo-0"]


def test_a_seed_is_closed_once_it_is_recorded_and_before_clients_come() -> None:
    resource = cluster(recorded=None)
    assert patched(plan(resource, seen(resource, VOTER, ABSENT, ABSENT)), "annotations") == []
    known = cluster(recorded=[0])
    made = plan(known, seen(known, VOTER, ABSENT, ABSENT))
    kinds = [next(iter(action.change["metadata"])) for action in made.actions if isinstance(action, Patch)]
    assert kinds == ["annotations", "labels"]


def test_nobody_is_added_while_a_voter_is_down() -> None:
    resource = cluster(5)
    made = plan(resource, seen(resource, VOTER, VOTER, DOWN, ABSENT, ABSENT))
    assert acts(made.actions) == []
    assert made.verdict.reason == "GrowHeld"
    assert made.verdict.message.endswith("demo-3 is not added yet: demo-2 is down.")


def test_nobody_is_added_before_all_were_connected_for_as_long_as_etcd_demands() -> None:
    resource = cluster(5)
    world = seen(resource, VOTER, VOTER, VOTER, ABSENT, ABSENT)
    containers = world.instances[2].pod_obj["status"]["containerStatuses"]  # type: ignore[index]
    containers[0]["state"] = {"running": {"startedAt": "2026-01-01T11:59:58Z"}}
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.requeue == 4.0


@pytest.mark.parametrize("learning", [False, True])
def test_a_member_that_lost_its_volume_is_removed_and_comes_back_as_a_learner(learning: bool) -> None:
    resource = cluster()
    lost = replace(LOST, learner=learning)
    made = plan(resource, seen(resource, VOTER, lost, VOTER))
    assert acts(made.actions) == ["remove demo-1"]
    assert made.verdict.reason == "Replacing"
    gone = seen(resource, VOTER, replace(lost, member=False), VOTER)
    assert acts(plan(resource, gone).actions) == ["add a learner at http://demo-1.demo.default.svc:2380"]
    assert replicas_and_start(plan(resource, gone)) == (3, "existing"), "it must not join before it was added"


def test_an_empty_disk_tells_a_loss_though_the_volume_is_the_same() -> None:
    resource = cluster()
    assert acts(plan(resource, seen(resource, VOTER, replace(DOWN, empty_data_dir=True), VOTER)).actions) == [
        "remove demo-1"
    ]


def test_a_member_that_does_not_answer_is_never_removed() -> None:
    resource = cluster()
    for away in (DOWN, replace(DOWN, pod=False), replace(DOWN, pod=False, disk=""), replace(DOWN, leaving=True)):
        made = plan(resource, seen(resource, VOTER, away, VOTER))
        assert acts(made.actions) == []
        assert made.status["phase"] == "Degraded"
        assert "demo-1" in made.verdict.message


def test_a_healthy_member_on_another_disk_is_believed_and_recorded() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, replace(VOTER, disk="moved"), VOTER))
    assert acts(made.actions) == []
    assert made.verdict.reason == "Recording"
    assert made.status["members"][1]["volume"] == "moved"


def test_a_lost_member_stays_while_another_is_down_and_it_is_said_who() -> None:
    """Three of five must agree, and three are left: the lost one may go, for it can only be missed less."""
    resource = cluster(5, recorded=range(5))
    assert acts(plan(resource, seen(resource, VOTER, LOST, VOTER, DOWN, VOTER)).actions) == ["remove demo-1"]
    gone = seen(resource, VOTER, replace(LOST, member=False), VOTER, DOWN, VOTER)
    made = plan(resource, gone)
    assert acts(made.actions) == []
    assert made.verdict.reason == "GrowHeld"


def test_a_disk_that_a_former_member_wrote_on_goes_before_its_number_comes_again() -> None:
    resource = cluster()
    corrupt = At(member=False, up=False, runs=False)
    made = plan(resource, seen(resource, VOTER, corrupt, VOTER))
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-1 (disk-1)", "delete Pod demo-1 (pod-1)"]
    assert made.status["members"][1] == {"name": "demo-1", "volume": "disk-1"}, "known until it is gone"
    fresh = seen(resource, VOTER, replace(corrupt, disk="fresh"), VOTER)
    assert acts(plan(resource, fresh).actions) == ["add a learner at http://demo-1.demo.default.svc:2380"]


def test_in_memory_the_pod_is_the_disk() -> None:
    resource = cluster(storage={"medium": "Memory"})
    corrupt = At(member=False, up=False, runs=False)
    assert acts(plan(resource, seen(resource, VOTER, corrupt, VOTER)).actions) == ["delete Pod demo-1 (disk-1)"]
    lost = seen(resource, VOTER, replace(DOWN, disk="another"), VOTER)
    assert acts(plan(resource, lost).actions) == ["remove demo-1"]


def test_the_highest_goes_first_when_fewer_are_wanted() -> None:
    resource = cluster(1)
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER))
    assert acts(made.actions) == ["remove demo-2"]
    assert made.verdict.message == "Scaling from 3 to 1 members: removing demo-2."


def test_a_leader_hands_over_before_it_goes() -> None:
    resource = cluster(1)
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, leader=2))
    assert acts(made.actions) == ["move the leadership to demo-0"]
    (call,) = [action for action in made.actions if isinstance(action, MoveLeader)]
    assert [endpoint.name for endpoint in call.endpoints] == ["demo-2"], "nobody else can be asked"


def test_after_a_member_its_pod_goes_and_only_then_its_volume() -> None:
    resource = cluster(1)
    removed = At(member=False, up=False, runs=False)
    world = seen(resource, VOTER, VOTER, removed)
    made = plan(resource, world)
    assert replicas_and_start(made) == (2, "existing")
    assert "delete PersistentVolumeClaim" not in str(acts(made.actions)), "its pod is still there"
    left = seen(resource, VOTER, VOTER, replace(removed, pod=False))
    assert acts(plan(resource, left).actions) == ["delete PersistentVolumeClaim data-demo-2 (disk-2)"]


def test_a_number_does_not_come_again_while_its_former_volume_is_there() -> None:
    resource = cluster(3)
    leaving = seen(resource, VOTER, VOTER, replace(ABSENT, disk="disk-2"))
    volume = leaving.instances[2].volume
    assert volume is not None
    volume["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:59Z"
    made = plan(resource, leaving)
    assert acts(made.actions) == []
    assert made.verdict.message.endswith("demo-2 is not added yet: the volume of the former member still exists.")


def test_with_the_highest_down_it_is_the_one_that_goes() -> None:
    resource = cluster(1)
    assert acts(plan(resource, seen(resource, VOTER, VOTER, DOWN)).actions) == ["remove demo-2"]


def test_with_another_surplus_one_down_that_one_goes_first() -> None:
    resource = cluster(1)
    assert acts(plan(resource, seen(resource, VOTER, DOWN, VOTER)).actions) == ["remove demo-1"]


def test_with_one_down_that_stays_nobody_is_removed() -> None:
    resource = cluster(3, recorded=range(5))
    made = plan(resource, seen(resource, VOTER, DOWN, VOTER, VOTER, VOTER))
    assert acts(made.actions) == []
    assert made.verdict.reason == "ScaleDownHeld"
    assert made.verdict.message == (
        "Scaling from 5 to 3 members; demo-4 is not removed yet: demo-1 is down, so that afterwards only 3 of 4 voters "
        "would be healthy, and 3 must agree."
    )


def test_an_operator_that_sees_a_minority_removes_nobody() -> None:
    """A quorum agrees on the list, so the others are there; but who cannot see them must not count on them."""
    resource = cluster(3, recorded=range(5))
    made = plan(resource, seen(resource, VOTER, VOTER, *[replace(DOWN, runs=True, ready=True)] * 3))
    assert acts(made.actions) == []
    assert made.verdict.reason == "ScaleDownHeld"


def test_a_member_that_cannot_be_reached_and_is_ready_counts_as_healthy_where_it_would_be_removed() -> None:
    resource = cluster(3, recorded=range(5))
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, DOWN, replace(DOWN, runs=True, ready=True)))
    assert acts(made.actions) == ["remove demo-3"], "the one that is down goes before it"
    alone = plan(resource, seen(resource, VOTER, DOWN, VOTER, VOTER, replace(DOWN, runs=True, ready=True)))
    assert acts(alone.actions) == []
    assert alone.verdict.reason == "ScaleDownHeld"


def test_a_leader_that_cannot_be_reached_is_not_removed_and_the_others_are_healthy_all_the_same() -> None:
    resource = cluster(1)
    world = seen(resource, VOTER, VOTER, replace(DOWN, runs=True, ready=True), leader=2)
    assert [instance.name for instance in world.healthy_voters] == ["demo-0", "demo-1"]
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert "demo-2 is not removed yet: it is the leader, and is unreachable for a handover" in made.verdict.message


def test_a_missing_low_number_is_filled_before_the_surplus_goes() -> None:
    resource = cluster(3, recorded=[0, 2, 3])
    assert acts(plan(resource, seen(resource, VOTER, ABSENT, VOTER, VOTER)).actions) == [
        "add a learner at http://demo-1.demo.default.svc:2380"
    ]
    four = cluster(3, recorded=range(4))
    assert acts(plan(four, seen(four, VOTER, VOTER, VOTER, VOTER)).actions) == ["remove demo-3"]


def test_the_last_voter_is_never_removed() -> None:
    resource = cluster(1, recorded=[1])
    made = plan(resource, seen(resource, ABSENT, VOTER, leader=1))
    assert acts(made.actions) == ["add a learner at http://demo-0.demo.default.svc:2380"]


def test_a_member_that_is_of_no_place_stops_everything() -> None:
    resource = cluster(1)
    world = seen(resource, VOTER, VOTER, VOTER)
    foreign = Member(7, "guest", ("http://guest:2380",))
    world = replace(world, members=(*(world.members or ()), foreign))
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.verdict.reason) == (Progress.BLOCKED, "UnknownMember")
    assert "guest at http://guest:2380" in made.verdict.message


def test_another_clusters_volume_is_left_alone() -> None:
    resource = cluster(recorded=None)
    world = seen(resource, replace(ABSENT, disk="theirs"), ABSENT, ABSENT, known=False, stateful_set=False)
    volume = world.instances[0].volume
    assert volume is not None
    volume["metadata"]["labels"] = {"etcd.ydzs.io/cluster-uid": "u-0"}
    made = plan(resource, world)
    assert made.actions == ()
    assert made.verdict.reason == "VolumeInTheWay"
    assert "data-demo-0" in made.verdict.message


def test_another_cluster_in_its_place_stops_everything() -> None:
    resource = cluster()
    world = replace(seen(resource, VOTER, VOTER, VOTER), cluster_id=0xBAD)
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.verdict.reason == "AnotherCluster"
    assert made.status["clusterID"] == "00000000000000c1"


def test_an_operator_that_is_cut_off_touches_nothing() -> None:
    resource = cluster(1)
    cut_off = replace(VOTER, up=False, ready=True)
    made = plan(resource, seen(resource, cut_off, cut_off, cut_off, known=False, replicas=3))
    assert acts(made.actions) == []
    assert replicas_and_start(made) == (3, "existing")
    assert made.verdict.reason == "EtcdUnreachable"
    assert "NetworkPolicy" in made.verdict.message
    assert made.status["readyMembers"] == 3, "the kubelet knows"
