"""Recovers slots whose keys are lost because a primary and all of its replicas lost their data. Pure.

A loss needs evidence: another volume than the one that the node wrote to. While a node that may have the keys is
merely unreachable, the operator waits. Even then a user must allow the recovery, because a slot that is served again,
but empty, looks to clients as if its keys never existed:

1. `SlotsLost` names the lost nodes; status.recovery.token identifies exactly these nodes and slots.
2. spec.recovery.confirm = the token allows the recovery. Until then a node that comes back ends it.
3. All nodes forget the lost owners (CLUSTER FORGET), so that the slots have no owner.
4. Empty nodes take the slots, or else the primary with the fewest. If no primary is left, the cluster is created
   again,
   empty (bootstrap.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.commands import AddSlots, Forget
from operators.redis.instance import Instance
from operators.redis.lifecycles import NODE, NodeEvent
from operators.redis.migration.commands import AssignSlots
from operators.redis.reasons import RECOVERING, SLOTS_LOST, SLOTS_UNSERVED
from operators.redis.slots.hash_slots import Slots
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step
from shared.steps.confirmed_recovery import Proposal, confirms, recorded, recovery_token

POLL_SECONDS = 2.0
"""Time until nodes that may come back are observed again."""


@dataclass(frozen=True, slots=True)
class SlotLoss:
    """Slots that no node serves, and that no replica can take over.

    Attributes:
        nodes: ids of their owners that lost their data, by evidence.
        names: names of these owners and of their lost replicas.
        unreachable: instances whose nodes may have the keys and are unreachable.
        total: whether no reachable node owns a slot.
        token: token of the recovery that gives up the keys.
    """

    slots: Slots
    nodes: tuple[str, ...]
    names: tuple[str, ...]
    unreachable: tuple[Instance, ...]
    total: bool
    token: str


def loss(resource: RedisCluster, seen: Assessment) -> SlotLoss | None:
    """Return the slots that are or may be lost; None if every slot is served, or a present replica can serve it."""
    if not resource.formed:
        return None
    view = seen.view
    owners = _lost_owners(seen)
    present = Slots.union(node.slots for node in seen.detached.values())  # a reachable node has their keys
    slots = Slots.union([view.uncovered, *map(view.slots_of, owners)]) - present
    if not slots:
        return None
    copies = {copy for owner in owners for copy in _copies(seen, owner) - seen.reachable.keys()}
    # Any node that is away may own slots whose owner is unknown.
    away = seen.recorded.keys() - seen.reachable.keys() if view.uncovered else set[str]()
    nodes = {*owners, *filter(seen.lost, away)}
    named = {
        instance.name for node_id in nodes | set(filter(seen.lost, copies)) if (instance := seen.instance_of(node_id))
    }
    return SlotLoss(
        slots,
        tuple(sorted(nodes)),
        tuple(sorted(named)),
        (
            *(
                instance
                for node_id, instance in sorted(seen.recorded.items())
                if node_id in copies | away and not seen.lost(node_id)
            ),
            *(_unrecorded(seen) if view.uncovered else ()),
        ),
        not any(primary.answers for primary in view.primaries),
        recovery_token(f"{resource.uid} lost {slots} of {','.join(sorted(nodes))}"),
    )


def _unrecorded(seen: Assessment) -> tuple[Instance, ...]:
    """Return the unreachable instances that may have the keys if the status has lost the records of all nodes."""
    if seen.recorded:
        return ()
    return tuple(instance for instance in seen.instances if instance.report is None and instance.disk)


def _lost_owners(seen: Assessment) -> list[str]:
    """Return the primaries whose data is lost, and that no replica with their data can replace."""
    return [
        primary.id
        for primary in seen.view.primaries
        if not primary.answers
        and seen.lost(primary.id)
        and not any(seen.has_data_of(copy, primary.id) for copy in _copies(seen, primary.id) & seen.reachable.keys())
        and not any(node.owner == primary.id for node in seen.detached.values())
    ]


def _copies(seen: Assessment, primary: str) -> set[str]:
    """Return the replicas of a node, including recorded ones: a forgotten replica may still have the keys."""
    entries = (instance.recorded for instance in seen.recorded.values() if instance.recorded)
    return {entry.node_id for entry in entries if entry.primary == primary} | {
        copy.id for copy in seen.view.replicas_of(primary)
    }


def report(resource: RedisCluster, seen: Assessment) -> Obj | None:
    """Return status.recovery: the recovery that is possible or confirmed; None if there is none."""
    found, record = loss(resource, seen), recorded(resource)
    if found is None or found.unreachable:
        return None
    if record and _in_force(resource, found):
        return record
    return {"token": found.token, "slots": str(found.slots), "message": _consequences(found)}


def restarts_empty(resource: RedisCluster, seen: Assessment) -> bool:
    """Return whether a user confirmed that a cluster without any primary is created again, empty."""
    found = loss(resource, seen)
    return found is not None and found.total and not found.unreachable and _in_force(resource, found)


def _in_force(resource: RedisCluster, found: SlotLoss) -> bool:
    """Return whether the confirmed recovery covers this loss, or what is left of it after some of its steps."""
    record = recorded(resource)
    if not record or not confirms(resource, record["token"]):
        return False
    return found.token == record["token"] or not (found.slots - Slots.parse(record["slots"]))


def recover_lost_slots(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Wait for slots whose keys may come back; recover lost slots, empty, once a user confirms it."""
    found = loss(resource, seen)
    if found is None:
        return PASS
    if found.unreachable:
        message = (
            f"No node serves {brief(found.slots)}: waiting for the nodes that may hold their keys. "
            f"{seen.why_away(found.unreachable)}"
        )
        return Step.wait(SLOTS_UNSERVED, message, warning=True, requeue=POLL_SECONDS)
    if not _in_force(resource, found):
        return _await_confirmation(resource, found)
    if found.total:
        message = "No primary is left and the loss is confirmed; recording that the cluster is created again, empty."
        return Step.wait(RECOVERING, message, requeue=0)
    if unclear := seen.view.without(found.nodes).settled:
        message = (
            f"{brief(found.slots)} will be served again, empty, once all nodes report the same cluster view. {unclear}"
        )
        return Step.wait(RECOVERING, message, requeue=GOSSIP_SECONDS)
    return _carry_out(resource, seen, found)


