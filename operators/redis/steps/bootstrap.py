"""Creates a cluster: once ever, of nodes that hold nothing. Pure.

Each round asks the nodes how far they are, and sends the next commands:

1. Each primary gets a config epoch of its own, before it knows another node: at epoch 0 it would lose its slots to
   whatever gossip says of them (valkey-operator #197).
2. All nodes meet.
3. Each primary takes its slots, which no node owns yet.
4. When all nodes agree who owns what, `status.formed` says so, for ever: from then on no slot is given to a node that
   does not hold its keys, unless a person allows exactly that (data_loss_recovery.py). Replicas follow later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import FormingNode
from operators.redis.assessment import Assessment
from operators.redis.client.commands import AddSlots, Forget, Meet, SetEpoch
from operators.redis.client.responses import NodeReport
from operators.redis.instance import endpoint
from operators.redis.reasons import NOT_EMPTY
from operators.redis.slots.hash_slots import Slots
from operators.redis.steps.bootstrap_plan import planned, replaced_node, why_incomplete, why_occupied
from operators.redis.steps.waiting import GOSSIP_SECONDS
from shared.runtime.plan import PASS, Action, Step
from shared.status.phases import CREATING


def create_cluster(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Create the cluster, of empty nodes or not at all."""
    if resource.formed:
        return PASS
    if seen.has_formed:
        return Step.wait(CREATING, "Every slot has its owner: that the cluster has begun is written down.", requeue=0)
    if missing := why_incomplete(seen):
        troubled = any(instance.pod and instance.pod.trouble for instance in seen.staying)
        return Step.wait(CREATING, missing, warning=troubled, requeue=GOSSIP_SECONDS)
    if occupied := why_occupied(seen):
        return Step.blocked(
            NOT_EMPTY,
            f"A cluster begins with empty nodes, and {occupied}. Nothing was changed. If nobody needs what is there, "
            "delete this resource and its volume claims, and create it anew.",
        )
    if replaced := replaced_node(seen):
        message = f"{replaced.name} is another node than before, and empty: the others forget the former one."
        others = tuple(endpoint(resource, instance) for instance in seen.staying)
        call = Forget(seen.secrets.access, replaced.node_id, others)
        return Step.wait(CREATING, message, call, requeue=GOSSIP_SECONDS)
    plan = planned(seen)
    if resource.forming != plan or any(
        instance.as_recorded != (instance.id, instance.disk) for instance in seen.staying
    ):
        message = "All nodes are there, and empty: who is to own which slots is written down."
        return Step.wait(CREATING, message, requeue=0)
    return _next_commands(seen, plan)


def _next_commands(seen: Assessment, plan: Sequence[FormingNode]) -> Step:
    """Send the commands of the first stage that is not complete."""
    report = {instance.id: instance.report for instance in seen.staying if instance.report}
    if alone := [node for node in plan if report[node.node_id].me.epoch == 0 and len(report[node.node_id].nodes) == 1]:
        message = f"{', '.join(node.name for node in plan)} are to be masters: each gets an epoch of its own."
        return _send(message, [_set_epoch(seen, node) for node in alone])
    first, *others = report
    if strange := [node_id for node_id in others if not _acquainted(report[first], report[node_id])]:
        return _send(f"{len(report)} nodes meet.", _meet(seen, first, strange))
    if taken := _take_slots(seen, plan):
        return _send(f"{len(plan)} masters take their slots.", taken)
    return _send(f"Nodes learn who owns which slots. {seen.view.settled}".strip(), [])


def _send(message: str, calls: Sequence[Action]) -> Step:
    return Step.wait(CREATING, message, *calls, requeue=GOSSIP_SECONDS)


def _set_epoch(seen: Assessment, node: FormingNode) -> SetEpoch:
    return SetEpoch(seen.secrets.access, seen.at(node.node_id), node.node_id, node.epoch)


def _acquainted(one: NodeReport, other: NodeReport) -> bool:
    """Whether two nodes know each other, in both directions."""
    return one.node(other.id) is not None and other.node(one.id) is not None


def _meet(seen: Assessment, first: str, strange: Sequence[str]) -> list[Action]:
    """Let the first node meet the others, except those that it is meeting already."""
    met = {address for asker, address in seen.view.being_met if asker == first}
    ends = ((node_id, seen.at(node_id)) for node_id in strange)
    return [
        Meet(seen.secrets.access, at, id=node_id, via=(seen.at(first),))
        for node_id, at in ends
        if at.address not in met
    ]


def _take_slots(seen: Assessment, plan: Sequence[FormingNode]) -> list[Action]:
    """Let primaries take those of their slots that they do not own yet."""
    calls: list[Action] = []
    for node in plan:
        report = seen.reachable[node.node_id].report
        if report and (slots := Slots.parse(node.slots) - report.me.slots):
            calls.append(AddSlots(seen.secrets.access, seen.at(node.node_id), node.node_id, slots))
    return calls
