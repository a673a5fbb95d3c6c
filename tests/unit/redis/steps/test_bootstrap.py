"""A cluster begins once, of nodes that hold nothing."""

from __future__ import annotations

from dataclasses import replace

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.responses import Node
from operators.redis.observe import Observed
from operators.redis.slots.hash_slots import Slots
from operators.redis.steps import bootstrap, bootstrap_plan
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.unit.redis.world import NEW, NEW_RECORDED, NOW, At, acts, cluster, formed, node_id, of, plan, seen, world

RECORDED = [NEW_RECORDED] * 6
PLANNED: list[Obj] = [
    {"name": f"demo-{number}", "nodeId": node_id(number), "epoch": number + 1, "slots": slots}
    for number, slots in enumerate(("0-5461", "5462-10922", "10923-16383"))
]
MEMBERS = [At(epoch=number + 1 if number < 3 else 0) for number in range(6)]
"""Nodes that have met, each with its epoch."""


def beginning(*at: At, plan: list[Obj] | None = None) -> tuple[RedisCluster, Observed]:
    status = {"forming": PLANNED if plan is None else plan}
    return world(*at, begun=False, phase="Creating", status=status)


def next_step(resource: RedisCluster, found: Observed) -> Step:
    return bootstrap.create_cluster(resource, Assessment.of(resource, found), NOW)


def test_it_waits_until_every_node_is_there_and_says_who_is_not() -> None:
    broken = At(up=False, recorded=None, trouble="ErrImagePull: no such image")
    resource, found = world(*[NEW] * 5, broken, begun=False, phase="")
    made = plan(resource, found)
    assert (made.verdict.reason, made.status["phase"], made.status["formed"]) == ("Creating", "Creating", False)
    assert made.verdict.message == "5 of 6 nodes are there. demo-5 does not start: ErrImagePull: no such image"
    assert acts(made.actions) == []
    assert made.status["forming"] == []


def test_who_is_to_own_what_is_written_down_before_the_first_command() -> None:
    resource, found = world(*[NEW] * 6, begun=False, phase="")
    made = plan(resource, found)
    assert acts(made.actions) == []
    assert made.requeue == 0
    assert made.status["forming"] == PLANNED
    assert [entry["disk"] for entry in made.status["conditions"]] == [f"disk-{number}" for number in range(6)]
    again = cluster(*[NEW] * 6, begun=False, status=made.status)
    assert of(plan(again, seen(again, *[NEW] * 6)).actions, "SetEpoch"), "and then it begins"


def test_masters_are_spread_over_hosts() -> None:
    hosts = ["a", "a", "a", "b", "b", "c"]
    resource, found = world(*(replace(NEW, host=host) for host in hosts), begun=False, phase="")
    made = plan(resource, found)
    assert {node["name"] for node in made.status["forming"]} == {"demo-0", "demo-3", "demo-5"}


def test_each_master_gets_an_epoch_of_its_own_before_anybody_is_met() -> None:
    step = next_step(*beginning(*RECORDED))
    assert acts(step.actions) == ["give demo-0 epoch 1", "give demo-1 epoch 2", "give demo-2 epoch 3"]


def test_then_all_meet() -> None:
    at = [replace(NEW_RECORDED, epoch=number + 1 if number < 3 else 0) for number in range(6)]
    step = next_step(*beginning(*at))
    assert acts(step.actions) == [f"let demo-0 meet demo-{number} at 10.0.0.{number + 1}" for number in range(1, 6)]


def test_who_is_being_met_already_is_not_met_once_more() -> None:
    at = [replace(NEW_RECORDED, epoch=number + 1 if number < 3 else 0) for number in range(6)]
    resource, found = beginning(*at)
    first = found.instances[0]
    assert first.report
    made_up = Node("f" * 40, "10.0.0.2", 6379, frozenset({"handshake"}), linked=False)
    said = replace(first.report, nodes=(*first.report.nodes, made_up))
    found = replace(found, instances=(replace(first, report=said), *found.instances[1:]))
    assert [call.at.name for call in of(next_step(resource, found).actions, "Meet")] == [
        f"demo-{n}" for n in range(2, 6)
    ]


def test_then_masters_take_their_slots_and_only_what_they_lack() -> None:
    at = [replace(MEMBERS[0], slots="0-5461"), replace(MEMBERS[1], slots="5462-6000"), *MEMBERS[2:]]
    step = next_step(*beginning(*at))
    assert [(call.id, str(call.slots)) for call in step.actions] == [  # type: ignore[union-attr]
        (node_id(1), "6001-10922"),
        (node_id(2), "10923-16383"),
    ]


