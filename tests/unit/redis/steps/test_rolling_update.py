"""What needs a restart: in what order pods go, and what holds them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operators.redis.slots.hash_slots import Slots
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.unit.redis.world import NEW, NOW, PLANNER, At, acts, cluster, formed, node_id, of, plan, replica, seen, world

M0, M1, M2, R0, R1, R2 = formed()
OLD = [replace(at, old=True) for at in formed()]
MASTERS_OLD = [*OLD[:3], R0, R1, R2]
RECENTLY = "2026-01-01T11:59:30Z"
BROKEN = {"up": False, "failed": True, "trouble": "CrashLoopBackOff: back-off restarting"}


def planned(*at: At, **more: Any) -> Plan:
    return plan(*world(*at, **more))


def test_replicas_go_first_one_at_a_time() -> None:
    made = planned(*OLD)
    assert acts(made.actions) == ["delete Pod demo-3"]
    assert (made.verdict.reason, made.status["phase"]) == ("Upgrading", "Upgrading")


def test_a_master_goes_only_after_a_replica_took_its_place() -> None:
    made = planned(*MASTERS_OLD)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode, acts(made.actions)) == (node_id(3), "", [str(call)])
    turned = [replica(3, old=True), *OLD[1:3], At(M0.slots), R1, R2]
    assert acts(planned(*turned).actions) == ["delete Pod demo-0"], "it is a replica now"
    turned[0] = replica(3, old=True, since="2026-01-01T11:59:56Z")
    assert acts(planned(*turned).actions) == [], "clients have yet to hear of it"


def test_of_several_replicas_one_that_is_current_takes_over() -> None:
    at = [*OLD[:3], replace(R0, old=True), R1, R2, replica(0)]
    rolled = planned(*at)
    assert acts(rolled.actions) == ["delete Pod demo-3"]
    at = [OLD[0], M1, M2, R0, R1, R2, replica(0, old=True, synced=True)]
    (call,) = of(planned(*[*at[:6], replica(0)]).actions, "FailOver")
    assert call.id in (node_id(3), node_id(6))


def test_a_master_is_not_restarted_while_its_only_replica_lags() -> None:
    made = planned(*OLD[:3], replace(R0, synced=False), R1, R2)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("RollHeld", True, [])
    assert made.verdict.message == (
        "Rolling update: 3 of 6 pods are outdated. demo-0 is not recreated yet: demo-3 is not in sync with its "
        "primary yet."
    )


@pytest.mark.parametrize("number", range(4))
def test_nor_while_its_only_replica_is_silent_though_one_of_the_two_is_to_go(number: int) -> None:
    """A restart that takes long would have that one elected, with less than was acknowledged."""
    at = [replace(spot, old=at < 4) for at, spot in enumerate(formed(4))]
    at[4 + number] = replace(at[4 + number], up=False)
    made = planned(*at, replicas=6)
    assert f"delete Pod demo-{number}" not in acts(made.actions)


def test_nobody_goes_while_another_shard_has_a_lagging_replica() -> None:
    made = planned(M0, M1, M2, replace(R0, old=True), R1, replace(R2, synced=False))
    assert (made.verdict.reason, acts(made.actions)) == ("RollHeld", [])


def test_one_that_was_just_made_anew_is_waited_for_without_alarm() -> None:
    made = planned(*OLD[:3], replace(R0, synced=False, made=RECENTLY), R1, R2)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("Upgrading", False, [])


def test_a_change_that_breaks_the_first_stops_there_and_says_what_is_wrong() -> None:
    made = planned(*OLD[:3], replace(R0, made=RECENTLY, **BROKEN), *OLD[4:])  # type: ignore[arg-type]
    assert (made.verdict.reason, acts(made.actions)) == ("RollHeld", [])
    assert "demo-3 does not start: CrashLoopBackOff: back-off restarting" in made.verdict.message
    assert "demo-3 is already updated. Fix the spec or revert the change" in made.verdict.message


def test_the_corrected_change_mends_what_the_first_one_broke() -> None:
    made = planned(*OLD[:3], replace(R0, old=True, **BROKEN), *OLD[4:])  # type: ignore[arg-type]
    assert acts(made.actions) == ["delete Pod demo-3"]


def test_a_replica_that_is_not_in_step_anyway_goes_first() -> None:
    """After a failover to a newer version, the former master may understand nothing of what it is sent."""
    at = [replica(3, old=True, synced=False), *OLD[1:3], At(M0.slots), R1, R2]
    assert acts(planned(*at).actions) == ["delete Pod demo-0"]


def test_while_a_pod_is_on_its_way_out_no_other_goes() -> None:
    made = planned(*OLD[:4], replace(R1, leaving=True), R2)
    assert (made.verdict.reason, acts(made.actions)) == ("Upgrading", [])
    assert "demo-4 is being deleted" in made.verdict.message


def test_a_pod_that_does_not_go_is_named_with_what_keeps_it() -> None:
    resource, found = world(*OLD[:4], replace(R1, leaving=True), R2)
    late = NOW + timedelta(minutes=3)
    made = PLANNER.plan(resource, found, late)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("RollHeld", True, [])
    assert "demo-4 is being deleted: the deletion should have ended at 2026-01-01T11:59:30Z" in made.verdict.message
    resource, found = world(*OLD[:4], replace(R1, leaving=True, up=False, failed=True), R2)
    place = found.instances[4]
    assert place.pod_obj is not None
    place.pod_obj["metadata"]["finalizers"] = ["example.com/held"]
    ended = (*found.instances[:4], replace(place, pod=None), found.instances[5])
    made = PLANNER.plan(resource, replace(found, instances=ended), NOW)
    assert (made.verdict.reason, acts(made.actions)) == ("RollHeld", [])
    assert "demo-4 is being deleted: the pod has ended, but finalizers remain: example.com/held." in (
        made.verdict.message
    )


def test_without_a_replica_a_master_that_keeps_its_data_is_restarted() -> None:
    at = [At(slots, keys=5, old=True) for slots in ("0-5460", "5461-10922", "10923-16383")]
    made = planned(*at, replicasPerMaster=0)
    assert acts(made.actions) == ["delete Pod demo-0"]
    assert "its slots are not served until it is back" in made.verdict.message


def test_without_a_replica_and_without_storage_it_is_held() -> None:
    at = [At(slots, keys=5, old=True) for slots in ("0-5460", "5461-10922", "10923-16383")]
    made = planned(*at, replicasPerMaster=0, storage=None)
    assert (made.verdict.reason, acts(made.actions)) == ("RollHeld", [])
    assert "Increase spec.replicas" in made.verdict.message


def test_a_replica_that_is_wanted_and_not_there_is_waited_for_even_with_storage() -> None:
    made = planned(*OLD[:3], replace(R0, up=False, failed=True), R1, R2)
    assert (made.verdict.reason, acts(made.actions)) == ("RollHeld", [])


def test_without_storage_a_pod_that_may_have_the_only_copy_is_not_deleted_though_it_does_not_run() -> None:
    at = [replace(M0, old=True, **BROKEN), M1, M2, replica(1), replica(2), replica(1)]  # type: ignore[arg-type]
    assert acts(planned(*at, storage=None).actions) == []
    assert acts(planned(*at).actions) == ["delete Pod demo-0"], "with storage its data waits for the next pod"
    never = [replace(NEW, old=True, up=False), *[NEW] * 5]
    assert acts(planned(*never, storage=None, begun=False).actions) == ["delete Pod demo-0"], "and before it began"


def test_who_replaces_pods_is_as_the_spec_says() -> None:
    by_hand = [{"updateStrategy": {"type": "OnDelete"}}]
    made = planned(*OLD, pod=by_hand)
    assert (made.verdict.reason, made.verdict.progress, acts(made.actions)) == (
        "PodsOutdated",
        Progress.PROGRESSING,
        [],
    )


@pytest.mark.parametrize(
    ("version", "told"),
    [("3.2.8", "redis 3.2.8 is not supported"), ("7.0.15", "older than redis 8.0.2, which a node runs")],
)
def test_a_version_that_is_refused_changes_nothing(version: str, told: str) -> None:
    resource = cluster(*formed(), version=version)
    found = seen(resource, *formed())
    made = plan(resource, found)
    assert (made.verdict.reason, made.verdict.progress) == ("VersionRefused", Progress.BLOCKED)
    assert told in made.verdict.message
    assert acts(made.actions) == []
    (applied,) = [action.obj for action in of(made.actions, "Apply") if action.obj["kind"] == "StatefulSet"]
    assert applied["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/redis:8.0.2"
    assert made.status["readyReplicas"] == 6, "what runs is reported all the same"


def test_healing_goes_on_while_a_version_is_refused() -> None:
    at = (*formed()[:5], replace(R2, up=False, pod=False, disk="b", failed=True))
    resource = cluster(*at, version="3.2.8")
    assert of(plan(resource, seen(resource, *at)).actions, "Forget")


def test_of_a_version_that_is_refused_nothing_is_made() -> None:
    resource = cluster(begun=False, phase="", replicas=6, version="3.2.8")
    made = plan(resource, seen(resource, stateful_set=False))
    assert (made.verdict.reason, made.status["phase"], made.actions) == ("VersionRefused", "Failed", ())


def test_scaling_waits_for_the_roll() -> None:
    """Slots of a newer version cannot go to an older one."""
    made = planned(*OLD, At(epoch=0), replica(6))
    assert of(made.actions, "MoveSlots") == []
    assert acts(made.actions) == ["delete Pod demo-3"]


def test_new_nodes_do_not_wait_for_a_roll_that_is_held_for_want_of_a_replica() -> None:
    """Else who lacks replicas could not be given any."""
    alone = [At(str(Slots.of(range(a, b))), keys=1, old=True) for a, b in ((0, 5461), (5461, 10923), (10923, 16384))]
    made = planned(*alone, At(epoch=0), At(epoch=0), At(epoch=0), storage=None)
    assert len(of(made.actions, "Replicate")) == 3
