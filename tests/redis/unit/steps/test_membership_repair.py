"""Membership repair: new addresses, failover of lost primaries, CLUSTER FORGET; and no change on a partial view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.client.responses import Node
from operators.redis.slots.hash_slots import Slots
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.redis.unit.world import (
    ABSENT,
    NEW,
    NEW_RECORDED,
    At,
    acts,
    cluster,
    formed,
    node_id,
    of,
    plan,
    planned,
    replica,
    seen,
    world,
)

P0, P1, P2, R0, R1, R2 = formed()


def lost(at: At, number: int, **more: object) -> At:
    """State of a node that has lost its volume permanently and, by default, its pod."""
    return replace(at, **{"up": False, "failed": True, "disk": f"disk-{number}b", "pod": False, **more})  # type: ignore[arg-type]


def test_nodes_with_new_addresses_are_met_at_their_current_address() -> None:
    moved = [
        replace(at, address=f"10.1.0.{number}", stale_address=f"10.0.0.{number}") for number, at in enumerate(formed())
    ]
    made = planned(*moved)
    assert made.verdict.reason == "Meeting"
    calls = of(made.actions, "Meet")
    assert [(call.id, call.at.address) for call in calls] == [(node_id(n), f"10.1.0.{n}") for n in range(6)]
    assert [endpoint.name for endpoint in calls[0].via] == [f"demo-{n}" for n in range(1, 6)]
    assert acts(made.actions) == [str(call) for call in calls], "no other action is planned"


def test_no_meet_is_sent_for_a_node_whose_address_is_known() -> None:
    assert of(planned(*formed()).actions, "Meet") == []
    assert of(planned(P0, P1, P2, R0, R1, replace(R2, up=False)).actions, "Meet") == []


def with_unknown_member(
    *at: At, slots: str = "", primary: str = "", known_to: int = 99, runs: bool = False, **more: Any
) -> Plan:
    """Plan of a cluster in which the first nodes know a member that belongs to no pod."""
    resource, found = world(*at, **more)
    flags = frozenset({"slave" if primary else "master", *([] if runs else ["fail"])})
    unknown = Node("f" * 40, "10.9.9.9", 6379, flags, primary, 99, linked=runs, slots=Slots.parse(slots))
    instances = []
    for instance in found.instances:
        report = instance.report
        if report and instance.number < known_to:
            instance = replace(instance, report=replace(report, nodes=(*report.nodes, unknown)))
        instances.append(instance)
    return plan(resource, replace(found, instances=tuple(instances)))


@pytest.mark.parametrize("more", [{}, {"slots": "0-99"}, {"primary": node_id(0)}, {"known_to": 2}])
def test_unknown_node_blocks_changes_and_is_not_forgotten(more: dict[str, Any]) -> None:
    made = with_unknown_member(*formed(), *[replace(At(epoch=0))] * 2, **more)
    assert (made.verdict.reason, made.verdict.progress) == ("UnknownMember", Progress.BLOCKED)
    assert made.verdict.message.count("f" * 40) == 1
    assert f"CLUSTER FORGET {'f' * 40}" in made.verdict.message
    assert of(made.actions, "MoveSlots") == of(made.actions, "Forget") == []


def test_slots_of_an_unknown_node_do_not_count_as_served() -> None:
    """Two merged clusters report each other's slots: 6 pods of one of them were Available without a primary."""
    made = with_unknown_member(*formed(), slots="0-5460", runs=True)
    assert made.health
    assert made.health.available
    assert (made.health.available.holds, made.health.available.reason) == (None, "ServiceUnknown")
    assert "slots 0-5460" in made.health.available.message
    assert "ffffffff at 10.9.9.9, which belongs to none of its pods" in made.health.available.message


MOVED = replace(R0, address="10.9.0.1", stale_address="10.0.0.4")
LOST = replace(P0, up=False, failed=True, disk="another")


@pytest.mark.parametrize("more", [{}, {"primary": node_id(0)}, {"known_to": 2}])
def test_unknown_node_without_slots_does_not_prevent_repairs(more: dict[str, Any]) -> None:
    made = with_unknown_member(P0, P1, P2, MOVED, R1, R2, **more)
    assert [call.at.name for call in of(made.actions, "Meet")] == ["demo-3"]
    made = with_unknown_member(LOST, P1, P2, replace(R0, synced=False), R1, R2, **more)
    assert [call.at.name for call in of(made.actions, "FailOver")] == ["demo-3"]
    made = with_unknown_member(*formed()[:5], At(epoch=0), **more)
    assert [call.at.name for call in of(made.actions, "Replicate")] == ["demo-5"]


