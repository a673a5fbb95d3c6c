"""Makes new, empty nodes members of the cluster. Pure."""

from __future__ import annotations

from operators.redis.client.commands import Meet
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.lifecycles import NODE, NodeEvent
from operators.redis.reasons import JOINING, NODE_NOT_EMPTY
from operators.redis.state.instance import Instance, endpoint
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from shared.runtime.plan import PASS, Step


def join_nodes(seen: Assessment) -> Step:
    """Make new nodes members, once their node ids are recorded (`record_nodes`)."""
    if not seen.resource.formed or not seen.view.primaries:
        return PASS
    new = [instance for instance in _new(seen) if instance.is_blank]
    return _meet(seen, new) if new else PASS


def refuse_full_nodes(seen: Assessment) -> Step:
    """Change nothing while a node that is no member has keys: it is neither joined nor emptied."""
    if not seen.resource.formed or not seen.view.primaries:
        return PASS
    new = _new(seen)
    if trimming := [f"{instance.name} {instance.trims}" for instance in new if instance.trims]:
        return Step.wait(JOINING, f"Waiting before new nodes join: {', '.join(trimming)}.", requeue=SYNC_SECONDS)
    if full := next((instance for instance in new if not instance.is_blank), None):
        return _refuse(full)
    return PASS


def _new(seen: Assessment) -> list[Instance]:
    """Return the instances with a reachable node that is no member, once the id of the node is recorded."""
    there = [instance for instance in seen.awaited if instance.report and not instance.leaving]
    return [instance for instance in there if instance.recorded and instance.recorded.node_id == instance.id]


def _refuse(instance: Instance) -> Step:
    """Return the step that reports a node with its own data, which is neither joined nor emptied."""
    assert instance.report is not None
    message = (
        f"{instance.name} is not a member of the cluster and holds {instance.report.keys} keys; it was not changed. "
        "If the keys are not needed, delete its volume claim and its pod: the operator recreates both."
    )
    return Step.wait(NODE_NOT_EMPTY, message, warning=True, requeue=BLOCKED_SECONDS)


def _meet(seen: Assessment, new: list[Instance]) -> Step:
    """Let all members meet the new nodes, except those that a member is meeting already."""
    for instance in new:
        NODE.after(seen.node_state(instance.id), NodeEvent.MEET)
    via = tuple(seen.at(reporter.id) for reporter in seen.view.reachable_nodes)
    met = {address for _, address in seen.view.being_met}
    calls = [
        Meet(seen.secrets.access, endpoint(seen.resource, instance), id=instance.id, via=via, own=seen.own_ids)
        for instance in new
        if instance.pod and instance.pod.address not in met
    ]
    names = ", ".join(instance.name for instance in new)
    return Step.wait(JOINING, f"Joining new nodes: {names}.", *calls, requeue=GOSSIP_SECONDS)
