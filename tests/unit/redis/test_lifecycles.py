"""The lifecycles of nodes and slots: how they are classified, and that dangerous transitions are illegal."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from operators.redis.assessment import Assessment
from operators.redis.client.responses import Node, NodeReport
from operators.redis.lifecycles import LIFECYCLES, NODE, SLOT, NodeEvent, NodeState, SlotEvent, SlotState
from operators.redis.migration.key_by_key import slot_state
from operators.redis.slots.hash_slots import Slots
from shared.status.lifecycle import IllegalTransition, Lifecycle
from tests.unit.redis.world import ABSENT, NEW_RECORDED, At, formed, node_id, replica, world

MASTERS = formed(3, 0)
THERE = formed()[3:]


@pytest.mark.parametrize(
    ("spot", "spec", "state"),
    [
        (NEW_RECORDED, {}, NodeState.NEW),
        (At(), {}, NodeState.EMPTY),
        (replica(0), {}, NodeState.REPLICA),
        (replica(0, up=False), {}, NodeState.REPLICA),
        (At(keys=7), {}, NodeState.STRANDED),
        (replica(0, up=False, disk="another"), {}, NodeState.REMOVED),
        (replica(0, up=False, pod=False), {"replicas": 3}, NodeState.REMOVED),
        (ABSENT, {}, NodeState.FORGOTTEN),
    ],
)
def test_a_node_is_classified_by_what_was_observed(spot: At, spec: dict[str, Any], state: NodeState) -> None:
    resource, seen = world(*MASTERS, spot, **{"replicasPerMaster": 0, **spec})
    assert Assessment.of(resource, seen).node_state(node_id(3)) is state


@pytest.mark.parametrize(
    ("spot", "state"),
    [
        (MASTERS[0], NodeState.PRIMARY),
        (At(MASTERS[0].slots, up=False), NodeState.PRIMARY),
        (At(MASTERS[0].slots, up=False, disk="another"), NodeState.LOST_PRIMARY),
    ],
)
def test_an_owner_of_slots_is_a_primary_until_its_data_is_lost_by_evidence(spot: At, state: NodeState) -> None:
    resource, seen = world(spot, *MASTERS[1:], *THERE)
    assert Assessment.of(resource, seen).node_state(node_id(0)) is state


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.REMOVED])
def test_only_a_node_that_is_gone_is_forgotten_unasked(state: NodeState) -> None:
    with pytest.raises(IllegalTransition):
        NODE.after(state, NodeEvent.FORGET)


@pytest.mark.parametrize("state", [state for state in NodeState if state not in (NodeState.EMPTY, NodeState.REPLICA)])
def test_a_node_with_keys_or_slots_of_its_own_replicates_none(state: NodeState) -> None:
    with pytest.raises(IllegalTransition):
        NODE.after(state, NodeEvent.REPLICATE)


@pytest.mark.parametrize("state", [state for state in SlotState if state is not SlotState.EMPTY])
def test_a_slot_is_assigned_to_its_target_only_once_the_source_has_no_key_of_it(state: SlotState) -> None:
    with pytest.raises(IllegalTransition):
        SLOT.after(state, SlotEvent.ASSIGN_AT_TARGET)


@pytest.mark.parametrize(
    ("at_source", "at_target", "state"),
    [
        ({"slots": Slots.of(7)}, {}, SlotState.OWNED),
        ({"slots": Slots.of(7)}, {"importing": {7: "source"}}, SlotState.IMPORTING),
        ({"slots": Slots.of(7)}, {"importing": {7: "another"}}, SlotState.OWNED),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {}, SlotState.MIGRATING),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {"importing": {7: "source"}}, SlotState.OPEN),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {"slots": Slots.of(7)}, SlotState.HANDED_OVER),
        ({}, {"slots": Slots.of(7)}, SlotState.OWNED),
    ],
)
def test_a_slot_is_classified_by_what_both_ends_report(
    at_source: dict[str, Any], at_target: dict[str, Any], state: SlotState
) -> None:
    ends = (("source", at_source), ("target", at_target))
    reports = (NodeReport(each, nodes=(Node(each, flags=frozenset({"myself"}), **line),)) for each, line in ends)
    assert slot_state(7, *reports) is state


@pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=lambda lifecycle: lifecycle.name)
def test_every_state_is_in_the_table_and_can_be_reached(lifecycle: Lifecycle[Enum, Enum]) -> None:
    targets = {target for events in lifecycle.transitions.values() for target in events.values()}
    found = {type(lifecycle.initial)(state) for state in (lifecycle.initial, *targets)}
    assert set(lifecycle.transitions) == set(type(lifecycle.initial))
    unreached = set(lifecycle.transitions) - found
    assert unreached <= {NodeState.STRANDED, SlotState.MIGRATING}, "these follow from crashes and failovers alone"
