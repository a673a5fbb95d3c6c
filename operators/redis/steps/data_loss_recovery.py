"""Slots whose keys are lost: a master and all of its replicas lost their data. Pure.

Only evidence counts: a disk that is another than the one that was written on. As long as one node that may have the
keys merely says nothing, it is waited for. And even then nothing is done but what a person allows, for a slot that is
served again, empty, tells clients that their keys never were:

1. `SlotsLost` says which nodes are lost; status.recovery.token stands for exactly these and these slots.
2. spec.recovery.confirm = the token allows it. Up to here a node that comes back ends it all.
3. The lost owners are forgotten, so that the slots have none.
4. Nodes that hold nothing take them, or else the master that has fewest. Where no master is left at all, the cluster
   begins anew (bootstrap.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.commands import AddSlots, Forget
from operators.redis.instance import Instance
from operators.redis.lifecycles import NODE, NodeEvent
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
    """Slots that nobody serves, and that no replica can take over.

    Attributes:
        nodes: ids of nodes that owned them, and lost their data, by evidence.
        names: these and their replicas, for people.
        silent: places whose nodes may have the keys, and say nothing.
        total: whether no node that answers owns a slot.
        token: what stands for going on without the keys.
    """

    slots: Slots
    nodes: tuple[str, ...]
    names: tuple[str, ...]
    unreachable: tuple[Instance, ...]
    total: bool
    token: str


def loss(resource: RedisCluster, seen: Assessment) -> SlotLoss | None:
    """Return what is lost, or may be; None where every slot is served, or will be by a replica that is there."""
    if not resource.formed:
        return None
    view = seen.view
    owners = _lost_owners(seen)
    slots = Slots.union([view.uncovered, *map(view.slots_of, owners)])
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
        tuple(
            instance
            for node_id, instance in sorted(seen.recorded.items())
            if node_id in copies | away and not seen.lost(node_id)
        ),
        not any(primary.answers for primary in view.primaries),
        recovery_token(f"{resource.uid} lost {slots} of {','.join(sorted(nodes))}"),
    )


def _lost_owners(seen: Assessment) -> list[str]:
    """Primaries whose data is gone, and which no replica with their data can replace."""
    return [
        primary.id
        for primary in seen.view.primaries
        if not primary.answers
        and seen.lost(primary.id)
        and not any(seen.has_data_of(copy, primary.id) for copy in _copies(seen, primary.id) & seen.reachable.keys())
    ]


def _copies(seen: Assessment, primary: str) -> set[str]:
    """Replicas of a node, also as the status last reported: one that the others forgot may still have the keys."""
    entries = (instance.recorded for instance in seen.recorded.values() if instance.recorded)
    return {entry.node_id for entry in entries if entry.primary == primary} | {
        copy.id for copy in seen.view.replicas_of(primary)
    }


def report(resource: RedisCluster, seen: Assessment) -> Obj | None:
    """status.recovery: what can be done about the loss, or is being done; None if there is nothing to do."""
    found, record = loss(resource, seen), recorded(resource)
    if found is None or found.unreachable:
        return None
    if record and _in_force(resource, found):
        return record
    return {"token": found.token, "slots": str(found.slots), "message": _consequences(found)}


def restarts_empty(resource: RedisCluster, seen: Assessment) -> bool:
    """Whether a person allowed that a cluster of which nothing is left begins anew."""
    found = loss(resource, seen)
    return found is not None and found.total and not found.unreachable and _in_force(resource, found)


def _in_force(resource: RedisCluster, found: SlotLoss) -> bool:
    """Whether what was allowed is what is the matter, or what is left of it: it is carried out bit by bit."""
    record = recorded(resource)
    if not record or not confirms(resource, record["token"]):
        return False
    return found.token == record["token"] or not (found.slots - Slots.parse(record["slots"]))


def recover_lost_slots(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Slots whose keys may come back are waited for; if they are lost, a person may let them be served again."""
    found = loss(resource, seen)
    if found is None:
        return PASS
    if found.unreachable:
        message = (
            f"Nobody serves {brief(found.slots)}, and who may have the keys is away. Nothing is lost for good yet. "
            f"{' '.join(instance.why_away for instance in found.unreachable)}"
        )
        return Step.wait(SLOTS_UNSERVED, message, warning=True, requeue=POLL_SECONDS)
    if not _in_force(resource, found):
        return _await_confirmation(resource, found)
    if found.total:
        message = "No master is left, and it is allowed that the cluster begins anew, empty: that is written down."
        return Step.wait(RECOVERING, message, requeue=0)
    if unclear := seen.view.without(found.nodes).settled:
        message = f"{brief(found.slots)} are served again, empty, once nodes agree. {unclear}"
        return Step.wait(RECOVERING, message, requeue=GOSSIP_SECONDS)
    return _carry_out(resource, seen, found)