def test_unknown_node_that_may_have_slots_prevents_repairs() -> None:
    """The cluster may be merging with another one, which more messages would spread."""
    assert acts(with_unknown_member(P0, P1, P2, MOVED, R1, R2, slots="0-5460").actions) == []


def test_unknown_node_may_have_the_only_copy_of_lost_slots() -> None:
    lost_replica = replace(R0, up=False, failed=True, disk="another")
    made = with_unknown_member(LOST, P1, P2, lost_replica, R1, R2, primary=node_id(0))
    assert made.verdict.reason == "UnknownMember"
    assert of(made.actions, "AddSlots") == []


def test_former_node_that_a_returning_node_still_lists_is_forgotten_again() -> None:
    resource, found = world(*formed())
    former = Node("f" * 40, "10.9.9.9", 6379, frozenset({"master", "fail"}), linked=False)
    back = found.instances[4]
    assert back.report
    back = replace(back, report=replace(back.report, nodes=(*back.report.nodes, former)))
    instances = (*found.instances[:4], back, *found.instances[5:])
    made = plan(resource, replace(found, instances=instances, former={"f" * 40: "demo-2"}))
    assert made.verdict.message.startswith("Forgetting deleted nodes (CLUSTER FORGET): a former demo-2.")
    (forget,) = of(made.actions, "Forget")
    assert (forget.id, [endpoint.name for endpoint in forget.at]) == ("f" * 40, ["demo-4"])


def test_node_id_and_volume_are_recorded_before_the_node_joins() -> None:
    at = [*formed(), NEW]
    made = planned(*at)
    assert (made.verdict.reason, made.requeue, acts(made.actions)) == ("Recording", 0, [])
    again = cluster(*at, status=made.status)
    assert [(known.node_id, known.disk) for known in again.recorded_nodes][6] == (node_id(6), "disk-6")
    assert of(plan(again, seen(again, *at)).actions, "Meet"), "the recorded node joins"


def test_former_node_stays_recorded_until_no_node_lists_it() -> None:
    """The record is the only evidence of its loss."""
    successor = replace(NEW, incarnation=1, recorded=0, disk="disk-5b")
    resource, found = world(P0, P1, P2, R0, R1, successor)
    former = Node(node_id(5), "10.0.0.6", 6379, frozenset({"slave", "fail"}), node_id(2), 3, False)
    instances = list(found.instances)
    for number in range(5):
        report = instances[number].report
        assert report
        instances[number] = replace(instances[number], report=replace(report, nodes=(*report.nodes, former)))
    known = replace(found, instances=tuple(instances))
    made = plan(resource, known)
    assert [entry.get("nodeId") for entry in made.status["nodes"]][5] == node_id(5)
    (forget,) = of(made.actions, "Forget")
    assert (forget.id, len(forget.at)) == (node_id(5), 5)
    after = plan(resource, found)
    assert [entry.get("nodeId") for entry in after.status["nodes"]][5] == node_id(5, 1)
    assert after.verdict.reason == "Recording"
    assert after.status["former"] == [{"name": "demo-5", "nodeId": node_id(5)}], "an unreachable node may still list it"
    assert cluster(*formed(), status=after.status).former_nodes == {node_id(5): "demo-5"}


def test_former_nodes_stay_in_the_status_until_every_node_is_reachable() -> None:
    former = {"former": [{"name": "demo-5", "nodeId": node_id(5)}]}
    assert planned(P0, P1, P2, replace(R0, up=False), R1, R2, status=former).status["former"] == former["former"]
    assert "former" not in planned(*formed(), status=former).status


def test_records_are_kept_while_most_primaries_are_unreachable() -> None:
    at = [P0, replace(P1, up=False), replace(P2, up=False), R0, R1, replace(NEW, incarnation=1, recorded=0, disk="b")]
    made = planned(*at)
    assert [entry.get("nodeId") for entry in made.status["nodes"]][5] == node_id(5)


def test_replica_replaces_a_lost_primary_by_election() -> None:
    made = planned(lost(P0, 0), P1, P2, R0, R1, R2)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.primary, call.mode) == (node_id(3), node_id(0), "FORCE")
    assert made.verdict.message == "demo-0, which owns 5461 slots, lost its data; demo-3 is taking over."


