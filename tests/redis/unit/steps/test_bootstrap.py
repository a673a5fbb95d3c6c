"""Bootstrap: a cluster is formed once, from empty nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.redis.api.resource import RedisCluster
from operators.redis.client.responses import Node
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.observed import Observed
from operators.redis.steps import bootstrap, bootstrap_plan
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.redis.unit.world import (
    NEW,
    NEW_RECORDED,
    At,
    acts,
    assess,
    cluster,
    formed,
    node_id,
    of,
    plan,
    seen,
    world,
)

RECORDED = [NEW_RECORDED] * 6
PLANNED: list[Obj] = [
    {"name": f"demo-{number}", "nodeId": node_id(number), "epoch": number + 1, "slots": slots}
    for number, slots in enumerate(("0-5461", "5462-10922", "10923-16383"))
]
MEMBERS = [At(epoch=number + 1 if number < 3 else 0) for number in range(6)]
"""Nodes that have met, each with its epoch."""


def beginning(*at: At, plan: list[Obj] | None = None, **more: Any) -> tuple[RedisCluster, Observed]:
    status = {"forming": PLANNED if plan is None else plan}
    return world(*at, is_formed=False, phase="Creating", status=status, **more)


def next_step(resource: RedisCluster, found: Observed) -> Step:
    return bootstrap.create_cluster(assess(resource, found))


def test_bootstrap_waits_for_every_node_and_names_the_missing_ones() -> None:
    broken = At(up=False, recorded=None, problem="ErrImagePull: no such image.")
    resource, found = world(*[NEW] * 5, broken, is_formed=False, phase="")
    made = plan(resource, found)
    assert (made.verdict.reason, made.status["phase"], made.status["formed"]) == (
        "ImagePullFailed",
        "Creating",
        False,
    )
    assert made.verdict.message == "5 of 6 nodes are reachable. demo-5 cannot pull its image: no such image."
    assert acts(made.actions) == []
    assert made.status["forming"] == []


def test_slot_plan_is_recorded_before_the_first_command() -> None:
    resource, found = world(*[NEW] * 6, is_formed=False, phase="")
    made = plan(resource, found)
    assert acts(made.actions) == []
    assert made.requeue == 0
    assert made.status["forming"] == PLANNED
    assert [entry["disk"] for entry in made.status["nodes"]] == [f"disk-{number}" for number in range(6)]
    again = cluster(*[NEW] * 6, is_formed=False, status=made.status)
    assert of(plan(again, seen(again, *[NEW] * 6)).actions, "SetEpoch"), (
        "the bootstrap starts once the plan is recorded"
    )


def test_primaries_are_spread_over_hosts() -> None:
    hosts = ["a", "a", "a", "b", "b", "c"]
    resource, found = world(*(replace(NEW, host=host) for host in hosts), is_formed=False, phase="")
    made = plan(resource, found)
    assert {node["name"] for node in made.status["forming"]} == {"demo-0", "demo-3", "demo-5"}


def test_each_primary_gets_a_unique_epoch_before_any_meet() -> None:
    step = next_step(*beginning(*RECORDED))
    assert acts(step.actions) == ["give demo-0 epoch 1", "give demo-1 epoch 2", "give demo-2 epoch 3"]


def test_nodes_meet_once_every_primary_has_its_epoch() -> None:
    at = [replace(NEW_RECORDED, epoch=number + 1 if number < 3 else 0) for number in range(6)]
    step = next_step(*beginning(*at))
    assert acts(step.actions) == [f"let demo-0 meet demo-{number} at 10.0.0.{number + 1}" for number in range(1, 6)]


def test_no_second_meet_during_a_handshake() -> None:
    at = [replace(NEW_RECORDED, epoch=number + 1 if number < 3 else 0) for number in range(6)]
    resource, found = beginning(*at)
    first = found.instances[0]
    assert first.report
    in_handshake = Node("f" * 40, "10.0.0.2", 6379, frozenset({"handshake"}), linked=False)
    report = replace(first.report, nodes=(*first.report.nodes, in_handshake))
    found = replace(found, instances=(replace(first, report=report), *found.instances[1:]))
    assert [call.at.name for call in of(next_step(resource, found).actions, "Meet")] == [
        f"demo-{n}" for n in range(2, 6)
    ]


def test_nodes_that_restart_at_other_addresses_are_met_there() -> None:
    """Nodes that know each other do not count as nodes that have to meet; but none of these reaches another one."""
    slots = [node["slots"] for node in PLANNED] + [""] * 3
    for at in (MEMBERS, [replace(spot, slots=own) for spot, own in zip(MEMBERS, slots, strict=True)]):
        moved = [replace(spot, stale_address=f"10.0.1.{number}") for number, spot in enumerate(at)]
        made = plan(*beginning(*moved))
        calls = of(made.actions, "Meet")
        assert [call.at.name for call in calls] == [f"demo-{number}" for number in range(6)]
        assert all(len(call.via) == 5 for call in calls)
        assert made.verdict.reason == "Creating"
        assert "Updating the address of demo-0, " in made.verdict.message


def test_no_node_is_met_at_another_address_before_it_has_joined() -> None:
    assert of(plan(*beginning(*RECORDED)).actions, "Meet") == []


def test_primaries_receive_only_the_slots_that_they_lack() -> None:
    at = [replace(MEMBERS[0], slots="0-5461"), replace(MEMBERS[1], slots="5462-6000"), *MEMBERS[2:]]
    step = next_step(*beginning(*at))
    assert [(call.id, str(call.slots)) for call in step.actions] == [  # type: ignore[union-attr]
        (node_id(1), "6001-10922"),
        (node_id(2), "10923-16383"),
    ]


def test_cluster_is_formed_once_all_nodes_agree_on_every_slot_owner() -> None:
    at = [replace(at, slots=node["slots"]) for at, node in zip(MEMBERS, PLANNED, strict=False)] + MEMBERS[3:]
    resource, found = beginning(*at)
    made = plan(resource, found)
    assert (made.status["formed"], made.status["forming"], made.requeue) == (True, [], 0)
    differing = replace(found, instances=(*found.instances[:5], seen(resource, *at[:5], NEW_RECORDED).instances[5]))
    assert plan(resource, differing).status["formed"] is False, "the last node does not know the cluster yet"


def test_existing_cluster_is_recognized_after_its_status_was_lost() -> None:
    at = formed()
    resource = cluster(*(replace(spot, recorded=None) for spot in at), is_formed=False, phase="")
    made = plan(resource, seen(resource, *at))
    assert made.status["formed"] is True
    assert of(made.actions, "AddSlots") == of(made.actions, "SetEpoch") == []


def test_nodes_with_keys_or_slots_block_the_bootstrap() -> None:
    for at, problem in (
        (replace(NEW, keys=7), "demo-2 holds 7 keys"),
        (replace(NEW, slots="0-10"), "demo-2 owns slots 0-10"),
    ):
        resource, found = world(NEW, NEW, at, NEW, NEW, NEW, is_formed=False, phase="")
        made = plan(resource, found)
        assert (made.verdict.reason, made.verdict.progress) == ("NotEmpty", Progress.BLOCKED)
        assert problem in made.verdict.message
        assert acts(made.actions) == []
        assert made.status["forming"] == []


def test_nodes_that_know_an_unknown_node_block_the_bootstrap() -> None:
    resource, found = world(*[NEW] * 6, is_formed=False, phase="")
    instance = found.instances[3]
    assert instance.report
    other = Node("e" * 40, "10.9.9.9", 6379, frozenset({"master"}))
    instance = replace(instance, report=replace(instance.report, nodes=(*instance.report.nodes, other)))
    made = plan(resource, replace(found, instances=(*found.instances[:3], instance, *found.instances[4:])))
    assert made.verdict.reason == "NotEmpty"
    assert f"demo-3 knows node {'e' * 40}" in made.verdict.message


def test_primary_that_is_lost_during_bootstrap_is_forgotten_and_replaced() -> None:
    """The new node takes a higher epoch than any stale claim of its predecessor."""
    lost = replace(NEW, incarnation=1, recorded=0, disk="disk-1b")
    at = [replace(MEMBERS[0], slots="0-5461"), lost, *MEMBERS[2:]]
    resource, found = beginning(*at)
    instances = list(found.instances)
    former = Node(node_id(1), "10.0.0.2", 6379, frozenset({"master", "fail"}), epoch=2, linked=False)
    for number in (0, 2, 3, 4, 5):
        report = instances[number].report
        assert report
        known = tuple(node for node in report.nodes if node.id != node_id(1, 1))
        instances[number] = replace(instances[number], report=replace(report, nodes=(*known, former)))
    found = replace(found, instances=tuple(instances))
    made = plan(resource, found)
    (forget,) = of(made.actions, "Forget")
    assert forget.id == node_id(1)
    after = seen(resource, *at)
    after_replacement = plan(resource, after).status["forming"]
    assert after_replacement[1] == {"name": "demo-1", "nodeId": node_id(1, 1), "epoch": 4, "slots": "5462-10922"}
    assert [after_replacement[0], after_replacement[2]] == [PLANNED[0], PLANNED[2]], (
        "the entries of the other primaries do not change"
    )


def test_lost_primary_is_also_forgotten_by_a_node_that_is_to_be_removed() -> None:
    """The user reduced spec.replicas meanwhile: only that node still knows the former one."""
    at = [replace(MEMBERS[0], slots="0-5461"), replace(NEW, incarnation=1, recorded=0, disk="b"), *MEMBERS[2:], NEW]
    resource, found = beginning(*at, replicas=6)
    leaving = found.instances[6]
    assert leaving.report
    former = Node(node_id(1), "10.0.0.2", 6379, frozenset({"master", "fail"}), epoch=2, linked=False)
    leaving = replace(leaving, report=replace(leaving.report, nodes=(*leaving.report.nodes, former)))
    made = plan(resource, replace(found, instances=(*found.instances[:6], leaving)))
    (forget,) = of(made.actions, "Forget")
    assert (forget.id, "demo-6" in [at.name for at in forget.at]) == (node_id(1), True)


def test_lost_primary_is_not_replaced_once_clients_have_written() -> None:
    at = [replace(MEMBERS[0], slots="0-5461", keys=3), replace(NEW, incarnation=1, recorded=0, disk="b"), *MEMBERS[2:]]
    made = plan(*beginning(*at))
    assert (made.verdict.reason, acts(made.actions)) == ("NotEmpty", [])


def test_slot_plan_assigns_every_slot_exactly_once() -> None:
    for replicas in (3, 6, 7, 8, 21):
        resource, found = world(
            *[NEW] * replicas, is_formed=False, phase="", replicasPerMaster=0 if replicas == 3 else 1
        )
        slots = [Slots.parse(node.slots) for node in bootstrap_plan.planned(assess(resource, found))]
        assert Slots.union(slots) == Slots.all()
        assert sum(map(len, slots)) == 16384
        assert len(slots) == resource.primaries
