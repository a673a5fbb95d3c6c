"""Slots that no node owns: they go to the only node that has their keys, or wait."""

from __future__ import annotations

from dataclasses import replace

from operators.redis.migration.commands import AssignSlots
from operators.redis.slots.hash_slots import Slots
from shared.runtime.plan import Plan
from tests.redis.unit.world import At, cluster, formed, node_id, of, plan, world

P0, P1, P2, R0, R1, R2 = formed()
SLOT = 5460
WITHOUT = replace(P0, slots="0-5459")


def made(*at: At, **more: object) -> Plan:
    return plan(*world(*at, R0, R1, R2, **more))


def test_slot_goes_to_the_only_node_that_has_its_keys() -> None:
    found = made(WITHOUT, replace(P1, strays={SLOT: 3}), P2)
    (call,) = of(found.actions, "AssignSlots")
    assert isinstance(call, AssignSlots)
    assert (call.owner, call.slots, call.is_empty) == (node_id(1), Slots.of(SLOT), False)
    assert call.nodes.keys() == {node_id(number) for number in range(3)}
    assert found.verdict.message.startswith("No node owns slot 5460: assigning them to demo-1, where their keys are.")
    assert not found.status.get("foreign")


def test_slot_without_an_owner_waits_while_a_node_is_unreachable() -> None:
    for at in (
        (WITHOUT, replace(P1, strays={SLOT: 3}), replace(P2, up=False, failed=True)),
        (replace(WITHOUT, up=False), replace(P1, strays={SLOT: 3}), P2),
    ):
        assert of(made(*at).actions, "AssignSlots") == []


def test_slot_of_which_two_nodes_have_keys_is_reported_and_not_assigned() -> None:
    found = made(replace(WITHOUT, strays={SLOT: 1}), replace(P1, strays={SLOT: 3}), P2)
    assert of(found.actions, "AssignSlots") == []
    assert found.verdict.reason == "SlotsUnserved"
    assert "several have keys: slot 5460 at demo-0" in found.verdict.message
    assert "CLUSTER SETSLOT … NODE with its own id" in found.verdict.message


def test_foreign_keys_do_not_make_a_node_the_owner() -> None:
    recorded = {"foreign": [{"nodeId": node_id(1), "slots": str(SLOT)}]}
    found = made(WITHOUT, replace(P1, strays={SLOT: 3}), P2, status=recorded)
    assert of(found.actions, "AssignSlots") == []
    assert found.verdict.reason == "SlotsLost"
    assert found.status["foreign"] == recorded["foreign"]


def test_slot_without_keys_waits_for_a_user() -> None:
    found = made(WITHOUT, P1, P2)
    assert of(found.actions, "AssignSlots") == []
    assert found.verdict.reason == "SlotsLost"


def test_confirmed_recovery_assigns_an_empty_slot_of_which_nodes_report_each_other_as_the_owner() -> None:
    at = (WITHOUT, P1, P2, R0, R1, R2)
    resource, observed = world(*at)
    first = observed.instances[0]
    assert first.report is not None
    lines = (
        replace(node, slots=node.slots | Slots.of(SLOT)) if node.id == node_id(1) else node
        for node in first.report.nodes
    )
    mistaken = replace(first, report=replace(first.report, nodes=tuple(lines)))
    observed = replace(observed, instances=(mistaken, *observed.instances[1:]))
    loss = plan(resource, observed).status["recovery"]
    resource = cluster(*at, status={"recovery": loss}, recovery={"confirm": loss["token"]})
    found = plan(resource, observed)
    assert of(found.actions, "AddSlots") == []
    (call,) = of(found.actions, "AssignSlots")
    assert isinstance(call, AssignSlots)
    assert (call.slots, call.is_empty) == (Slots.of(SLOT), True)