def test_replica_replaces_a_lost_primary_only_once_it_notices_the_failure() -> None:
    """Otherwise a forced failover would depose a primary that the replica can reach."""
    made = planned(replace(lost(P0, 0), failed=False), P1, P2, R0, R1, R2)
    assert of(made.actions, "FailOver") == []
    assert made.verdict.message == (
        "demo-0, which owns 5461 slots, lost its data. Waiting for demo-3 to notice the failure before it takes over."
    )


def test_replica_of_a_lost_primary_does_not_wait_for_that_of_another_shard() -> None:
    first, second, *others = formed(5)
    made = planned(replace(lost(first, 0), failed=False), lost(second, 1), *others)
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(6)]


def test_replica_takes_over_from_a_lost_primary_without_a_majority() -> None:
    made = planned(lost(P0, 0), lost(P1, 1), P2, R0, R1, R2)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(3), "TAKEOVER")
    then = planned(lost(replace(P0, slots=""), 0, of=3), lost(P1, 1), P2, replace(R0, of=None, slots=P0.slots), R1, R2)
    assert [(call.id, call.mode) for call in of(then.actions, "FailOver")] == [(node_id(4), "FORCE")]


@pytest.mark.parametrize("away", [1, 2])
def test_failover_of_unreachable_primaries_is_left_to_redis(away: int) -> None:
    """A node that the operator cannot reach may still serve clients."""
    at = [replace(P0, up=False, failed=True), replace(P1, up=away < 2, failed=away > 1), P2, R0, R1, R2]
    made = planned(*at)
    assert acts(made.actions) == []
    assert "recovery" not in made.status


def test_replica_with_the_highest_offset_is_promoted() -> None:
    at = [lost(P0, 0), P1, P2, replace(R0, offset=900), R1, R2, replica(0, offset=950, keys=10), replica(0, offset=940)]
    (call,) = of(planned(*at, replicasPerMaster=1, replicas=8).actions, "FailOver")
    assert call.id == node_id(6)


def test_replica_that_never_completed_a_sync_is_not_promoted() -> None:
    """A node reports itself as a replica before its first sync: promoting it would serve an empty shard."""
    at = [lost(P0, 0), P1, P2, replace(R0, copied=False, keys=0), R1, R2]
    made = planned(*at)
    assert of(made.actions, "FailOver") == []
    assert made.verdict.reason == "SlotsLost"
    (call,) = of(planned(*at, replica(0, offset=1)).actions, "FailOver")
    assert call.id == node_id(6), "a complete copy that lags is better than an empty one"


def test_failover_waits_for_the_offset_of_a_starting_replica() -> None:
    starting = replica(0, up=False, failed=True, runs=True)
    made = planned(lost(P0, 0), P1, P2, R0, R1, R2, starting)
    assert (made.verdict.reason, acts(made.actions)) == ("TakingOver", [])
    assert "Waiting for the replication offset of demo-6" in made.verdict.message
    broken = replace(starting, problem="CrashLoopBackOff: back-off")
    assert of(planned(lost(P0, 0), P1, P2, R0, R1, R2, broken).actions, "FailOver")


def test_every_node_forgets_a_node_that_lost_its_data() -> None:
    made = planned(P0, P1, P2, R0, R1, lost(R2, 5))
    (call,) = of(made.actions, "Forget")
    assert (call.id, sorted(endpoint.name for endpoint in call.at)) == (node_id(5), [f"demo-{n}" for n in range(5)])


@pytest.mark.parametrize(
    "at",
    [
        (P0, P1, P2, R0, R1, replace(R2, up=False, failed=True)),
        (P0, P1, replace(P2, up=False, failed=True), R0, R1, R2),
        (lost(P0, 0), P1, P2, replace(R0, up=False, failed=True), R1, R2),
        (lost(replace(P0, slots=""), 0), P1, P2, R0, replace(R1, slots=P0.slots, of=None), R2),
    ],
    ids=[
        "unreachable replica",
        "unreachable primary",
        "lost primary whose replica may return",
        "lost node with a replica",
    ],
)
def test_node_that_may_return_is_not_forgotten(at: tuple[At, ...]) -> None:
    assert of(planned(*at).actions, "Forget") == []


