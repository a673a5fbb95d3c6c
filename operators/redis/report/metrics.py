"""State metrics of a RedisCluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from operators.redis.api.node_entries import recorded_entries
from operators.redis.slots.hash_slots import SLOTS, Slots
from shared.kubernetes.kinds import Obj
from shared.status.reasons import HIBERNATED
from shared.status.resource_metrics import DESIRED, PAUSED, READY, Sample, states_in
from shared.steps.confirmed_recovery import awaits_confirmation

_STATES = states_in(Path(__file__).with_suffix(".toml"))
PRIMARIES = _STATES["platform_redis_masters"]
SLOT_COUNT = _STATES["platform_redis_slots"]
SLOTS_LEFT = _STATES["platform_redis_migration_slots_left"]
RECOVERY_WAITING = _STATES["platform_redis_recovery_waiting"]

STATES = tuple(_STATES.values())
"""State metrics that only this operator has."""


def states(obj: Obj) -> Iterator[Sample]:
    """Yield the state metrics of a resource."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    yield DESIRED(0 if status.get("phase") == HIBERNATED else spec.get("replicas"))
    yield READY(status.get("readyReplicas") or 0)
    yield PAUSED(bool(spec.get("pause")))
    yield PRIMARIES(status.get("masters") or 0)
    if status.get("formed") and status.get("phase") != HIBERNATED:
        served = _slots(status, "True")
        yield SLOT_COUNT(len(served), "served")
        yield SLOT_COUNT(SLOTS - len(Slots.union((served, _slots(status, "Unknown")))), "unserved")
    moving = status.get("migration")
    yield SLOTS_LEFT(moving["slots"] - moving["moved"] if moving else 0)
    yield RECOVERY_WAITING(awaits_confirmation(obj))


def _slots(status: Obj, state: str) -> Slots:
    """Return the slots of the nodes in a state: True (they serve), False or Unknown."""
    return Slots.union(
        Slots.parse(node.get("slots") or "") for node in recorded_entries(status) if node.get("status") == state
    )
