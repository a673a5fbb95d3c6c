"""Metrics of a RedisCluster, from the status that a plan reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.redis.report.metrics import PRIMARIES, RECOVERY_WAITING, SLOT_COUNT, SLOTS_LEFT, STATES, states
from operators.redis.slots.hash_slots import SLOTS
from shared.kubernetes.kinds import Obj
from shared.status.resource_metrics import DESIRED, PAUSED, READY, State
from shared.status.resource_metrics import STATES as COMMON
from tests.redis.unit.steps.test_data_loss_recovery import LOSS
from tests.redis.unit.steps.test_scaling import JOINED
from tests.redis.unit.world import At, formed, plan, planned, replica, world

Samples = dict[tuple[State, tuple[str, ...]], float | None]


def samples(status: Obj, **spec: Any) -> Samples:
    obj = {"spec": {"replicas": 6, **spec}, "status": status}
    return {(state, labels): value for state, value, labels in states(obj)}


def of(*at: At, **spec: Any) -> Samples:
    return samples(plan(*world(*at)).status, **spec)


def test_metrics_of_a_cluster_in_its_desired_state() -> None:
    assert of(*formed()) == {
        (DESIRED, ()): 6,
        (READY, ()): 6,
        (PAUSED, ()): False,
        (PRIMARIES, ()): 3,
        (SLOT_COUNT, ("served",)): SLOTS,
        (SLOT_COUNT, ("unserved",)): 0,
        (SLOTS_LEFT, ()): 0,
        (RECOVERY_WAITING, ()): False,
    }


def test_slots_of_an_unreachable_primary_are_unserved() -> None:
    unreachable, *others = formed()
    found = of(replace(unreachable, up=False), *others)
    assert found[SLOT_COUNT, ("unserved",)] == 5461
    assert found[SLOT_COUNT, ("served",)] == SLOTS - 5461
    assert found[READY, ()] == 5


def test_slots_are_not_reported_as_unserved_while_only_the_operator_cannot_reach_the_nodes() -> None:
    found = of(*(replace(node, up=False, ready=True) for node in formed()))
    assert (found[SLOT_COUNT, ("served",)], found[SLOT_COUNT, ("unserved",)]) == (0, 0)
    found = of(*(replace(node, up=False, ready=False) for node in formed()))
    assert found[SLOT_COUNT, ("unserved",)] == SLOTS, "the kubelet reports no node as ready"


def test_lost_slots_wait_for_confirmation() -> None:
    found = of(*LOSS)
    assert found[RECOVERY_WAITING, ()] is True
    confirm = plan(*world(*LOSS)).status["recovery"]["token"]
    assert of(*LOSS, recovery={"confirm": confirm})[RECOVERY_WAITING, ()] is False, "a confirmed recovery runs"
    assert found[SLOT_COUNT, ("unserved",)] == 5461


def test_remaining_slots_of_a_migration_are_counted_down() -> None:
    beginning = planned(*formed(), JOINED, replica(6)).status
    assert samples(beginning)[SLOTS_LEFT, ()] == 4096
    assert samples(beginning | {"migration": beginning["migration"] | {"moved": 4000}})[SLOTS_LEFT, ()] == 96


def test_no_slot_is_unserved_before_the_cluster_is_formed() -> None:
    found = samples({})
    assert (found[DESIRED, ()], found[READY, ()], found[PRIMARIES, ()]) == (6, 0, 0)
    assert not any(state == SLOT_COUNT for state, _ in found)


def test_paused_resource_is_reported() -> None:
    assert samples({}, pause=True)[PAUSED, ()] is True


def test_every_state_is_declared() -> None:
    assert {state for state, _ in of(*formed())} - set(COMMON) == set(STATES)