def _carry_out(resource: RedisCluster, seen: Assessment, found: SlotLoss) -> Step:
    """Make all nodes forget the lost owners; then give their slots to others."""
    known = [node_id for node_id in found.nodes if node_id in seen.view.nodes and seen.view.slots_of(node_id)]
    if known:
        message = f"The loss of {', '.join(found.names)} is allowed for: all forget them."
        return Step.wait(RECOVERING, message, *(_forget(seen, node) for node in known), requeue=GOSSIP_SECONDS)
    takers, calls, left = _takers(resource, seen), [], list(found.slots)
    for node_id, share in _shared(takers, len(left)).items():
        slots, left = Slots.of(*left[:share]), left[share:]
        if slots:
            at = seen.at(node_id)
            calls.append(AddSlots(seen.secrets.access, at, node_id, slots, outbid=True))
    message = f"{', '.join(map(seen.name_of, takers))} serve {brief(found.slots)} again, empty."
    return Step.wait(RECOVERING, message, *calls, requeue=GOSSIP_SECONDS)


def _forget(seen: Assessment, node_id: str) -> Forget:
    NODE.after(seen.node_state(node_id), NodeEvent.GIVE_UP)
    knowing = [node for node in seen.view.reachable_nodes if node.id in seen.view.nodes[node_id].entries]
    addresses = tuple(seen.at(node.id) for node in knowing)
    return Forget(seen.secrets.access, node_id, addresses)


def _takers(resource: RedisCluster, seen: Assessment) -> list[str]:
    """Nodes that hold nothing, as many as masters are lacking; else the master that owns fewest slots."""
    view, there = seen.view, seen.members
    lacking = resource.primaries - sum(primary.answers for primary in view.primaries)
    blank = [node_id for node_id, instance in there.items() if instance.is_blank][: max(lacking, 0)]
    owners = [primary.id for primary in view.primaries if primary.answers]
    return blank or [min(owners, key=lambda node_id: len(view.slots_of(node_id)))]


def _shared(takers: list[str], count: int) -> dict[str, int]:
    share, left = divmod(count, len(takers))
    return {node_id: share + (number < left) for number, node_id in enumerate(takers)}


def _await_confirmation(resource: RedisCluster, found: SlotLoss) -> Step:
    """What is said of a loss until a person allows what can be done."""
    caution = "If a volume can be brought back, do that instead."
    recording = "What is lost is written down before anything is done about it."
    proposal = Proposal(SLOTS_LOST, "", _consequences(found), caution, recording, found.token)
    return proposal.decide(resource, *filter(None, [recorded(resource).get("token")]), requeue=BLOCKED_SECONDS)


def _consequences(found: SlotLoss) -> str:
    whose = f"{', '.join(found.names)} lost their data, and nobody else has it: t" if found.names else "Nobody has t"
    slots = brief(found.slots)
    entries = f"{whose}he keys of {slots}{' are lost' if found.names else ''}."
    if found.total:
        return f"{entries} No master is left. The cluster can begin anew, empty."
    return f"{entries} These can be served again, empty; all other keys stay."
