"""Nodes find each other again, lost masters are replaced, who is gone is forgotten; and nothing is done in the dark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.redis.client.responses import Node
from operators.redis.slots.hash_slots import Slots
from shared.status.verdict import Progress
from tests.unit.redis.world import (
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

M0, M1, M2, R0, R1, R2 = formed()


def lost(at: At, number: int, **more: object) -> At:
    """What was at a place is gone for good: another node is there, or yet nobody, on another disk."""
    return replace(at, **{"up": False, "failed": True, "disk": f"disk-{number}b", "pod": False, **more})  # type: ignore[arg-type]


def test_nodes_with_new_addresses_are_met_by_id_where_they_are() -> None:
    moved = [
        replace(at, address=f"10.1.0.{number}", looked_for=f"10.0.0.{number}") for number, at in enumerate(formed())
    ]
    made = planned(*moved)
    assert made.verdict.reason == "Meeting"
    calls = of(made.actions, "Meet")
    assert [(call.id, call.at.address) for call in calls] == [(node_id(n), f"10.1.0.{n}") for n in range(6)]
    assert [endpoint.name for endpoint in calls[0].via] == [f"demo-{n}" for n in range(1, 6)]
    assert acts(made.actions) == [str(call) for call in calls], "and nothing else is done meanwhile"


def test_nobody_is_met_who_is_where_the_others_look_for_it() -> None:
    assert of(planned(*formed()).actions, "Meet") == []
    assert of(planned(M0, M1, M2, R0, R1, replace(R2, up=False)).actions, "Meet") == []


def test_a_stranger_is_neither_used_nor_forgotten() -> None:
    resource, found = world(*formed())
    stranger = Node("f" * 40, "10.9.9.9", 6379, frozenset({"master", "fail"}), linked=False)
    places = []
    for place in found.instances:
        assert place.report
        places.append(replace(place, report=replace(place.report, nodes=(*place.report.nodes, stranger))))
    made = plan(resource, replace(found, instances=tuple(places)))
    assert (made.verdict.reason, made.verdict.progress) == ("StrangerInCluster", Progress.BLOCKED)
    assert "f" * 40 in made.verdict.message
    assert acts(made.actions) == []


def test_a_former_node_that_one_who_was_away_brings_back_is_no_stranger_and_forgotten_again() -> None:
    resource, found = world(*formed())
    former = Node("f" * 40, "10.9.9.9", 6379, frozenset({"master", "fail"}), linked=False)
    back = found.instances[4]
    assert back.report
    back = replace(back, report=replace(back.report, nodes=(*back.report.nodes, former)))
    places = (*found.instances[:4], back, *found.instances[5:])
    made = plan(resource, replace(found, instances=places, former={"f" * 40: "demo-2"}))
    assert made.verdict.message.startswith("a former demo-2: gone for good")
    (forget,) = of(made.actions, "Forget")
    assert (forget.id, [endpoint.name for endpoint in forget.at]) == ("f" * 40, ["demo-4"])


def test_which_node_is_on_which_disk_is_written_down_before_anything_rests_on_it() -> None:
    at = [*formed(), NEW]
    made = planned(*at)
    assert (made.verdict.reason, made.requeue, acts(made.actions)) == ("Recording", 0, [])
    again = cluster(*at, status=made.status)
    assert [(known.node_id, known.disk) for known in again.recorded_nodes][6] == (node_id(6), "disk-6")
    assert of(plan(again, seen(again, *at)).actions, "Meet"), "then it joins"


def test_a_former_node_stays_written_down_until_nobody_knows_it_any_more() -> None:
    """By that alone its loss is known."""
    successor = replace(NEW, life=1, recorded=0, disk="disk-5b")
    resource, found = world(M0, M1, M2, R0, R1, successor)
    former = Node(node_id(5), "10.0.0.6", 6379, frozenset({"slave", "fail"}), node_id(2), 3, False)
    places = list(found.instances)
    for number in range(5):
        said = places[number].report
        assert said
        places[number] = replace(places[number], report=replace(said, nodes=(*said.nodes, former)))
    known = replace(found, instances=tuple(places))
    made = plan(resource, known)
    assert [entry["nodeId"] for entry in made.status["conditions"]][5] == node_id(5)
    (forget,) = of(made.actions, "Forget")
    assert (forget.id, len(forget.at)) == (node_id(5), 5)
    after = plan(resource, found)
    assert [entry["nodeId"] for entry in after.status["conditions"]][5] == node_id(5, 1)
    assert after.verdict.reason == "Recording"
    assert after.status["former"] == [{"name": "demo-5", "nodeId": node_id(5)}], "somebody may bring it back"
    assert cluster(*formed(), status=after.status).former_nodes == {node_id(5): "demo-5"}


def test_a_former_node_is_told_of_until_all_are_there_again() -> None:
    former = {"former": [{"name": "demo-5", "nodeId": node_id(5)}]}
    assert planned(M0, M1, M2, replace(R0, up=False), R1, R2, status=former).status["former"] == former["former"]
    assert "former" not in planned(*formed(), status=former).status


def test_a_view_without_most_masters_overwrites_no_record() -> None:
    at = [M0, replace(M1, up=False), replace(M2, up=False), R0, R1, replace(NEW, life=1, recorded=0, disk="b")]
    made = planned(*at)
    assert [entry["nodeId"] for entry in made.status["conditions"]][5] == node_id(5)


def test_a_master_that_lost_its_data_is_replaced_by_a_vote_of_the_others() -> None:
    made = planned(lost(M0, 0), M1, M2, R0, R1, R2)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(3), "FORCE")
    assert made.verdict.message == "demo-0 has lost its data, and owns 5461 slots: demo-3 takes its place."


def test_without_a_majority_that_could_vote_a_replica_takes_over_by_evidence_alone() -> None:
    made = planned(lost(M0, 0), lost(M1, 1), M2, R0, R1, R2)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(3), "TAKEOVER")
    then = planned(lost(replace(M0, slots=""), 0, of=3), lost(M1, 1), M2, replace(R0, of=None, slots=M0.slots), R1, R2)
    assert [(call.id, call.mode) for call in of(then.actions, "FailOver")] == [(node_id(4), "FORCE")]


@pytest.mark.parametrize("away", [1, 2])
def test_masters_that_merely_do_not_answer_are_left_to_the_nodes(away: int) -> None:
    """Whoever the operator does not reach may serve clients."""
    at = [replace(M0, up=False, failed=True), replace(M1, up=away < 2, failed=away > 1), M2, R0, R1, R2]
    made = planned(*at)
    assert acts(made.actions) == []
    assert "recovery" not in made.status


def test_the_replica_that_has_most_takes_over() -> None:
    at = [lost(M0, 0), M1, M2, replace(R0, offset=900), R1, R2, replica(0, offset=950, keys=10), replica(0, offset=940)]
    (call,) = of(planned(*at, replicasPerMaster=1, replicas=8).actions, "FailOver")
    assert call.id == node_id(6)


def test_one_that_has_yet_to_get_its_master_s_data_takes_nobody_s_place() -> None:
    """It says that it is a replica from the moment that it is told to be one: its shard would be served empty."""
    at = [lost(M0, 0), M1, M2, replace(R0, copied=False, keys=0), R1, R2]
    made = planned(*at)
    assert of(made.actions, "FailOver") == []
    assert made.verdict.reason == "SlotsLost"
    (call,) = of(planned(*at, replica(0, offset=1)).actions, "FailOver")
    assert call.id == node_id(6), "though it may be behind"


def test_a_former_master_may_take_its_place_back() -> None:
    """Its successor was lost before it could get what that had more."""
    former, successor = replace(R0, of=3, copied=False), lost(replace(M0, of=None), 3)
    resource = cluster(former, M1, M2, successor, R1, R2)
    told = resource.obj["status"]
    told["conditions"][3]["copyOf"] = node_id(0)
    resource = cluster(former, M1, M2, successor, R1, R2, status=told)
    made = plan(resource, seen(resource, former, M1, M2, successor, R1, R2))
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(0)]


def test_one_that_is_about_to_tell_how_much_it_has_is_waited_for() -> None:
    starting = replica(0, up=False, failed=True, runs=True)
    made = planned(lost(M0, 0), M1, M2, R0, R1, R2, starting)
    assert (made.verdict.reason, acts(made.actions)) == ("TakingOver", [])
    assert "demo-6 may tell" in made.verdict.message
    broken = replace(starting, trouble="CrashLoopBackOff: back-off")
    assert of(planned(lost(M0, 0), M1, M2, R0, R1, R2, broken).actions, "FailOver")


def test_who_lost_its_data_is_forgotten_by_everybody() -> None:
    made = planned(M0, M1, M2, R0, R1, lost(R2, 5))
    (call,) = of(made.actions, "Forget")
    assert (call.id, sorted(endpoint.name for endpoint in call.at)) == (node_id(5), [f"demo-{n}" for n in range(5)])


@pytest.mark.parametrize(
    "at",
    [
        (M0, M1, M2, R0, R1, replace(R2, up=False, failed=True)),
        (M0, M1, replace(M2, up=False, failed=True), R0, R1, R2),
        (lost(M0, 0), M1, M2, replace(R0, up=False, failed=True), R1, R2),
        (lost(replace(M0, slots=""), 0), M1, M2, R0, replace(R1, slots=M0.slots, of=None), R2),
    ],
    ids=["a silent replica", "a silent master", "a master whose replica may come back", "a master with a replica"],
)
def test_nobody_else_is_forgotten(at: tuple[At, ...]) -> None:
    assert of(planned(*at).actions, "Forget") == []


def test_a_new_node_that_never_hears_what_a_lost_master_owned_keeps_nobody_from_being_forgotten() -> None:
    """A slot's owner tells of it, and that one never comes back: else all would wait for ever."""
    resource, found = world(M0, M1, lost(M2, 2), R0, R1, lost(R2, 5), replica(0, keys=10))
    new = found.instances[6]
    assert new.report
    heard = tuple(replace(node, slots=Slots()) if node.id == node_id(2) else node for node in new.report.nodes)
    found = replace(found, instances=(*found.instances[:6], replace(new, report=replace(new.report, nodes=heard))))
    assert "demo-6 knows no owner" in found.view.without([node_id(5)]).settled
    made = plan(resource, found)
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(5)]


