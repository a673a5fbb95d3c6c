"""Slots whose keys are lost: a master and all of its replicas lost their data. Pure.

Only evidence counts: a disk that is another than the one that was written on. As long as one node that may have the
keys merely says nothing, it is waited for. And even then nothing is done but what a person allows, for a slot that is
served again, empty, tells clients that their keys never were:

1. `SlotsLost` says which nodes are lost; status.recovery.token stands for exactly these and these slots.
2. spec.recovery.confirm = the token allows it. Up to here a node that comes back ends it all.
3. The lost owners are forgotten, so that the slots have none.
4. Nodes that hold nothing take them, or else the master that has fewest. Where no master is left at all, the cluster
   begins anew (forming.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import AddSlots, Forget
from operators.redis.instance import Instance, endpoint
from operators.redis.observe import Observed
from operators.redis.slots.hash_slots import Slots
from operators.redis.steps.bootstrap import SOON, why_away
from operators.redis.steps.membership_repair import HELD
from operators.redis.steps.scaling import is_blank, members
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

LOST, UNSERVED, RECOVERING = "SlotsLost", "SlotsUnserved", "Recovering"

TOKEN_LENGTH = 12

AGAIN = 2.0
"""Seconds until nodes that may come back are asked again."""


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
    silent: tuple[Instance, ...]
    total: bool
    token: str


def loss(resource: RedisCluster, seen: Observed) -> SlotLoss | None:
    """What is lost, or may be; None where every slot is served, or will be by a replica that is there."""
    if not resource.formed:
        return None
    view = seen.view
    slots, nodes, copied, silent = view.uncovered, set[str](), set[str](), set[str]()
    for master in view.masters:
        if master.answers or not seen.lost(master.id):
            continue
        copies = {copy.id for copy in view.replicas_of(master.id)} | _recorded_copies(seen, master.id)
        if any(seen.has_data_of(copy, master.id) for copy in copies & seen.reachable.keys()):
            continue
        copies -= seen.reachable.keys()
        slots |= view.slots_of(master.id)
        nodes.add(master.id)
        copied |= {copy for copy in copies if seen.lost(copy)}
        silent |= {copy for copy in copies if not seen.lost(copy)}
    if not slots:
        return None
    if view.uncovered:  # of slots that nobody knows the owner of, anybody may be it
        away = seen.recorded.keys() - seen.reachable.keys()
        nodes |= {node_id for node_id in away if seen.lost(node_id)}
        silent |= {node_id for node_id in away if not seen.lost(node_id)}
    said = f"{resource.uid} lost {slots} of {','.join(sorted(nodes))}"
    return SlotLoss(
        slots,
        tuple(sorted(nodes)),
        tuple(sorted({place.name for node_id in nodes | copied if (place := seen.place_of(node_id))})),
        tuple(place for node_id, place in sorted(seen.recorded.items()) if node_id in silent),
        not any(master.answers for master in view.masters),
        hashlib.sha256(said.encode()).hexdigest()[:TOKEN_LENGTH],
    )


def _recorded_copies(seen: Observed, master: str) -> set[str]:
    """Replicas of a node as the status last told: whom the others forgot may have the keys all the same."""
    return {node_id for node_id, place in seen.recorded.items() if place.recorded and place.recorded.master == master}


def report(resource: RedisCluster, seen: Observed) -> Obj | None:
    """status.recovery: what can be done about the loss, or is being done; None if there is nothing to do."""
    found, recorded = loss(resource, seen), _recorded(resource)
    if found is None or found.silent:
        return None
    if recorded and _in_force(resource, found):
        return recorded
    return {"token": found.token, "slots": str(found.slots), "message": _consequences(found)}


def begins_anew(resource: RedisCluster, seen: Observed) -> bool:
    """Whether a person allowed that a cluster of which nothing is left begins anew."""
    found = loss(resource, seen)
    return found is not None and found.total and not found.silent and _in_force(resource, found)


def _recorded(resource: RedisCluster) -> Obj:
    """status.recovery; empty if nothing stands there."""
    return resource.reported.get("recovery") or {}


def _in_force(resource: RedisCluster, found: SlotLoss) -> bool:
    """Whether what was allowed is what is the matter, or what is left of it: it is carried out bit by bit."""
    recorded, allowed = _recorded(resource), resource.spec.recovery
    if not recorded or allowed is None or allowed.confirm != recorded["token"]:
        return False
    return found.token == recorded["token"] or not (found.slots - Slots.parse(recorded["slots"]))


def recover_lost_slots(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Slots whose keys may come back are waited for; if they are lost, a person may let them be served again."""
    found = loss(resource, seen)
    if found is None:
        return PASS
    if found.silent:
        message = (
            f"Nobody serves {brief(found.slots)}, and who may have the keys is away. Nothing is lost for good yet. "
            f"{' '.join(map(why_away, found.silent))}"
        )
        return Step((), Progress.WAITING, UNSERVED, message, warning=True, requeue=AGAIN)
    if not _in_force(resource, found):
        return _ask(resource, found)
    if found.total:
        message = "No master is left, and it is allowed that the cluster begins anew, empty: that is written down."
        return Step.wait(RECOVERING, message, requeue=0)
    if unclear := seen.view.without(found.nodes).settled:
        message = f"{brief(found.slots)} are served again, empty, once nodes agree. {unclear}"
        return Step.wait(RECOVERING, message, requeue=SOON)
    return _carry_out(resource, seen, found)


