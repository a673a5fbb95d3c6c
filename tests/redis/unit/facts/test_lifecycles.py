"""Lifecycles of nodes and slots: classification, and dangerous transitions that are illegal."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from operators.redis.client.responses import Node, NodeReport
from operators.redis.facts.lifecycles import LIFECYCLES, NODE, SLOT, NodeEvent, NodeState, SlotEvent, SlotState
from operators.redis.migration.key_by_key import slot_state
from operators.redis.slots.hash_slots import Slots
from shared.status.lifecycle import IllegalTransition, Lifecycle
from tests.redis.unit.world import ABSENT, NEW_RECORDED, At, assess, formed, node_id, replica, world

PRIMARIES = formed(3, 0)
OTHERS = formed()[3:]


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
def test_node_state_follows_from_the_observation(spot: At, spec: dict[str, Any], state: NodeState) -> None:
    resource, seen = world(*PRIMARIES, spot, **{"replicasPerMaster": 0, **spec})
    assert assess(resource, seen).node_state(node_id(3)) is state


@pytest.mark.parametrize(
    ("spot", "state"),
    [
        (PRIMARIES[0], NodeState.PRIMARY),
        (At(PRIMARIES[0].slots, up=False), NodeState.PRIMARY),
        (At(PRIMARIES[0].slots, up=False, disk="another"), NodeState.LOST_PRIMARY),
    ],
)
def test_slot_owner_is_a_primary_until_its_data_is_proven_lost(spot: At, state: NodeState) -> None:
    resource, seen = world(spot, *PRIMARIES[1:], *OTHERS)
    assert assess(resource, seen).node_state(node_id(0)) is state


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.REMOVED])
def test_only_a_removed_node_is_forgotten_without_confirmation(state: NodeState) -> None:
    with pytest.raises(IllegalTransition):
        NODE.after(state, NodeEvent.FORGET)


@pytest.mark.parametrize("state", [state for state in NodeState if state not in (NodeState.EMPTY, NodeState.REPLICA)])
def test_node_with_keys_or_slots_does_not_become_a_replica(state: NodeState) -> None:
    with pytest.raises(IllegalTransition):
        NODE.after(state, NodeEvent.REPLICATE)


@pytest.mark.parametrize("state", [state for state in SlotState if state is not SlotState.EMPTY])
def test_slot_is_assigned_to_its_target_only_once_the_source_is_empty(state: SlotState) -> None:
    with pytest.raises(IllegalTransition):
        SLOT.after(state, SlotEvent.ASSIGN_AT_TARGET)


@pytest.mark.parametrize(
    ("at_source", "at_target", "state"),
    [
        ({"slots": Slots.of(7)}, {}, SlotState.OWNED),
        ({"slots": Slots.of(7)}, {"importing": {7: "source"}}, SlotState.IMPORTING),
        ({"slots": Slots.of(7)}, {"importing": {7: "another"}}, SlotState.INHERITED),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {"importing": {7: "another"}}, SlotState.MIGRATING),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {}, SlotState.MIGRATING),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {"importing": {7: "source"}}, SlotState.OPEN),
        ({"slots": Slots.of(7), "migrating": {7: "target"}}, {"slots": Slots.of(7)}, SlotState.HANDED_OVER),
        ({}, {"slots": Slots.of(7)}, SlotState.OWNED),
    ],
)
def test_slot_state_follows_from_the_reports_of_both_ends(
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
    assert unreached <= {NodeState.STRANDED, SlotState.INHERITED}, "only crashes and failovers lead to these states"