def _carry_out(resource: RedisCluster, seen: Assessment, found: SlotLoss) -> Step:
    """Make all nodes forget the lost owners, then assign their slots to other nodes."""
    known = [node_id for node_id in found.nodes if node_id in seen.view.nodes and seen.view.slots_of(node_id)]
    if known:
        message = f"The loss of {', '.join(found.names)} is confirmed; removing them from all nodes (CLUSTER FORGET)."
        return Step.wait(RECOVERING, message, *(_forget(seen, node) for node in known), requeue=GOSSIP_SECONDS)
    targets, left = _targets(resource, seen), list(found.slots)
    calls: list[AddSlots | AssignSlots] = []
    for node_id, share in _shared(targets, len(left)).items():
        slots, left = Slots.of(*left[:share]), left[share:]
        if slots:
            at = seen.at(node_id)
            believed = slots & _believed(seen)
            if believed:
                calls.append(AssignSlots(seen.secrets.access, node_id, believed, seen.primary_endpoints, is_empty=True))
            if slots - believed:
                calls.append(AddSlots(seen.secrets.access, at, node_id, slots - believed, outbid=True))
    message = f"{', '.join(map(seen.name_of, targets))} are taking {brief(found.slots)}, empty."
    return Step.wait(RECOVERING, message, *calls, requeue=GOSSIP_SECONDS)


def _believed(seen: Assessment) -> Slots:
    """Return the slots without an owner of which some node takes another one for the owner: ADDSLOTS rejects them."""
    tables = (node.report.nodes for node in seen.view.reachable_nodes if node.report)
    return Slots.union(node.slots for nodes in tables for node in nodes) & seen.view.uncovered


def _forget(seen: Assessment, node_id: str) -> Forget:
    NODE.after(seen.node_state(node_id), NodeEvent.GIVE_UP)
    knowing = [node for node in seen.view.reachable_nodes if seen.view.nodes[node_id].is_known_to(node.id)]
    addresses = tuple(seen.at(node.id) for node in knowing)
    return Forget(seen.secrets.access, node_id, addresses)


def _targets(resource: RedisCluster, seen: Assessment) -> list[str]:
    """Return empty nodes, as many as primaries are missing; without any, the primary with the fewest slots."""
    view, there = seen.view, seen.members
    missing = resource.primaries - sum(primary.answers for primary in view.primaries)
    blank = [node_id for node_id, instance in there.items() if instance.is_blank][: max(missing, 0)]
    owners = [primary.id for primary in view.primaries if primary.answers]
    return blank or [min(owners, key=lambda node_id: len(view.slots_of(node_id)))]


def _shared(targets: list[str], count: int) -> dict[str, int]:
    share, left = divmod(count, len(targets))
    return {node_id: share + (number < left) for number, node_id in enumerate(targets)}


def _await_confirmation(resource: RedisCluster, found: SlotLoss) -> Step:
    """Return the step that reports a loss until a user confirms the recovery."""
    caution = "If a volume can be restored, restore it instead."
    recording = "Recording the confirmed loss in status before the recovery starts."
    proposal = Proposal(SLOTS_LOST, "", _consequences(found), caution, recording, found.token)
    return proposal.decide(resource, *filter(None, [recorded(resource).get("token")]), requeue=BLOCKED_SECONDS)


def _consequences(found: SlotLoss) -> str:
    slots = brief(found.slots)
    lost = f"No node has the keys of {slots}."
    if found.names:
        lost = f"{', '.join(found.names)} lost their data, and no other node has it: the keys of {slots} are lost."
    if found.total:
        return f"{lost} No primary is left. The cluster can be created again, empty."
    return f"{lost} These slots can be served again, empty; all other keys stay."