def _carry_out(resource: RedisCluster, seen: Observed, found: SlotLoss) -> Step:
    view, access = seen.view, seen.secrets.access
    if known := [node_id for node_id in found.nodes if node_id in view.nodes and view.slots_of(node_id)]:
        calls = [
            Forget(
                access,
                node_id,
                tuple(
                    endpoint(resource, seen.reachable[voice.id])
                    for voice in view.reachable_nodes
                    if voice.id in view.nodes[node_id].told
                ),
            )
            for node_id in known
        ]
        message = f"The loss of {', '.join(found.names)} is allowed for: all forget them."
        return Step.wait(RECOVERING, message, *calls, requeue=SOON)
    takers = _takers(resource, seen)
    calls_, left = [], list(found.slots)
    for node_id, share in _shared(takers, len(left)).items():
        slots, left = Slots.of(*left[:share]), left[share:]
        if slots:
            at = endpoint(resource, seen.reachable[node_id])
            calls_.append(AddSlots(access, at, node_id, slots, outbid=True))
    message = f"{', '.join(map(seen.name_of, takers))} serve {brief(found.slots)} again, empty."
    return Step.wait(RECOVERING, message, *calls_, requeue=SOON)


def _takers(resource: RedisCluster, seen: Observed) -> list[str]:
    """Nodes that hold nothing, as many as masters are lacking; else the master that owns fewest slots."""
    view, there = seen.view, members(resource, seen)
    lacking = resource.masters - sum(master.answers for master in view.masters)
    blank = [node_id for node_id, place in there.items() if is_blank(place)][: max(lacking, 0)]
    owners = [master.id for master in view.masters if master.answers]
    return blank or [min(owners, key=lambda node_id: len(view.slots_of(node_id)))]


def _shared(takers: list[str], count: int) -> dict[str, int]:
    share, left = divmod(count, len(takers))
    return {node_id: share + (number < left) for number, node_id in enumerate(takers)}


def _ask(resource: RedisCluster, found: SlotLoss) -> Step:
    """What is said of a loss until a person allows what can be done."""
    recorded, given = _recorded(resource), resource.spec.recovery
    if given is not None and given.confirm not in (found.token, recorded.get("token")):
        return Step.blocked(
            "TokenRefused",
            f"spec.recovery.confirm is {given.confirm!r}, and what can be done now has the token {found.token}: "
            f"{_consequences(found)} Nothing was changed. If that is what you want, confirm that token.",
        )
    if given is not None:
        return Step.wait(LOST, "What is lost is written down before anything is done about it.", requeue=0)
    return Step(
        (),
        Progress.BLOCKED,
        LOST,
        f"{_consequences(found)} To allow it, set spec.recovery.confirm to {found.token}. If a volume can be brought "
        "back, do that instead. Nothing was changed.",
        warning=True,
        requeue=HELD,
    )


def _consequences(found: SlotLoss) -> str:
    whose = f"{', '.join(found.names)} lost their data, and nobody else has it: t" if found.names else "Nobody has t"
    slots = brief(found.slots)
    told = f"{whose}he keys of {slots}{' are lost' if found.names else ''}."
    if found.total:
        return f"{told} No master is left. The cluster can begin anew, empty."
    return f"{told} These can be served again, empty; all other keys stay."
