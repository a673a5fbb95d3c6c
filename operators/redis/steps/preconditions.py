"""Preconditions for changes in the cluster: it is reachable, its members are known, and all nodes agree. Pure."""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import REDIS_UNREACHABLE, SETTLING, UNKNOWN_MEMBER
from operators.redis.steps.planned_work import planned_work
from operators.redis.steps.waiting import AGREEMENT_SECONDS, BLOCKED_SECONDS, phase_or
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import PASS, Step


def await_redis(seen: Assessment) -> Step:
    """Wait while no node is reachable although the kubelet reports ready pods: then the network has failed."""
    ready = [instance for instance in seen.instances if instance.ready]
    if not seen.resource.formed or seen.reachable or not ready:
        return PASS
    names = ", ".join(instance.name for instance in ready)
    error = next((instance.error for instance in ready if instance.error), "")
    message = (
        f"{names}: the kubelet reports the pods as ready, but no node is reachable{': ' if error else ''}"
        f"{error.rstrip('.')}. Nothing is changed until one is. Check that NetworkPolicies allow the operator's pods "
        "to connect to port 6379 of these pods."
    )
    return Step.wait(REDIS_UNREACHABLE, message, warning=True, requeue=BLOCKED_SECONDS)


def refuse_unknown_owners(seen: Assessment) -> Step:
    """Repair nothing while a member that belongs to no pod may own slots: the cluster may be merging with another."""
    return refuse_unknown_nodes(seen) if _unknown_owners(seen) else PASS


def _unknown_owners(seen: Assessment) -> list[Seen]:
    return [
        node
        for node in seen.unknown_nodes
        if any(entry.node.slots for entry in node.others) or seen.view.replicas_of(node.id)
    ]


def refuse_unknown_nodes(seen: Assessment) -> Step:
    """Apply no change while the cluster has a member that belongs to no pod: it is neither used nor forgotten."""
    if not seen.resource.formed or not seen.unknown_nodes:
        return PASS
    consequence = "Nothing is changed" if _unknown_owners(seen) else "Changes wait, and repairs of other nodes continue"
    unknown = ", ".join(node.name for node in seen.unknown_nodes)
    removal = ", ".join(f"CLUSTER FORGET {node.id}" for node in seen.unknown_nodes)
    return Step.blocked(
        UNKNOWN_MEMBER,
        f"The cluster has a member that belongs to none of its pods: {unknown}. It was added manually, or a pod "
        f"address was reused by another cluster. {consequence}. Find out whose it is (runbook). If it was added "
        f"manually and owns slots, move them away; then remove it from every node: {removal}",
    )


def await_agreement(seen: Assessment) -> Step:
    """Wait until all nodes report the same view. Gossip usually needs a second; until then nothing may lose data.

    During planned work short disagreements are expected, so that the status names the work first. It also names the
    pods that are away, or else the conflict: one that does not end by itself stops every later step.
    """
    if not seen.resource.formed or not (conflicts := seen.agreement.settled):
        return PASS
    reason = phase_or(seen.resource, SETTLING)
    hidden = [instance for instance in seen.staying if instance.hidden]  # they run, and do not settle by themselves
    if hidden:
        message = f"Waiting for all nodes to report the same cluster view. {seen.why_away(hidden)}"
        return Step.wait(reason, message, warning=True, requeue=AGREEMENT_SECONDS)
    message = f"Waiting for all nodes to report the same cluster view. {conflicts}"
    if work := planned_work(seen):
        away = [each for each in seen.instances if each.report is None and (each.pod_obj or each in seen.staying)]
        detail = seen.why_away(away) or conflicts
        message = f"{work} Waiting for all nodes to report the same cluster view. {detail}"
    return Step.wait(reason, message, requeue=AGREEMENT_SECONDS)
