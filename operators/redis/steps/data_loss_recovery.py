"""Recovers slots whose keys are lost: a primary lost its data, with all replicas that had its newest keys. Pure.

A loss needs evidence: another volume than the one that the node wrote to. While a node that may have the keys is
merely unreachable, the operator waits. Even then a user must allow the recovery, because a slot that is served again,
but empty, looks to clients as if its keys never existed:

1. `SlotsLost` names the lost nodes; status.recovery.token identifies exactly these nodes and slots, and this occurrence
   of their loss (`shared.steps.confirmed_recovery`).
2. spec.recovery.confirm = the token allows the recovery. Until then a node that comes back ends it. The consent covers
   what is left of that loss after each step, and nothing that has come back or is served again.
3. All nodes forget the lost owners (CLUSTER FORGET), so that the slots have no owner. A replica rejects that for its
   primary: one without keys takes over instead.
4. Empty nodes take the slots, or else the primary with the fewest. If all slots are lost, and no volume may have keys,
   the cluster is created again, empty (bootstrap.py).

A node that the lost primary took over from still has its keys as of then, and none of the later writes. And a replica
that was not connected to its primary since it started may lack any number of writes. Each replaces the lost primary
only if a user allows it: the loss names it, and has another token than one without it. Then it takes over (CLUSTER
FAILOVER), and none of these slots is served empty.

Data on a Kubernetes node (hostPath) that a pod has left is not lost: `DataAway` names where it is. As that node
may never come back, a user may give the keys up as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import AddSlots, Forget
from operators.redis.client.responses import NodeReport
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.migration.commands import AssignSlots
from operators.redis.reasons import DATA_AWAY, NODE_NOT_EMPTY, RECOVERING, SLOTS_LOST, SLOTS_UNSERVED, TAKING_OVER
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import Instance
from operators.redis.state.observed import outlives_pods
from operators.redis.steps.failover import take_over_from_lost, unelectable
from operators.redis.steps.preconditions import refuse_unknown_nodes
from operators.redis.steps.readoption import take_back
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step
from shared.steps.confirmed_recovery import UNKNOWN, Proposal, current, is_in_force, occurrence

POLL_SECONDS = 2.0
"""Time until nodes that may come back are observed again."""


@dataclass(frozen=True, slots=True)
class SlotLoss:
    """Slots that no node serves, and that no replica can take over.

    Attributes:
        nodes: ids of the nodes whose data is given up with the slots: owners and replicas that lost it, by evidence, or
            whose data is elsewhere.
        lost: instances whose node lost its data.
        elsewhere: instances whose node has its data on another Kubernetes node than their pods.
        unreachable: instances whose nodes may have the keys and are unreachable.
        doubtful: if all slots are lost, instances that may still have keys.
        older: instances whose node has older keys of a lost primary, by the id of that primary; they can replace it.
        outdated: slots of these primaries.
        served: slots of `outdated` that such a node owns already, because all nodes that know its successor are lost.
    """

    slots: Slots
    nodes: frozenset[str]
    lost: tuple[Instance, ...] = ()
    elsewhere: tuple[Instance, ...] = ()
    unreachable: tuple[Instance, ...] = ()
    doubtful: tuple[Instance, ...] = ()
    older: Mapping[str, Instance] = field(default_factory=dict)
    outdated: Slots = field(default_factory=Slots)
    served: Slots = field(default_factory=Slots)

    @property
    def is_total(self) -> bool:
        """Whether all slots are lost, with all keys, so that the cluster has to be created again."""
        return self.slots == Slots.all() and not self.older

    @property
    def older_ids(self) -> list[str]:
        """Ids of the nodes with older keys."""
        return sorted(instance.id for instance in self.older.values())

    @property
    def is_certain(self) -> bool:
        """Whether no node that is only unreachable may have the keys."""
        return not self.unreachable and not self.doubtful

    @property
    def names(self) -> str:
        return _names((*self.lost, *self.elsewhere))


def loss(seen: Assessment) -> SlotLoss | None:
    """Return the slots that are or may be lost; None if every slot is served, or a present replica can serve it."""
    if not seen.resource.formed:
        return None
    view = seen.view
    returned = _outdated_owners(seen)
    owners = [*_lost_owners(seen), *returned]
    detached = [node for node in seen.detached.values() if not node.may_be_outdated]
    present = Slots.union(node.slots for node in detached)  # a reachable node has their keys
    served = Slots.union(slots for _, slots in returned.values())
    slots = Slots.union([view.uncovered, served, *map(view.slots_of, owners)]) - present
    if not slots:
        return None
    # Any node that is away may own slots whose owner is unknown.
    away = seen.recorded.keys() - seen.reachable.keys() if view.uncovered else set[str]()
    concerned = away | {copy for owner in owners for copy in _copies(seen, owner) - seen.reachable.keys()}
    nodes = frozenset({*owners, *filter(seen.lost, concerned)})
    instances = tuple(each for each in seen.instances if each.recorded and each.id not in seen.detached)
    given_up = [instance for instance in instances if instance.recorded and instance.recorded.node_id in nodes]
    elsewhere = tuple(each for each in given_up if each.recorded and seen.is_elsewhere(each.recorded.node_id))
    older = {owner: instance for owner, (instance, _) in returned.items()}
    older |= {owner: found for owner in owners if owner not in returned and (found := _older(seen, owner))}
    return SlotLoss(
        slots,
        nodes,
        tuple(instance for instance in given_up if instance not in elsewhere),
        elsewhere,
        (
            *(each for each in instances if each.recorded and each.recorded.node_id in concerned - nodes),
            *(_unrecorded(seen) if view.uncovered else ()),
        ),
        _doubtful(seen, nodes) if slots == Slots.all() and not older else (),
        older,
        Slots.union([served, *map(view.slots_of, older)]),
        served,
    )


def _outdated_owners(seen: Assessment) -> Mapping[str, tuple[Instance, Slots]]:
    """Return recorded owners that are lost, whose slots the node that they took over from owns in the view.

    That node does not know its successor, and no majority that does can come back to inform it.

    Returns:
        The instance of that node and these slots, by the id of the lost owner.
    """
    view, found = seen.view, dict[str, tuple[Instance, Slots]]()
    if view.can_elect or len(view.primaries) - len(seen.lost_primaries) >= view.majority:
        return found
    for lost, instance in seen.recorded.items():
        former = seen.copy_of(lost)
        known = instance.recorded.slots if instance.recorded and seen.lost(lost) else Slots()
        claimed = known & view.slots_of(former)
        if claimed and former in seen.reachable and seen.has_older_data_of(former, lost):
            found[lost] = seen.reachable[former], claimed
    return found


def _older(seen: Assessment, owner: str) -> Instance | None:
    """Return the reachable instance with older keys of a lost primary: a replica of it that started since.

    Otherwise, the node that it took over from, or the replica of that one with the most data. Otherwise, a replica that
    lost its nodes.conf since.
    """
    reports = [seen.reachable[node_id].report for node_id in _copies(seen, owner) & seen.reachable.keys()]

    def recency(each: NodeReport) -> tuple[bool, bool, int, str]:
        return seen.may_replace(each.id, owner), each.id == seen.copy_of(owner), each.offset, each.id

    def has_older_keys(each: NodeReport) -> bool:
        return seen.may_replace(each.id, owner) or seen.has_older_data_of(each.id, owner)

    found = [report for report in reports if report and report.keys and has_older_keys(report)]
    if found:
        return seen.reachable[max(found, key=recency).id]
    return next((each.instance for each in seen.detached.values() if each.owner == owner), None)


def _doubtful(seen: Assessment, nodes: Collection[str]) -> tuple[Instance, ...]:
    """Return the instances that may have keys although no slot is served.

    A node that found its volume empty may have started before the disk was mounted. And without any record of a lost
    node, nothing shows that the data was lost.

    Args:
        nodes: ids of the nodes that lost their data, or whose data is elsewhere.
    """
    if not nodes and outlives_pods(seen.resource):
        return seen.instances

    def may_have_keys(instance: Instance) -> bool:
        known, report = instance.recorded, instance.report
        if report is not None and report.keys:
            return True
        if known is None or known.node_id in seen.reachable:
            return False
        is_away = not seen.lost(known.node_id) or seen.is_elsewhere(known.node_id)
        return is_away or seen.found_empty(instance)

    return tuple(filter(may_have_keys, seen.instances))


def _unrecorded(seen: Assessment) -> tuple[Instance, ...]:
    """Return the unreachable instances that may have the keys if the status has lost the records of all nodes."""
    if seen.recorded:
        return ()
    return tuple(instance for instance in seen.instances if instance.report is None and instance.disk)


def _lost_owners(seen: Assessment) -> list[str]:
    """Return the primaries whose data is lost, and that no replica with all of their data can replace."""
    return [
        primary.id
        for primary in seen.lost_primaries
        if not primary.answers
        and not any(
            seen.may_replace(copy, primary.id) and not seen.may_be_outdated(copy, primary.id, seen.now)
            for copy in _copies(seen, primary.id) & seen.reachable.keys()
        )
        and not any(node.owner == primary.id and not node.may_be_outdated for node in seen.detached.values())
    ]


def _copies(seen: Assessment, primary: str) -> set[str]:
    """Return the replicas of a node, including recorded ones: a forgotten replica may still have the keys.

    And the node that it took over from, with the replicas of that one, unless they follow another primary by now.
    """
    view = seen.view
    found = {copy.id for copy in view.replicas_of(primary)}
    for known, instance in seen.recorded.items():
        node, entry = view.nodes.get(known), instance.recorded
        follows = node.primary if node else entry.primary if entry else ""
        is_older = seen.has_older_data_of(known, primary) and not view.slots_of(known)
        if (entry and entry.primary == primary) or (is_older and follows in ("", seen.copy_of(primary))):
            found.add(known)
    return found


def report(seen: Assessment) -> Obj | None:
    """Return status.recovery: the recovery that is possible or confirmed; None if there is none.

    What has come back, or is served again, is no longer part of it: the consent to its loss has ended.
    """
    found = loss(seen)
    if found is None:
        return None
    if found.is_certain:
        return _offer(seen, found)
    left = _remaining(seen, found, current(seen.resource, seen.now))  # unknown neither ends a loss nor begins one
    return left | {"message": UNKNOWN} if left["slots"] else None


def _offer(seen: Assessment, found: SlotLoss) -> Obj:
    """Return the recovery that is possible from a certain loss: the recorded one, as long as it covers this loss.

    Once the lost owners are forgotten, any lost node may have owned the slots. So the nodes of the recovery include
    those that were lost while each slot had a known owner, and are no part of the loss.
    """
    resource = seen.resource
    left = _remaining(seen, found, current(resource, seen.now))
    covers = not found.slots - Slots.parse(left["slots"]) and found.nodes <= set(left["nodes"])
    continues = covers and (left.get("older") or []) == found.older_ids
    all_lost = f"{resource.uid} lost {found.slots} of {','.join(sorted(found.nodes))}"
    if found.older:
        all_lost += f" and has older keys at {','.join(found.older_ids)}"
    fields = occurrence(resource, all_lost, seen.now, continues=continues)
    others = () if seen.view.uncovered else filter(seen.lost, seen.recorded)
    nodes = sorted({*(left["nodes"] if continues else found.nodes), *others})
    older = {"older": found.older_ids} if found.older else {}
    return {"slots": str(found.slots), "nodes": nodes, "message": _consequences(found)} | older | fields


def _remaining(seen: Assessment, found: SlotLoss, record: Obj) -> Obj:
    """Return a recorded recovery without the slots that are served again, and the nodes that have come back.

    And without the nodes with older keys that have taken over.
    """
    slots = Slots.parse(record.get("slots") or "") & found.slots
    nodes = [node_id for node_id in record.get("nodes") or () if node_id not in seen.reachable]
    recorded = record.get("older") or ()
    older = [each for each in recorded if each in found.older_ids or not seen.view.slots_of(each)]
    left = {name: value for name, value in record.items() if name != "older"} | ({"older": older} if older else {})
    return left | {"slots": str(slots), "nodes": nodes}


def restarts_empty(seen: Assessment) -> bool:
    """Return whether a user confirmed that a cluster that lost all keys, by evidence, is created again, empty."""
    found = loss(seen)
    if found is None or not found.is_total or not found.is_certain:
        return False
    return _is_confirmed(seen.resource, _offer(seen, found))


def _is_confirmed(resource: RedisCluster, offered: Obj) -> bool:
    """Return whether a user has confirmed the recovery that is offered for a certain loss."""
    return is_in_force(resource, offered["token"])


def recover_lost_slots(seen: Assessment) -> Step:
    """Wait for slots whose keys may come back; recover lost slots, empty, once a user confirms it."""
    found = loss(seen)
    if found is None:
        return _await_newer_keys(seen)
    if seen.unknown_nodes:  # they may have the keys
        return refuse_unknown_nodes(seen)
    if found.unreachable:
        message = (
            f"No node serves {brief(found.slots)}: waiting for the nodes that may hold their keys. "
            f"{seen.why_away(found.unreachable)}"
        )
        return Step.wait(SLOTS_UNSERVED, message, warning=True, requeue=POLL_SECONDS)
    if found.doubtful:
        return _refuse_total(seen, found)
    offered = _offer(seen, found)
    if not _is_confirmed(seen.resource, offered):
        return _await_confirmation(seen, found, offered)
    if found.is_total:
        message = "No primary is left and the loss is confirmed; recording that the cluster is created again, empty."
        return Step.wait(RECOVERING, message, requeue=0)
    if detached := [seen.detached[each.id] for each in found.older.values() if each.id in seen.detached]:
        return take_back(seen, detached)
    if unclear := seen.view.without(found.nodes).settled:
        message = (
            f"{brief(found.slots)} will be served again, empty, once all nodes report the same cluster view. {unclear}"
        )
        return Step.wait(RECOVERING, message, requeue=GOSSIP_SECONDS)
    for owner, instance in found.older.items():
        if seen.view.slots_of(owner):
            return _promote(seen, owner, instance, "with its older keys")
    return _carry_out(seen, found)


def _await_newer_keys(seen: Assessment) -> Step:
    """Wait for a node whose data is on another Kubernetes node, and that took over from one that serves its slots."""
    for node in seen.view.members:
        if (instance := seen.instance_of(node.id)) and instance.recorded and seen.has_newer_data(node.id):
            message = (
                f"{seen.name_of(node.primary)} serves older keys: {instance.name} took over from it, and has its data "
                f"on {instance.recorded.disk}, where its pod does not run. Let the pod run there again. If that data "
                f"is not needed, run CLUSTER FORGET {node.id} on every other node. Nothing was changed."
            )
            return Step.blocked(DATA_AWAY, message, requeue=BLOCKED_SECONDS)
    return PASS


def _promote(seen: Assessment, owner: str, instance: Instance, content: str) -> Step:
    """Let a replica of a lost primary take over from it, with the content that a user confirmed."""
    loss, report = f"The loss of {seen.name_of(owner)} is confirmed", instance.report
    is_ready = instance.id in (each.id for each in seen.view.failover_candidates(owner)) and not instance.leaving
    if not is_ready or report is None or not report.finds_failed(owner):
        message = f"{loss}. Waiting for {instance.name} to notice it before it takes over, {content}."
        return Step.wait(RECOVERING, message, requeue=GOSSIP_SECONDS)
    call = take_over_from_lost(seen, instance.id)
    if why := unelectable(seen, call):
        return Step.wait(TAKING_OVER, f"{loss}. {why}", warning=True, requeue=BLOCKED_SECONDS)
    message = f"{loss}; {instance.name} is taking over, {content}."
    return Step.wait(RECOVERING, message, call, requeue=FAILOVER_SECONDS)


def _carry_out(seen: Assessment, found: SlotLoss) -> Step:
    """Make all nodes forget the lost owners, then assign their slots to other nodes.

    A replica rejects CLUSTER FORGET for its primary: one without keys takes over instead.
    """
    owners = [node_id for node_id in sorted(found.nodes) if seen.view.slots_of(node_id) or seen.last_owned(node_id)]
    known = [node_id for node_id in owners if node_id in seen.view.nodes]
    replicas = [seen.reachable[copy.id] for each in known for copy in seen.view.replicas_of(each) if copy.answers]
    if replicas:
        replica = max(replicas, key=lambda each: each.report.keys if each.report else 0)
        return _replace_empty(seen, replica)
    if known:
        message = f"The loss of {found.names} is confirmed; removing them from all nodes (CLUSTER FORGET)."
        return Step.wait(RECOVERING, message, *(_forget(seen, node) for node in known), requeue=GOSSIP_SECONDS)
    targets, left = _targets(seen, found.slots), list(found.slots - found.served)
    calls: list[AddSlots | AssignSlots] = []
    if not targets:
        return _await_target(seen, found.slots)
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


def _replace_empty(seen: Assessment, replica: Instance) -> Step:
    """Let a replica of a lost primary take over, unless it has keys without a record of their origin."""
    owner = seen.view.nodes[replica.id].primary
    keys = replica.report.keys if replica.report else 0
    if not keys:
        return _promote(seen, owner, replica, "empty")
    message = (
        f"{replica.name} replicates {seen.name_of(owner)}, which lost its data, and holds {keys} keys of unknown age. "
        "Nothing was changed. If the keys are not needed, delete its volume claim and its pod, and confirm the loss "
        "with its new token."
    )
    return Step.blocked(NODE_NOT_EMPTY, message, requeue=BLOCKED_SECONDS)


def _believed(seen: Assessment) -> Slots:
    """Return the slots without an owner of which some node takes another one for the owner: ADDSLOTS rejects them."""
    tables = (node.report.nodes for node in seen.view.reachable_nodes if node.report)
    return Slots.union(node.slots for nodes in tables for node in nodes) & seen.view.uncovered


def _forget(seen: Assessment, node_id: str) -> Forget:
    NODE.after(seen.node_state(node_id), NodeEvent.GIVE_UP)
    knowing = [node for node in seen.view.reachable_nodes if seen.view.nodes[node_id].is_known_to(node.id)]
    addresses = tuple(seen.at(node.id) for node in knowing)
    return Forget(seen.secrets.access, node_id, addresses)


def _targets(seen: Assessment, slots: Slots) -> list[str]:
    """Return empty nodes, as many as primaries are missing; without any, the primary with the fewest slots.

    Never a primary with older keys of these slots, which would be served, with keys that were deleted since.
    """
    view, there = seen.view, seen.members
    missing = seen.resource.primaries - sum(primary.answers for primary in view.primaries)
    blank = [node_id for node_id, instance in there.items() if instance.is_blank][: max(missing, 0)]
    older = _holders(seen, slots)
    owners = [primary.id for primary in view.primaries if primary.answers and primary.id not in older]
    return blank or sorted(owners, key=lambda node_id: len(view.slots_of(node_id)))[:1]


def _holders(seen: Assessment, slots: Slots) -> list[str]:
    return [node_id for node_id, foreign in seen.foreign.items() if foreign & slots]


def _await_target(seen: Assessment, slots: Slots) -> Step:
    """Return the step that reports why no node can serve lost slots, empty."""
    message = f"No primary serves {brief(slots)}."
    if older := _holders(seen, slots):
        names = ", ".join(sorted(map(seen.name_of, older)))
        message = (
            f"No primary can serve {brief(slots)}, empty: {names} would serve older keys of them. Delete these keys "
            "(condition ForeignKeys), or add a primary."
        )
    return Step.wait(SLOTS_UNSERVED, message, warning=True, requeue=POLL_SECONDS)


def _shared(targets: list[str], count: int) -> dict[str, int]:
    share, left = divmod(count, len(targets))
    return {node_id: share + (number < left) for number, node_id in enumerate(targets)}


def _refuse_total(seen: Assessment, found: SlotLoss) -> Step:
    """Return the step that reports why a cluster without any primary is not created again."""
    empty = [instance for instance in found.doubtful if seen.found_empty(instance)]
    parts = [_where(found.elsewhere)] if found.elsewhere else []
    if empty:
        why_empty = "with an empty directory, as if the disk were not mounted"
        why_empty = "without the files on their volumes, as spec.config requests" if seen.starts_afresh else why_empty
        parts.append(f"{_names(empty)} started {why_empty}")
    why = f": {'; '.join(parts)}" if parts else ""
    last = "volume claims and pods of these nodes" if seen.resource.has_storage else "resource, and create it again"
    message = (
        f"No node serves {brief(found.slots)}, but {_names(found.doubtful)} may have keys{why}. The cluster is not "
        f"created again, and nothing was changed. Bring the data back; if it is lost, delete the {last}."
    )
    return Step.blocked(DATA_AWAY, message, requeue=BLOCKED_SECONDS)


def _await_confirmation(seen: Assessment, found: SlotLoss, offered: Obj) -> Step:
    """Return the step that reports a loss until a user confirms the recovery."""
    caution = "If a volume can be restored, restore it instead."
    if empty := [instance for instance in found.lost if seen.found_empty(instance)]:
        caution = f"{_names(empty)} started with an empty directory: first check that the disk is mounted."
        if seen.starts_afresh:
            caution = (
                f"The volumes of {_names(empty)} may have the data, which they ignore with the persistence of "
                "spec.config: to use it, switch persistence on again, and delete these pods."
            )
    if found.elsewhere:
        caution = "If the pods can run there again, let them: then the keys are back."
    reason = DATA_AWAY if found.elsewhere else SLOTS_LOST
    recording = "Recording the confirmed loss in status before the recovery starts."
    proposal = Proposal(
        reason, "", offered["message"], caution, recording, offered["token"], offered.get("priorConfirm")
    )
    return proposal.decide(seen.resource, requeue=BLOCKED_SECONDS)


def _consequences(found: SlotLoss) -> str:
    slots, rest = brief(found.slots), found.slots - found.outdated
    lost = f"No node has the keys of {slots}."
    if found.elsewhere:
        others = f", and {_names(found.lost)} lost their data" if found.lost else ""
        lost = f"No node serves {slots}: {_where(found.elsewhere)}, where their pods do not run{others}."
    elif found.lost and found.older:
        lost = f"{_names(found.lost)} lost their data: no node has all keys of {slots}."
    elif found.lost:
        lost = f"{_names(found.lost)} lost their data, and no other node has it: the keys of {slots} are lost."
    if found.is_total:
        return f"{lost} No primary is left. The cluster can be created again, empty."
    if found.older:
        empty = f"; {brief(rest)} can be served again, empty" if rest else ""
        return (
            f"{lost} {_names(found.older.values())} can serve {brief(found.outdated)} with older keys, without later "
            f"writes{empty}; all other keys stay."
        )
    return f"{lost} These slots can be served again, empty; all other keys stay."


def _where(instances: Iterable[Instance]) -> str:
    """Return on which Kubernetes nodes pods left their data."""
    parts = [f"of {instance.name} is on {instance.recorded.disk}" for instance in instances if instance.recorded]
    return f"the data {', '.join(parts)}"


def _names(instances: Iterable[Instance]) -> str:
    return ", ".join(instance.name for instance in instances)
