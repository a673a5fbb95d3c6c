"""Creates a cluster once, from empty nodes only. Pure.

Each reconcile inspects the nodes and sends the commands of the first incomplete stage:

1. Each primary gets its own config epoch before it knows another node: at epoch 0 it could lose its slots to any
   gossip about them (valkey-operator #197).
2. All nodes meet (CLUSTER MEET).
3. Each primary adds its slots, which no node owns yet.
4. When all nodes agree on the slot owners, `status.formed` records that permanently: from then on no slot is
   assigned to a node that does not hold its keys, unless a user allows exactly that (data_loss_recovery.py). Replicas
   follow later.
"""

from __future__ import annotations

from collections.abc import Sequence

from operators.redis.api.status import FormingNode
from operators.redis.client.commands import AddSlots, Forget, Meet, SetEpoch
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import NOT_EMPTY
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import endpoint
from operators.redis.steps.availability import failure
from operators.redis.steps.bootstrap_plan import planned, replaced_node, why_incomplete, why_occupied
from operators.redis.steps.waiting import GOSSIP_SECONDS
from shared.runtime.plan import PASS, Action, Step
from shared.status.phases import CREATING
from shared.steps import volumes


def create_cluster(seen: Assessment) -> Step:
    """Create the cluster from empty nodes, or not at all."""
    resource = seen.resource
    if resource.formed:
        return PASS
    if seen.has_formed:
        return Step.wait(
            CREATING, "Every slot has an owner; recording in status that the cluster is created.", requeue=0
        )
    if missing := why_incomplete(seen):
        failing = failure(seen)
        return Step.wait(failing or CREATING, missing, warning=bool(failing), poll=GOSSIP_SECONDS)
    if occupied := why_occupied(seen):
        return Step.blocked(
            NOT_EMPTY,
            f"Cannot create the cluster: the nodes must be empty, but {occupied}. Nothing was changed. If the data is "
            "not needed, delete this resource and its volume claims, and create the resource again.",
        )
    if left := next((each for each in seen.staying if each.report and each.report.me.primary), None):
        message = f"{left.name} is an empty replica of a former node: recreating it with an empty volume."
        return Step.wait(CREATING, message, *volumes.replace_disk(left, in_use=False))
    if replaced := replaced_node(seen):
        message = f"{replaced.name} has a new, empty node; removing the former one from its peers (CLUSTER FORGET)."
        others = tuple(endpoint(resource, instance) for instance in seen.instances if instance.report)
        call = Forget(seen.secrets.access, replaced.node_id, others)
        return Step.wait(CREATING, message, call, requeue=GOSSIP_SECONDS)
    plan = planned(seen)
    if resource.forming != plan or any(
        instance.as_recorded != (instance.id, instance.disk) for instance in seen.staying
    ):
        message = "All nodes are reachable and empty; recording the slot assignment in status."
        return Step.wait(CREATING, message, requeue=0)
    return _next_commands(seen, plan)


def _next_commands(seen: Assessment, plan: Sequence[FormingNode]) -> Step:
    """Send the commands of the first stage that is not complete."""
    report = {instance.id: instance.report for instance in seen.staying if instance.report}
    if alone := [node for node in plan if report[node.node_id].me.epoch == 0 and len(report[node.node_id].nodes) == 1]:
        message = f"{', '.join(node.name for node in plan)} become primaries; assigning each a config epoch."
        at, access = seen.at, seen.secrets.access
        return _send(message, [SetEpoch(access, at(each.node_id), each.node_id, each.epoch) for each in alone])
    first, *others = report
    if strange := [each for each in others if not (report[first].node(each) and report[each].node(first))]:
        return _send(f"{len(report)} nodes are joining each other (CLUSTER MEET).", _meet(seen, first, strange))
    if taken := _take_slots(seen, plan):
        return _send(f"{len(plan)} primaries are taking their slots.", taken)
    return _send(f"Waiting for all nodes to report the same slot owners. {seen.view.settled}".strip(), [])


def _send(message: str, calls: Sequence[Action]) -> Step:
    return Step.wait(CREATING, message, *calls, requeue=GOSSIP_SECONDS)


def _meet(seen: Assessment, first: str, strange: Sequence[str]) -> list[Action]:
    """Return the calls that let the first node meet the others, except those that it is meeting already."""
    met = {address for asker, address in seen.view.being_met if asker == first}
    ends = ((node_id, seen.at(node_id)) for node_id in strange)
    return [
        Meet(seen.secrets.access, at, id=node_id, via=(seen.at(first),), own=seen.own_ids)
        for node_id, at in ends
        if at.address not in met
    ]


def _take_slots(seen: Assessment, plan: Sequence[FormingNode]) -> list[Action]:
    """Return the calls that add the planned slots to the primaries that do not own them yet."""
    calls: list[Action] = []
    for node in plan:
        report = seen.reachable[node.node_id].report
        if report and (slots := Slots.parse(node.slots) - report.me.slots):
            calls.append(AddSlots(seen.secrets.access, seen.at(node.node_id), node.node_id, slots))
    return calls
