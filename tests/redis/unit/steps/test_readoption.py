"""Nodes that lost their nodes.conf, but not their data: their slots are served again with their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.client.responses import Node, NodeReport
from operators.redis.facts.lifecycles import NodeState
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.observed import Observed
from operators.redis.steps import data_loss_recovery
from tests.redis.unit.steps.test_data_loss_recovery import ON_HOSTS
from tests.redis.unit.steps.test_membership_repair import lost
from tests.redis.unit.world import ABSENT, At, acts, address, assess, formed, node_id, of, plan, replica, world

P0, P1, P2, R0, R1, R2 = formed()
ALONE = (replace(P0, up=False, failed=True), P1, P2)
"""Three primaries without replicas, of which the first is unreachable for the others."""


def detached(
    number: int, *at: At, slots: str = P0.slots, epoch: int = 0, keys: int = 10, disk: str = "", **more: Any
) -> tuple[RedisCluster, Observed]:
    """The world, in which pod `number` has a node with a new id that knows no other node."""
    resource, found = world(*at, **more)
    return resource, without_nodes_conf(found, number, slots=slots, epoch=epoch, keys=keys, disk=disk)


def without_nodes_conf(
    found: Observed, number: int, *, slots: str, epoch: int = 0, keys: int = 10, disk: str = ""
) -> Observed:
    new = node_id(number, 1)
    flags = frozenset({"myself", "master"})
    me = Node(new, address(number, At()), 6379, flags, epoch=epoch, slots=Slots.parse(slots))
    report = NodeReport(new, nodes=(me,), epoch=epoch, keys=keys, version="8.0.2", run_id="new")
    instances = list(found.instances)
    instances[number] = replace(instances[number], report=report, error="", disk=disk or instances[number].disk)
    return replace(found, instances=tuple(instances))


def test_slots_whose_keys_a_node_has_are_not_reported_as_lost() -> None:
    resource, found = detached(0, *ALONE, replicasPerMaster=0)
    made = plan(resource, found)
    assert "recovery" not in made.status
    assert data_loss_recovery.loss(assess(resource, found)) is None
    assert made.verdict.reason == "IdentityLost"
    assert assess(resource, found).node_state(node_id(0, 1)) is NodeState.DETACHED


FORGOTTEN = (replace(P0, up=False, member=False), P1, P2)
"""The same, after the others forgot the first one."""


def test_former_id_is_forgotten_before_the_node_has_an_epoch() -> None:
    """The others would take its epoch for that of the former node at the same address."""
    made = plan(*detached(0, *ALONE, replicasPerMaster=0))
    (call,) = of(made.actions, "Forget")
    assert (call.id, [at.name for at in call.at]) == (node_id(0), ["demo-1", "demo-2"])
    assert not of(made.actions, "TakeBack")


def test_replica_of_the_former_node_does_not_forget_its_primary() -> None:
    made = plan(*detached(0, *ALONE, replica(0, synced=False, copied=False), R1, R2))
    (call,) = of(made.actions, "Forget")
    assert "demo-3" not in [at.name for at in call.at]


def test_node_claims_its_slots_before_it_meets_the_others() -> None:
    """Otherwise the slots stay unserved, or it deletes its keys."""
    made = plan(*detached(0, *FORGOTTEN, slots="0-100", replicasPerMaster=0))
    (call,) = of(made.actions, "TakeBack")
    assert (call.id, str(call.slots), call.epoch) == (node_id(0, 1), P0.slots, 4)
    assert not of(made.actions, "Meet")


def test_node_with_its_claims_meets_the_others_under_its_new_id() -> None:
    made = plan(*detached(0, *FORGOTTEN, epoch=4, replicasPerMaster=0))
    (call,) = of(made.actions, "Meet")
    assert (call.id, [via.name for via in call.via]) == (node_id(0, 1), ["demo-1", "demo-2"])


@pytest.mark.parametrize("at", [ALONE, FORGOTTEN], ids=["known", "forgotten"])
def test_former_id_stays_recorded_until_the_node_is_a_member(at: tuple[At, ...]) -> None:
    """The record proves whose data the node has."""
    made = plan(*detached(0, *at, replicasPerMaster=0))
    (entry,) = [entry for entry in made.status["nodes"] if entry["name"] == "demo-0"]
    assert (entry["nodeId"], entry["slots"]) == (node_id(0), P0.slots)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"disk": "another"}, "the data is that of another volume"),
        ({"keys": 0, "slots": ""}, "the data is lost too"),
    ],
)
def test_node_without_the_data_of_the_former_node_takes_no_slots(change: dict[str, Any], why: str) -> None:
    made = plan(*detached(0, *ALONE, replicasPerMaster=0, **change))
    assert not of(made.actions, "TakeBack"), why
    assert made.verdict.reason == "SlotsLost"


def test_node_with_keys_of_other_slots_is_reported_and_not_given_up() -> None:
    made = plan(*detached(0, *ALONE, slots="0-9000", replicasPerMaster=0))
    assert (acts(made.actions), made.verdict.reason) == ([], "IdentityLost")
    assert "has keys of slots 5461-9000" in made.verdict.message
    assert "recovery" not in made.status


def test_replica_with_the_data_takes_over_first() -> None:
    made = plan(*detached(0, replace(P0, up=False, failed=True), P1, P2, R0, R1, R2))
    assert [call.at.name for call in of(made.actions, "FailOver")] == ["demo-3"]
    assert not of(made.actions, "TakeBack")


def test_node_waits_while_the_others_may_have_elected_a_successor() -> None:
    away = replace(P1, up=False, failed=True)
    made = plan(*detached(0, ALONE[0], away, replace(P2, up=False, failed=True), replica(0, up=False), R1, R2))
    assert not of(made.actions, "TakeBack")
    assert not of(made.actions, "Meet")
    assert "recovery" not in made.status


def successor(**more: Any) -> tuple[At, ...]:
    """The replica of the first primary took over from it."""
    former = At(up=False, failed=True)
    return (former, P1, P2, At(P0.slots, keys=10, epoch=9, **more), R1, R2)


def test_outdated_copy_is_recreated_once_a_successor_serves_its_slots() -> None:
    resource, found = detached(0, *successor())
    instances = list(found.instances)
    known = instances[3].recorded
    assert known
    instances[3] = replace(instances[3], recorded=replace(known, copy_of=node_id(0)))
    made = plan(resource, replace(found, instances=tuple(instances)))
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-0", "delete Pod demo-0"]
    assert made.verdict.reason == "IdentityLost"


def test_replica_without_nodes_conf_is_recreated() -> None:
    made = plan(*detached(3, P0, P1, P2, replace(R0, up=False, failed=True), R1, R2))
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-3", "delete Pod demo-3"]


@pytest.mark.parametrize(
    ("primary", "slots"),
    [(replace(P0, keys=0), P0.slots), (P0, "0-9000"), (P0, "")],
    ids=["primary without keys", "keys of other slots", "unknown slots"],
)
def test_copy_is_kept_if_nothing_else_may_have_its_keys(primary: At, slots: str) -> None:
    made = plan(*detached(3, primary, P1, P2, replace(R0, up=False, failed=True), R1, R2, slots=slots))
    assert not [act for act in acts(made.actions) if act.startswith("delete")]


def test_data_of_a_node_whose_slots_another_node_owns_for_another_reason_is_kept() -> None:
    made = plan(*detached(0, *successor()))
    assert not [act for act in acts(made.actions) if act.startswith("delete")]


@pytest.mark.parametrize("on_hosts", [False, True], ids=["lost", "on another host"])
def test_replica_takes_the_slots_of_its_lost_primary_only_with_consent(on_hosts: bool) -> None:
    """A replica that was not connected since it lost nodes.conf may lack any number of writes."""
    where = ON_HOSTS if on_hosts else {}
    known = (lost(P0, 0, pod=on_hosts), P1, P2, replace(R0, up=False, failed=True), R1, R2)
    (call,) = of(plan(*detached(3, *known, **where)).actions, "Forget")
    assert call.id == node_id(3), "members would take its epoch for that of its former id, at the same address"
    at = (*known[:3], replace(R0, up=False, member=False), *known[4:])
    made = plan(*detached(3, *at, **where))
    assert (acts(made.actions), made.verdict.reason) == ([], "DataAway" if on_hosts else "SlotsLost")
    assert "demo-3 can serve slots 0-5460 with older keys, without later writes" in made.verdict.message
    assert "demo-3 lost" not in made.verdict.message
    loss = made.status["recovery"]
    assert loss["older"] == [node_id(3, 1)]
    agreed: dict[str, Any] = {"recovery": {"confirm": loss["token"]}, "status": {"recovery": loss}, **where}
    (call,) = of(plan(*detached(3, *at, **agreed)).actions, "TakeBack")
    assert (call.id, str(call.slots)) == (node_id(3, 1), P0.slots)
    (call,) = of(plan(*detached(3, *at, epoch=9, **agreed)).actions, "Meet")
    assert call.id == node_id(3, 1)


def test_all_nodes_that_lost_nodes_conf_form_the_cluster_again() -> None:
    resource, found = world(*(replace(spot, up=False) for spot in (P0, P1, P2)), replicasPerMaster=0)
    for number, spot in enumerate((P0, P1, P2)):
        found = without_nodes_conf(found, number, slots=spot.slots)
    made = plan(resource, found)
    calls = of(made.actions, "TakeBack")
    assert [(call.at.name, str(call.slots)) for call in calls] == [
        (f"demo-{number}", spot.slots) for number, spot in enumerate((P0, P1, P2))
    ]
    assert len({call.epoch for call in calls}) == 3
    for number, spot in enumerate((P0, P1, P2)):
        found = without_nodes_conf(found, number, slots=spot.slots, epoch=number + 1)
    meets = of(plan(resource, found).actions, "Meet")
    assert [(call.at.name, call.via[0].name) for call in meets] == [("demo-1", "demo-0"), ("demo-2", "demo-0")]


def test_nodes_do_not_form_the_cluster_again_while_one_is_unreachable() -> None:
    resource, found = world(*(replace(spot, up=False) for spot in (P0, P1, P2)), replicasPerMaster=0)
    for number, spot in enumerate((P0, P1)):
        found = without_nodes_conf(found, number, slots=spot.slots)
    made = plan(resource, found)
    assert acts(made.actions) == []
    assert (made.verdict.reason, "recovery" in made.status) == ("IdentityLost", False)
    assert "demo-2" in made.verdict.message


def test_absent_node_is_no_detached_one() -> None:
    resource, found = world(*formed(), ABSENT)
    assert not assess(resource, found).detached


def test_node_with_the_nodes_conf_of_another_cluster_is_not_the_cluster() -> None:
    """The table of the node has an owner of each slot, and more nodes than this cluster."""
    resource, found = world(*formed()[:5], replace(R2, up=False, failed=True))
    me = Node(node_id(5, 1), address(5, At()), 6379, frozenset({"myself", "master"}), epoch=9, slots=Slots.all())
    others = [Node(node_id(number), f"10.9.0.{number}", 6379, frozenset({"master"})) for number in range(10, 20)]
    report = NodeReport(me.id, nodes=(me, *others), epoch=9, keys=10, version="8.0.2", run_id="new")
    instances = (*found.instances[:5], replace(found.instances[5], report=report, error=""))
    assessed = assess(resource, replace(found, instances=instances))
    assert assessed.view.cluster == {node_id(number) for number in range(6)}
    made = plan(resource, replace(found, instances=instances))
    assert made.verdict.reason != "UnknownMember"
    assert not [act for act in acts(made.actions) if "forget" not in act]
