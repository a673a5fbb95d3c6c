"""State metrics of a RedisCluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from operators.redis.api.node_entries import recorded_entries
from operators.redis.slots.hash_slots import SLOTS, Slots
from shared.kubernetes.kinds import Obj
from shared.status.reasons import HIBERNATED
from shared.status.resource_metrics import DESIRED, PAUSED, READY, Sample, State
from shared.steps.confirmed_recovery import awaits_confirmation

PRIMARIES = State("platform_redis_masters", "Number of primaries of a RedisCluster that own slots.")
SLOT_COUNT = State(
    "platform_redis_slots",
    "Slots of a RedisCluster by state: served by a ready node, or unserved; in neither state while only the operator "
    "cannot reach the node. Absent before the cluster is created, and while it hibernates.",
    ("state",),
)
SLOTS_LEFT = State(
    "platform_redis_migration_slots_left",
    "Slots of a RedisCluster that still have to move; 0 if no migration is in progress.",
)
RECOVERY_WAITING = State(
    "platform_redis_recovery_waiting",
    "1 while a RedisCluster has lost a primary with all of its replicas and a user must confirm the recovery, else 0.",
)

STATES = (PRIMARIES, SLOT_COUNT, SLOTS_LEFT, RECOVERY_WAITING)
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