def test_lost_node_is_forgotten_though_a_new_node_misses_slots_of_a_lost_primary() -> None:
    """Only the owner announces its slots, and a lost owner never returns: waiting for agreement would never end."""
    resource, found = world(P0, P1, lost(P2, 2), R0, R1, lost(R2, 5), replica(0, keys=10))
    new = found.instances[6]
    assert new.report
    nodes = tuple(replace(node, slots=Slots()) if node.id == node_id(2) else node for node in new.report.nodes)
    found = replace(found, instances=(*found.instances[:6], replace(new, report=replace(new.report, nodes=nodes))))
    assert "demo-6 reports no owner" in found.view.without([node_id(5)]).settled
    made = plan(resource, found)
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(5)]


def test_no_node_is_forgotten_while_the_cluster_views_differ() -> None:
    resource, found = world(P0, P1, P2, R0, R1, lost(R2, 5))
    instance = found.instances[3]
    assert instance.report
    lines = tuple(replace(node, linked=node.id != node_id(1)) for node in instance.report.nodes)
    instance = replace(instance, report=replace(instance.report, nodes=lines))
    made = plan(resource, replace(found, instances=(*found.instances[:3], instance, *found.instances[4:])))
    assert (made.verdict.reason, acts(made.actions)) == ("Forgetting", [])
    assert "demo-3 has no connection to demo-1" in made.verdict.message


def test_no_disruptive_action_while_nodes_disagree() -> None:
    old = [replace(at, old=True) for at in formed()]
    made = planned(*old[:5], replace(old[5], up=False, runs=True), replicas=9)
    assert made.verdict.reason == "Settling"
    assert "demo-5 is unreachable, but" in made.verdict.message
    assert acts(made.actions) == []


def test_reason_stays_scaling_while_a_node_is_briefly_unreachable() -> None:
    made = planned(*formed()[:5], replace(R2, up=False), phase="Scaling")
    assert made.verdict.reason == "Scaling"


def test_operator_without_a_connection_to_any_node_changes_nothing() -> None:
    made = planned(*(replace(at, up=False, ready=True, old=True) for at in formed()))
    assert made.verdict.reason == "RedisUnreachable"
    assert "NetworkPolicies" in made.verdict.message
    assert acts(made.actions) == []


def test_operator_that_reaches_a_minority_takes_no_risk_of_data_loss() -> None:
    away = {"up": False, "ready": True}
    at = [replace(P0, old=True), replace(P1, **away), replace(P2, **away), replace(R0, old=True), R1, R2]  # type: ignore[arg-type]
    assert acts(planned(*at, replicas=4).actions) == []


def test_empty_new_node_joins() -> None:
    made = planned(*formed(), NEW_RECORDED)
    (call,) = of(made.actions, "Meet")
    assert (call.id, [endpoint.name for endpoint in call.via]) == (node_id(6), [f"demo-{n}" for n in range(6)])


def test_node_with_keys_neither_joins_nor_is_emptied() -> None:
    made = planned(*formed(), replace(NEW_RECORDED, keys=5))
    assert (made.verdict.reason, acts(made.actions)) == ("NodeNotEmpty", [])
    assert "demo-6 is not a member of the cluster and holds 5 keys" in made.verdict.message


def test_claim_of_a_node_that_deletes_moved_keys_is_not_advised_to_be_deleted() -> None:
    made = planned(*formed(), replace(NEW_RECORDED, keys=5, trimming=5))
    assert (made.verdict.reason, acts(made.actions)) == ("Joining", [])
    assert "demo-6 still deletes 5 keys" in made.verdict.message


def test_missing_pod_is_reported() -> None:
    made = planned(*formed(), ABSENT)
    assert made.verdict.message == "6 of 7 nodes serve, 3 of them primaries. demo-6 does not exist."


def test_node_that_is_to_be_removed_is_met_at_its_new_address() -> None:
    """Until its slots have moved, and until it is forgotten, it is a member: the nodes must agree about it."""
    moved = replica(0, address="10.9.0.7", stale_address="10.0.0.7")
    made = planned(*formed(), moved, replicas=6)
    (call,) = of(made.actions, "Meet")
    assert (call.id, call.at.address) == (node_id(6), "10.9.0.7")
    assert [endpoint.name for endpoint in call.via] == [f"demo-{n}" for n in range(6)]


def test_node_that_is_to_be_removed_learns_new_addresses() -> None:
    moved = replace(P0, address="10.9.0.1", stale_address="10.0.0.1")
    made = planned(moved, P1, P2, R0, R1, R2, replica(0), replicas=6)
    (call,) = of(made.actions, "Meet")
    assert "demo-6" in [endpoint.name for endpoint in call.via]