def test_it_has_begun_when_every_slot_has_an_owner_on_whom_all_agree() -> None:
    at = [replace(at, slots=node["slots"]) for at, node in zip(MEMBERS, PLANNED, strict=False)] + MEMBERS[3:]
    resource, found = beginning(*at)
    made = plan(resource, found)
    assert (made.status["formed"], made.status["forming"], made.requeue) == (True, [], 0)
    apart = replace(found, instances=(*found.instances[:5], seen(resource, *at[:5], NEW_RECORDED).instances[5]))
    assert plan(resource, apart).status["formed"] is False, "one of them knows nothing of it yet"


def test_a_cluster_is_known_again_though_its_status_was_lost() -> None:
    at = formed()
    resource = cluster(*(replace(spot, recorded=None) for spot in at), begun=False, phase="")
    made = plan(resource, seen(resource, *at))
    assert made.status["formed"] is True
    assert of(made.actions, "AddSlots") == of(made.actions, "SetEpoch") == []


def test_nodes_that_hold_something_do_not_begin_a_cluster() -> None:
    for at, told in (
        (replace(NEW, keys=7), "demo-2 holds 7 keys"),
        (replace(NEW, slots="0-10"), "demo-2 owns slots 0-10"),
    ):
        resource, found = world(NEW, NEW, at, NEW, NEW, NEW, begun=False, phase="")
        made = plan(resource, found)
        assert (made.verdict.reason, made.verdict.progress) == ("NotEmpty", Progress.BLOCKED)
        assert told in made.verdict.message
        assert acts(made.actions) == []
        assert made.status["forming"] == []


def test_nor_do_those_that_know_somebody_else() -> None:
    resource, found = world(*[NEW] * 6, begun=False, phase="")
    place = found.instances[3]
    assert place.report
    other = Node("e" * 40, "10.9.9.9", 6379, frozenset({"master"}))
    place = replace(place, report=replace(place.report, nodes=(*place.report.nodes, other)))
    made = plan(resource, replace(found, instances=(*found.instances[:3], place, *found.instances[4:])))
    assert made.verdict.reason == "NotEmpty"
    assert f"demo-3 knows node {'e' * 40}" in made.verdict.message


def test_a_master_that_is_lost_meanwhile_is_forgotten_and_the_new_node_takes_its_part() -> None:
    """It must outbid what others may yet hear of the one before."""
    lost = replace(NEW, life=1, recorded=0, disk="disk-1b")
    at = [replace(MEMBERS[0], slots="0-5461"), lost, *MEMBERS[2:]]
    resource, found = beginning(*at)
    places = list(found.instances)
    former = Node(node_id(1), "10.0.0.2", 6379, frozenset({"master", "fail"}), epoch=2, linked=False)
    for number in (0, 2, 3, 4, 5):
        said = places[number].report
        assert said
        known = tuple(node for node in said.nodes if node.id != node_id(1, 1))
        places[number] = replace(places[number], report=replace(said, nodes=(*known, former)))
    found = replace(found, instances=tuple(places))
    made = plan(resource, found)
    (forget,) = of(made.actions, "Forget")
    assert forget.id == node_id(1)
    after = seen(resource, *at)
    renewed = plan(resource, after).status["forming"]
    assert renewed[1] == {"name": "demo-1", "nodeId": node_id(1, 1), "epoch": 4, "slots": "5462-10922"}
    assert [renewed[0], renewed[2]] == [PLANNED[0], PLANNED[2]], "the others' parts stay"


def test_if_anybody_has_written_meanwhile_nobody_takes_that_part() -> None:
    at = [replace(MEMBERS[0], slots="0-5461", keys=3), replace(NEW, life=1, recorded=0, disk="b"), *MEMBERS[2:]]
    made = plan(*beginning(*at))
    assert (made.verdict.reason, acts(made.actions)) == ("NotEmpty", [])


def test_all_slots_are_shared_out_and_none_twice() -> None:
    for replicas in (3, 6, 7, 8, 21):
        resource, found = world(*[NEW] * replicas, begun=False, phase="", replicasPerMaster=0 if replicas == 3 else 1)
        slots = [Slots.parse(node.slots) for node in bootstrap_plan.planned(Assessment.of(resource, found))]
        assert Slots.union(slots) == Slots.all()
        assert sum(map(len, slots)) == 16384
        assert len(slots) == resource.primaries