def test_while_the_others_do_not_agree_nobody_is_forgotten() -> None:
    resource, found = world(M0, M1, M2, R0, R1, lost(R2, 5))
    place = found.instances[3]
    assert place.report
    lines = tuple(replace(node, linked=node.id != node_id(1)) for node in place.report.nodes)
    place = replace(place, report=replace(place.report, nodes=lines))
    made = plan(resource, replace(found, instances=(*found.instances[:3], place, *found.instances[4:])))
    assert (made.verdict.reason, acts(made.actions)) == ("Forgetting", [])
    assert "demo-3 has no connection to demo-1" in made.verdict.message


def test_nothing_dangerous_is_done_while_nodes_disagree() -> None:
    old = [replace(at, old=True) for at in formed()]
    made = planned(*old[:5], replace(old[5], up=False, runs=True), replicas=9)
    assert made.verdict.reason == "Settling"
    assert "demo-5 does not answer, yet" in made.verdict.message
    assert acts(made.actions) == []


def test_what_belongs_to_a_movement_is_no_turn_in_the_story() -> None:
    made = planned(*formed()[:5], replace(R2, up=False), phase="Scaling")
    assert made.verdict.reason == "Scaling"


def test_an_operator_that_is_cut_off_touches_nothing() -> None:
    made = planned(*(replace(at, up=False, ready=True, old=True) for at in formed()))
    assert made.verdict.reason == "RedisUnreachable"
    assert "NetworkPolicy" in made.verdict.message
    assert acts(made.actions) == []


def test_an_operator_that_reaches_a_minority_does_nothing_that_could_lose_data() -> None:
    away = {"up": False, "ready": True}
    at = [replace(M0, old=True), replace(M1, **away), replace(M2, **away), replace(R0, old=True), R1, R2]  # type: ignore[arg-type]
    assert acts(planned(*at, replicas=4).actions) == []


def test_a_new_node_that_holds_nothing_joins() -> None:
    made = planned(*formed(), NEW_RECORDED)
    (call,) = of(made.actions, "Meet")
    assert (call.id, [endpoint.name for endpoint in call.via]) == (node_id(6), [f"demo-{n}" for n in range(6)])


def test_one_that_holds_something_neither_joins_nor_is_emptied() -> None:
    made = planned(*formed(), replace(NEW_RECORDED, keys=5))
    assert (made.verdict.reason, acts(made.actions)) == ("NodeNotEmpty", [])
    assert "demo-6 is no member of the cluster, and holds 5 keys" in made.verdict.message


def test_a_place_that_has_never_been_is_no_node() -> None:
    made = planned(*formed(), ABSENT)
    assert made.verdict.message == "6 of 7 nodes serve, 3 of them masters. demo-6 has no pod."
