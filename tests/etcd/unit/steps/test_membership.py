"""Membership changes: which member the operator adds, promotes or removes next, and what blocks the change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.etcd.client.commands import MoveLeader, Promote
from operators.etcd.client.server import Member, Members
from operators.etcd.observe import with_members
from operators.etcd.steps.guards import refuse_unknown_members
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import Patch, Plan
from shared.status.verdict import Progress
from tests.etcd.unit.steps.test_adoption import record
from tests.etcd.unit.world import (
    ABSENT,
    AWAITED,
    CLUSTER_ID,
    DOWN,
    LEARNER,
    VOTER,
    At,
    acts,
    assess,
    cluster,
    member_id,
    plan,
    replicas_and_start,
    seen,
)

LOST = replace(DOWN, disk="another", empty_data_dir=True)


def test_new_cluster_starts_with_one_seed_member() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, seen(resource, ABSENT, ABSENT, ABSENT, known=False, stateful_set=False))
    assert replicas_and_start(made) == (1, "new demo-0")
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.status["phase"]) == (Progress.PROGRESSING, "Creating")


def test_bootstrapped_cluster_is_recorded_before_any_other_step() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, seen(resource, VOTER, ABSENT, ABSENT, stateful_set=False))
    assert (made.verdict.reason, made.requeue) == ("Recording", 0)
    assert acts(made.actions) == []
    assert made.status["clusterID"] == "00000000000000c1"
    assert made.status["members"][0]["volume"] == "disk-0"


def test_recorded_cluster_is_never_bootstrapped_again() -> None:
    resource = cluster(recorded=[0])
    for world in (
        seen(resource, VOTER, ABSENT, ABSENT),
        seen(resource, DOWN, ABSENT, ABSENT, known=False),
        seen(resource, ABSENT, ABSENT, ABSENT, known=False, stateful_set=False),
    ):
        assert replicas_and_start(plan(resource, world)) == (1, "existing")


def test_lost_status_does_not_cause_a_second_bootstrap() -> None:
    recorded, resource = cluster(), cluster(recorded=None)
    closed = seen(recorded, DOWN, DOWN, DOWN, known=False)
    assert replicas_and_start(plan(resource, closed)) == (3, "existing"), "the StatefulSet proves a bootstrap"
    without = replace(closed, stateful_set=None)
    assert replicas_and_start(plan(resource, without)) == (3, "existing"), "the volumes prove a bootstrap"


def test_cluster_to_be_restored_is_never_bootstrapped_empty() -> None:
    restore = {"from": {"backup": "yesterday"}}
    resource = cluster(recorded=None, restore=restore)
    world = seen(resource, ABSENT, ABSENT, ABSENT, known=False, stateful_set=False)
    made = plan(resource, world)
    applied = [action for action in made.actions if getattr(action, "obj", {}).get("kind") == "StatefulSet"]
    assert not applied or replicas_and_start(made) == (1, "existing")


def test_deleted_stateful_set_is_recreated_with_all_replicas() -> None:
    resource = cluster()
    world = seen(resource, *[replace(DOWN, pod=False)] * 3, known=False, stateful_set=False)
    assert replicas_and_start(plan(resource, world)) == (3, "existing")


def test_lowest_missing_ordinal_is_added_as_a_learner() -> None:
    resource = cluster(recorded=[0])
    made = plan(resource, seen(resource, VOTER, ABSENT, ABSENT))
    assert acts(made.actions) == ["add a learner at http://demo-1.demo.default.svc:2380"]


def test_downgrade_that_members_do_not_report_is_ended_before_one_is_added() -> None:
    """3.5 lets no member join during a downgrade, and does not end it while an added member does not answer."""
    resource = cluster(recorded=[0], version="3.5.26")
    voter = replace(VOTER, version="3.5.26")
    made = plan(resource, seen(resource, voter, ABSENT, ABSENT, image="v3.5.26", cluster_version="3.5.0"))
    assert acts(made.actions) == ["cancel the downgrade", "add a learner at http://demo-1.demo.default.svc:2380"]


def test_only_the_added_learner_gets_a_pod_and_may_join() -> None:
    resource = cluster(recorded=[0])
    made = plan(resource, seen(resource, VOTER, AWAITED, ABSENT))
    assert replicas_and_start(made) == (2, "existing demo-1")
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.message) == ("Joining", "demo-1 is joining: it has no pod yet.")


def test_volume_of_a_learner_is_recorded_before_it_starts() -> None:
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
        "progress": {"index": 0, "since": "2026-01-01T12:00:00Z"},
    }


def test_no_member_may_join_after_the_learner_has_started() -> None:
    resource = cluster(recorded=[0, 1])
    assert replicas_and_start(plan(resource, seen(resource, VOTER, LEARNER, ABSENT))) == (2, "existing")


def test_learner_that_has_caught_up_is_promoted() -> None:
    resource = cluster(recorded=[0, 1])
    assert acts(plan(resource, seen(resource, VOTER, LEARNER, ABSENT)).actions) == ["promote demo-1"]


def test_lagging_learner_is_not_promoted() -> None:
    resource = cluster(recorded=[0, 1])
    fresh = replace(LEARNER, applied=899, made="2026-01-01T11:59:00Z")
    made = plan(resource, seen(resource, VOTER, fresh, ABSENT))
    assert acts(made.actions) == []
    assert made.verdict.message == "demo-1 is joining: it has applied 899 of 1000 log entries."


def test_learner_that_never_starts_is_removed_after_a_report() -> None:
    resource = cluster(recorded=[0, 1])
    resource.obj["status"]["members"][1]["progress"] = {"index": 0, "since": "2026-01-01T11:00:00Z"}
    stuck = At(learner=True, started=False, up=False, problem="ImagePullBackOff: no such image")
    world = seen(resource, VOTER, replace(stuck, made="2026-01-01T11:51:00Z"), ABSENT)
    times = [instance.volume for instance in world.instances if instance.number == 1 and instance.volume]
    times[0]["metadata"]["creationTimestamp"] = "2026-01-01T11:51:00Z"
    assert acts(plan(resource, world).actions) == [], "9 minutes are within the deadline"
    times[0]["metadata"]["creationTimestamp"] = "2026-01-01T11:49:59Z"
    world.instances[1].pod_obj["metadata"]["creationTimestamp"] = "2026-01-01T11:49:59Z"  # type: ignore[index]
    report = plan(resource, world)
    assert acts(report.actions) == [], "the report precedes the removal"
    assert report.verdict.reason == "LearnerStuck"
    assert "cannot pull its image: no such image" in report.verdict.message
    resource.obj["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "LearnerStuck"}]
    assert acts(plan(resource, world).actions) == ["remove http://demo-1.demo.default.svc:2380"]


def test_surplus_learner_is_removed_instead_of_promoted() -> None:
    resource = cluster(1, recorded=[0, 1])
    assert acts(plan(resource, seen(resource, VOTER, LEARNER)).actions) == ["remove demo-1"]


def patched_pods(made: Plan, field: str) -> list[str]:
    """Return the names of the pods whose metadata field is patched."""
    patches = [action for action in made.actions if isinstance(action, Patch) and action.kind == POD]
    return [patch.obj["metadata"]["name"] for patch in patches if field in patch.change["metadata"]]


def test_started_member_may_not_bootstrap_again_in_the_same_pod() -> None:
    """A node that reboots with its data in memory restarts the same pod with an empty data directory."""
    resource = cluster(recorded=[0, 1])
    made = plan(resource, seen(resource, VOTER, LEARNER, ABSENT))
    assert patched_pods(made, "annotations") == ["demo-0", "demo-1"]
    closing = [at for at, action in enumerate(made.actions) if isinstance(action, Patch)]
    voting = [at for at, action in enumerate(made.actions) if isinstance(action, Promote)]
    assert max(closing) < min(voting), "the patch precedes the promotion"
    awaited = seen(resource, VOTER, At(learner=True, started=False, up=False, runs=True), ABSENT)
    assert patched_pods(plan(resource, awaited), "annotations") == ["demo-0"]


def test_seed_may_not_bootstrap_again_before_clients_connect() -> None:
    resource = cluster(recorded=None)
    assert patched_pods(plan(resource, seen(resource, VOTER, ABSENT, ABSENT)), "annotations") == []
    known = cluster(recorded=[0])
    made = plan(known, seen(known, VOTER, ABSENT, ABSENT))
    patches = [action for action in made.actions if isinstance(action, Patch) and action.kind == POD]
    kinds = [next(iter(patch.change["metadata"])) for patch in patches]
    assert kinds == ["annotations", "labels"]


def test_no_member_is_added_while_a_voter_is_down() -> None:
    resource = cluster(5)
    made = plan(resource, seen(resource, VOTER, VOTER, DOWN, ABSENT, ABSENT))
    assert acts(made.actions) == []
    assert made.verdict.reason == "GrowBlocked"
    assert made.verdict.message.endswith("demo-3 is not added yet: demo-2 is down.")


def test_no_member_is_added_until_all_voters_pass_etcds_health_interval() -> None:
    resource = cluster(5)
    world = seen(resource, VOTER, VOTER, VOTER, ABSENT, ABSENT)
    containers = world.instances[2].pod_obj["status"]["containerStatuses"]  # type: ignore[index]
    containers[0]["state"] = {"running": {"startedAt": "2026-01-01T11:59:58Z"}}
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.requeue == 4.0


@pytest.mark.parametrize("learner", [False, True])
def test_member_that_lost_its_volume_is_removed_and_rejoins_as_a_learner(learner: bool) -> None:
    resource = cluster()
    lost = replace(LOST, learner=learner)
    made = plan(resource, seen(resource, VOTER, lost, VOTER))
    assert acts(made.actions) == ["remove demo-1"]
    assert made.verdict.reason == "Replacing"
    removed = seen(resource, VOTER, replace(lost, member=False), VOTER)
    assert acts(plan(resource, removed).actions) == ["add a learner at http://demo-1.demo.default.svc:2380"]
    assert replicas_and_start(plan(resource, removed)) == (3, "existing"), (
        "a pod may not join before its member is added"
    )


def test_empty_data_directory_on_the_same_volume_counts_as_data_loss() -> None:
    resource = cluster()
    assert acts(plan(resource, seen(resource, VOTER, replace(DOWN, empty_data_dir=True), VOTER)).actions) == [
        "remove demo-1"
    ]


def test_directory_that_was_empty_at_one_start_only_may_be_an_unmounted_disk() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, replace(DOWN, empty_once=True), VOTER))
    assert acts(made.actions) == []
    assert "demo-1 may have lost its data: its data directory was empty at the start at 11:10:00 UTC" in (
        made.verdict.message
    )
    [_, recorded, _] = made.status["members"]
    assert recorded["foundEmpty"] == {"first": "2026-01-01T11:10:00Z", "last": "2026-01-01T11:10:00Z"}


def test_unreachable_member_is_never_removed() -> None:
    resource = cluster()
    for away in (DOWN, replace(DOWN, pod=False), replace(DOWN, pod=False, disk=""), replace(DOWN, leaving=True)):
        made = plan(resource, seen(resource, VOTER, away, VOTER))
        assert acts(made.actions) == []
        assert made.status["phase"] == "Degraded"
        assert "demo-1" in made.verdict.message


def test_healthy_member_on_another_volume_is_recorded() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, replace(VOTER, disk="moved"), VOTER))
    assert acts(made.actions) == []
    assert made.verdict.reason == "Recording"
    assert made.status["members"][1]["volume"] == "moved"


def test_lost_member_is_removed_but_not_replaced_while_another_is_down() -> None:
    """Quorum is 3 of 5 and three voters are healthy. Removing the lost one only lowers the quorum."""
    resource = cluster(5, recorded=range(5))
    assert acts(plan(resource, seen(resource, VOTER, LOST, VOTER, DOWN, VOTER)).actions) == ["remove demo-1"]
    removed = seen(resource, VOTER, replace(LOST, member=False), VOTER, DOWN, VOTER)
    made = plan(resource, removed)
    assert acts(made.actions) == []
    assert made.verdict.reason == "GrowBlocked"


def test_data_of_a_former_member_is_deleted_before_its_ordinal_is_reused() -> None:
    resource = cluster()
    corrupt = At(member=False, up=False, runs=False)
    made = plan(resource, seen(resource, VOTER, corrupt, VOTER))
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-1 (disk-1)", "delete Pod demo-1 (pod-1)"]
    entry = {"name": "demo-1", "volume": "disk-1", "healthy": False}
    assert made.status["members"][1] == entry, "recorded until it is added again"
    fresh = seen(resource, VOTER, replace(corrupt, disk="fresh"), VOTER)
    assert acts(plan(resource, fresh).actions) == ["add a learner at http://demo-1.demo.default.svc:2380"]


def test_in_memory_member_loses_its_data_with_its_pod() -> None:
    resource = cluster(storage={"medium": "Memory"})
    corrupt = At(member=False, up=False, runs=False)
    assert acts(plan(resource, seen(resource, VOTER, corrupt, VOTER)).actions) == ["delete Pod demo-1 (disk-1)"]
    lost = seen(resource, VOTER, replace(DOWN, disk="another"), VOTER)
    assert acts(plan(resource, lost).actions) == ["remove demo-1"]


def test_scale_down_removes_the_highest_ordinal_first() -> None:
    resource = cluster(1)
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER))
    assert acts(made.actions) == ["remove demo-2"]
    assert made.verdict.message == "Scaling from 3 to 1 members: removing demo-2."


def test_leader_hands_over_before_it_is_removed() -> None:
    resource = cluster(1)
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, leader=2))
    assert acts(made.actions) == ["move the leadership to demo-0"]
    (call,) = [action for action in made.actions if isinstance(action, MoveLeader)]
    assert [endpoint.name for endpoint in call.endpoints] == ["demo-2"], "only the leader can transfer its leadership"


def test_pod_of_a_removed_member_is_deleted_before_its_volume() -> None:
    resource = cluster(1)
    removed = At(member=False, up=False, runs=False)
    world = seen(resource, VOTER, VOTER, removed)
    made = plan(resource, world)
    assert replicas_and_start(made) == (2, "existing")
    assert "delete PersistentVolumeClaim" not in str(acts(made.actions)), "the pod still exists"
    left = seen(resource, VOTER, VOTER, replace(removed, pod=False))
    assert acts(plan(resource, left).actions) == ["delete PersistentVolumeClaim data-demo-2 (disk-2)"]


def test_ordinal_is_not_reused_while_its_former_volume_exists() -> None:
    resource = cluster(3)
    leaving = seen(resource, VOTER, VOTER, replace(ABSENT, disk="disk-2"))
    volume = leaving.instances[2].volume
    assert volume is not None
    volume["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:59Z"
    made = plan(resource, leaving)
    assert acts(made.actions) == []
    assert made.verdict.message.endswith("demo-2 is not added yet: the volume of the former member still exists.")


def test_scale_down_removes_the_highest_ordinal_while_it_is_down() -> None:
    resource = cluster(1)
    assert acts(plan(resource, seen(resource, VOTER, VOTER, DOWN)).actions) == ["remove demo-2"]


def test_scale_down_removes_an_unreachable_surplus_member_first() -> None:
    resource = cluster(1)
    assert acts(plan(resource, seen(resource, VOTER, DOWN, VOTER)).actions) == ["remove demo-1"]


def test_scale_down_is_blocked_while_a_remaining_member_is_down() -> None:
    resource = cluster(3, recorded=range(5))
    made = plan(resource, seen(resource, VOTER, DOWN, VOTER, VOTER, VOTER))
    assert acts(made.actions) == []
    assert made.verdict.reason == "ScaleDownBlocked"
    assert made.verdict.message == (
        "Scaling from 5 to 3 members; demo-4 is not removed yet: demo-1 is down, so that afterwards only 3 of 4 voters "
        "would be healthy, and 3 must agree."
    )


def test_operator_that_reaches_a_minority_removes_no_member() -> None:
    """The member list proves a quorum, but an operator that cannot reach the others does not rely on them."""
    resource = cluster(3, recorded=range(5))
    made = plan(resource, seen(resource, VOTER, VOTER, *[replace(DOWN, runs=True, ready=True)] * 3))
    assert acts(made.actions) == []
    assert made.verdict.reason == "ScaleDownBlocked"


def test_unreachable_but_ready_member_is_not_removed_as_down() -> None:
    resource = cluster(3, recorded=range(5))
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, DOWN, replace(DOWN, runs=True, ready=True)))
    assert acts(made.actions) == ["remove demo-3"], "the member that is down is removed first"
    alone = plan(resource, seen(resource, VOTER, DOWN, VOTER, VOTER, replace(DOWN, runs=True, ready=True)))
    assert acts(alone.actions) == []
    assert alone.verdict.reason == "ScaleDownBlocked"


def test_unreachable_leader_is_not_removed_and_others_stay_healthy() -> None:
    resource = cluster(1)
    world = seen(resource, VOTER, VOTER, replace(DOWN, runs=True, ready=True), leader=2)
    assert [instance.name for instance in world.healthy_voters] == ["demo-0", "demo-1"]
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert "demo-2 is not removed yet: it is the leader, and is unreachable for a handover" in made.verdict.message


def test_missing_ordinal_is_filled_before_surplus_members_are_removed() -> None:
    resource = cluster(3, recorded=[0, 2, 3])
    assert acts(plan(resource, seen(resource, VOTER, ABSENT, VOTER, VOTER)).actions) == [
        "add a learner at http://demo-1.demo.default.svc:2380"
    ]
    four = cluster(3, recorded=range(4))
    assert acts(plan(four, seen(four, VOTER, VOTER, VOTER, VOTER)).actions) == ["remove demo-3"]


def test_last_voter_is_never_removed() -> None:
    resource = cluster(1, recorded=[1])
    made = plan(resource, seen(resource, ABSENT, VOTER, leader=1))
    assert acts(made.actions) == ["add a learner at http://demo-0.demo.default.svc:2380"]


@pytest.mark.parametrize("host", ["guest", "demo-9.demo.default.svc", "demo-99999999.demo.default.svc"])
def test_unknown_member_blocks_every_change(host: str) -> None:
    """Nor does its address decide how many pods there are."""
    resource = cluster(1)
    world = seen(resource, VOTER, VOTER, VOTER)
    foreign = Member(7, "guest", (f"http://{host}:2380",), learner=True)
    made = plan(resource, with_members(resource, world, Members(CLUSTER_ID, (*(world.members or ()), foreign))))
    assert (acts(made.actions), replicas_and_start(made)) == ([], (3, "existing"))
    assert (made.verdict.progress, made.verdict.reason) == (Progress.BLOCKED, "UnknownMember")
    assert f"guest at http://{host}:2380" in made.verdict.message
    assert made.verdict.message.endswith("undone: etcdctl member remove 7 (if nothing needs it)")


def test_volume_of_another_cluster_is_not_changed() -> None:
    resource = cluster(recorded=None)
    world = seen(resource, replace(ABSENT, disk="foreign"), ABSENT, ABSENT, known=False, stateful_set=False)
    volume = world.instances[0].volume
    assert volume is not None
    volume["metadata"]["labels"] = {"etcd.ydzs.io/cluster-uid": "u-0"}
    made = plan(resource, world)
    assert made.actions == ()
    assert made.verdict.reason == "VolumeInTheWay"
    assert "data-demo-0" in made.verdict.message


def test_unexpected_cluster_id_blocks_every_change() -> None:
    resource = cluster()
    world = replace(seen(resource, VOTER, VOTER, VOTER), cluster_id=0xBAD)
    made = plan(resource, world)
    assert acts(made.actions) == []
    assert made.verdict.reason == "AnotherCluster"
    assert made.status["clusterID"] == "00000000000000c1"


def test_operator_that_reaches_no_member_changes_nothing() -> None:
    resource = cluster(1)
    cut_off = replace(VOTER, up=False, ready=True)
    made = plan(resource, seen(resource, cut_off, cut_off, cut_off, known=False, replicas=3))
    assert acts(made.actions) == []
    assert replicas_and_start(made) == (3, "existing")
    assert made.verdict.reason == "EtcdUnreachable"
    assert "NetworkPolicy" in made.verdict.message
    assert made.status["readyMembers"] == 3, "readiness is the kubelet's"


@pytest.mark.parametrize("version", ["3.4.20", "3.5.5"])
def test_no_member_is_added_to_a_version_that_may_corrupt_it_with_authentication(version: str) -> None:
    resource = cluster(recorded=[0, 1], version=version, status={"version": version})
    own = replace(VOTER, version=version)
    found = replace(seen(resource, own, own, ABSENT), cluster_version=f"{version[:3]}.0")
    for enabled, added in ((False, True), (True, False), (None, False)):
        made = plan(resource, replace(found, auth_enabled=enabled))
        assert bool(acts(made.actions)) == added
        assert ("issues/14571" in made.verdict.message) != added
    assert made.verdict.reason == "GrowBlocked"


@pytest.mark.parametrize(
    "urls",
    [
        {1: "http://demo-5.demo.default.svc:2380"},
        {2: "http://demo-5.demo.default.svc:2380"},
        {2: "http://10.0.0.9:2380"},
        {1: "http://demo-2.demo.default.svc:2380", 2: "http://demo-1.demo.default.svc:2380"},
    ],
    ids=["another ordinal", "of the last member", "an address", "exchanged"],
)
def test_member_with_the_url_of_another_pod_is_unknown_and_its_own_pod_stays(urls: dict[int, str]) -> None:
    """E8: a slip in `etcdctl member update` deleted the volume of a voter that was healthy."""
    resource, found = cluster(3), seen(cluster(3), VOTER, VOTER, VOTER)
    listed = tuple(
        replace(member, peer_urls=(urls[n],)) if n in urls else member for n, member in enumerate(found.members or ())
    )
    unassigned = replace(found, instances=tuple(replace(each, member=None) for each in found.instances))
    made = plan(resource, with_members(resource, unassigned, Members(CLUSTER_ID, listed)))
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.verdict.reason) == (Progress.BLOCKED, "UnknownMember")
    repairs = (
        f"etcdctl member update {member_id(n):x} --peer-urls=http://demo-{n}.demo.default.svc:2380"
        for n in sorted(urls)
    )
    assert made.verdict.message.endswith(f"until that is undone: {'; '.join(repairs)}")
    assert replicas_and_start(made)[0] == 3
    removed = [action for action in made.actions if isinstance(action, Patch) and "labels" in action.change["metadata"]]
    assert removed == [], "clients are served as before"


@pytest.mark.parametrize(
    ("name", "recorded", "repair"),
    [
        ("demo-1", {}, "update a1 --peer-urls=http://demo-1.demo.default.svc:2380"),
        ("renamed", record(1), "update a1 --peer-urls=http://demo-1.demo.default.svc:2380"),
        ("renamed", {}, "remove a1 (if nothing needs it)"),
    ],
    ids=["by its name", "by the record on its volume claim", "unknown"],
)
def test_moved_member_of_a_pod_that_does_not_answer_is_recognized(name: str, recorded: Obj, repair: str) -> None:
    resource, found = cluster(3), seen(cluster(3), VOTER, DOWN, VOTER)
    volume = found.instances[1].volume
    assert volume is not None
    volume["metadata"]["annotations"] = recorded
    moved = Member(member_id(1), name, ("http://10.0.0.9:2380",))
    listed = tuple(moved if each.id == moved.id else each for each in found.voters)
    unassigned = replace(found, instances=tuple(replace(each, member=None) for each in found.instances))
    world = with_members(resource, unassigned, Members(CLUSTER_ID, listed))
    assert refuse_unknown_members(assess(resource, world)).message.endswith(f"undone: etcdctl member {repair}")
