"""Lets nodes that lost their nodes.conf, but not their data, serve their slots again. Pure.

A reachable replica with the data of such a node takes over first (`failover.replace_failed`). If there is none, nothing
has newer data, because a majority of primaries knows of no other owner. A replica may lack writes of its lost primary,
and needs consent (data_loss_recovery.py). Then the node

1. is forgotten under its former id by all members (CLUSTER FORGET). A member that still pings the former node at the
   same address would take the new epoch for that of the former node, and keep the former claim
   (getNodeFromLinkAndMsg in src/cluster_legacy.c; seen with valkey 8.1 and 9.1);
2. claims its slots with the highest config epoch, while it knows no other node (`TakeBack`);
3. meets the others, which accept the claim.

After a crash in between, the status still records the slots of the former node, and the next reconcile continues. If
another primary owns the slots by then, the data of the node is an outdated copy: it is recreated with an empty volume.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from operators.redis.client.commands import Forget, Meet, TakeBack
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.detached import DetachedNode
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import IDENTITY_LOST
from operators.redis.slots.hash_slots import Slots
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.view_conflicts import brief
from shared.runtime.plan import PASS, Step
from shared.steps import volumes


def take_back_slots(seen: Assessment) -> Step:
    """Let detached nodes own their slots again, or recreate them, empty, if another primary owns these slots."""
    nodes = [node for node in seen.detached.values() if not node.successor and not node.may_be_outdated]
    if nodes:
        return take_back(seen, nodes)
    outdated = [node for node in seen.detached.values() if node.successor]
    return _recreate(seen, outdated[0]) if outdated else PASS


def take_back(seen: Assessment, nodes: Sequence[DetachedNode]) -> Step:
    """Let detached nodes own the slots of their former primary, or of themselves."""
    names = _names(nodes)
    if away := _why_unknown(seen):
        message = (
            f"{names} lost nodes.conf, but not their data. Waiting for a majority of primaries to be reachable before "
            f"they join again with their slots. {away}"
        )
        return Step.wait(IDENTITY_LOST, message, warning=True, requeue=GOSSIP_SECONDS)
    if foreign := next((node for node in nodes if node.beyond), None):
        message = (
            f"{foreign.instance.name} lost nodes.conf, but not its data, and has keys of {brief(foreign.beyond)}, "
            "which it did not own; it was not changed. If its keys are not needed, delete its volume claim and its pod."
        )
        return Step.wait(IDENTITY_LOST, message, warning=True, requeue=BLOCKED_SECONDS)
    for node in nodes:
        NODE.after(seen.node_state(node.instance.id), NodeEvent.TAKE_BACK)
    if forgetting := [call for node in nodes if (call := _forget(seen, node)).at]:
        message = f"{names} lost nodes.conf, but not their data: removing their former ids (CLUSTER FORGET)."
        return Step.wait(IDENTITY_LOST, message, *forgetting, warning=True, requeue=0)
    if claiming := [node for node in nodes if not node.claims_slots]:
        slots = brief(Slots.union(node.slots for node in claiming))
        message = f"{_names(claiming)} lost nodes.conf, but not their data: claiming {slots} again, with their keys."
        calls = [_claim(seen, node, number) for number, node in enumerate(claiming, start=1)]
        return Step.wait(IDENTITY_LOST, message, *calls, warning=True, requeue=0)
    message = f"{names} claim the slots whose keys they have; joining them again (CLUSTER MEET)."
    return Step.wait(IDENTITY_LOST, message, *_meet(seen, nodes), warning=True, requeue=GOSSIP_SECONDS)


def _why_unknown(seen: Assessment) -> str:
    """Return which nodes are unreachable, if one of them may own the slots by now; empty if none can."""
    members = [node for node in seen.view.reachable_nodes if node.id not in seen.detached]
    if members and seen.view.can_elect:
        return ""
    if not members:
        away = [known for known in seen.recorded if known not in seen.reachable and not seen.lost(known)]
    else:
        away = [primary.id for primary in seen.view.primaries if not primary.answers and not seen.lost(primary.id)]
    return seen.why_away(instance for known in away if (instance := seen.instance_of(known)))


def _forget(seen: Assessment, node: DetachedNode) -> Forget:
    """Return the call on all members that know the former node, except its replicas, which follow the new claim."""
    knowing = [
        member.id
        for member in seen.view.reachable_nodes
        if node.former in seen.view.nodes
        and seen.view.nodes[node.former].is_known_to(member.id)
        and member.primary != node.former
    ]
    return Forget(seen.secrets.access, node.former, tuple(map(seen.at, knowing)))


def _claim(seen: Assessment, node: DetachedNode, number: int) -> TakeBack:
    known = [report.epoch for instance in seen.instances if (report := instance.report)]
    epoch = max([*known, *(each.epoch for each in seen.view.nodes.values())]) + number
    at = seen.at(node.instance.id)
    return TakeBack(seen.secrets.access, at, node.instance.id, node.slots, epoch)


def _meet(seen: Assessment, nodes: Sequence[DetachedNode]) -> list[Meet]:
    """Return the calls that let members meet the nodes; without any member, the nodes meet each other."""
    via = [node.id for node in seen.view.reachable_nodes if node.id not in seen.detached]
    first, *others = (node.instance.id for node in nodes)
    met = {address for _, address in seen.view.being_met}
    return [
        Meet(seen.secrets.access, seen.at(node_id), tuple(map(seen.at, via or [first])), node_id, own=seen.own_ids)
        for node_id in ([first, *others] if via else others)
        if seen.at(node_id).address not in met
    ]


def _recreate(seen: Assessment, node: DetachedNode) -> Step:
    resource = seen.resource
    instance, successor = node.instance, seen.name_of(node.successor)
    if resource.spec.template.volumes is not None:
        directory = f"{resource.namespace}/{resource.name}-{resource.uid}/{instance.name}"
        message = (
            f"{instance.name} lost nodes.conf and has outdated keys of {brief(node.slots)}, which {successor} owns. "
            f"Its volume is shared and was not changed: delete its directory {directory}, then its pod."
        )
        return Step.progressing(IDENTITY_LOST, message, warning=True, requeue=BLOCKED_SECONDS)
    NODE.after(seen.node_state(instance.id), NodeEvent.RECREATE)
    message = f"{instance.name} lost nodes.conf, and {successor} owns its slots: recreating it with an empty volume."
    return Step.wait(IDENTITY_LOST, message, *volumes.replace_disk(instance, in_use=False), warning=True)


def _names(nodes: Iterable[DetachedNode]) -> str:
    return ", ".join(node.instance.name for node in nodes)
