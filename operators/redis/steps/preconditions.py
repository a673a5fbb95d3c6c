"""What must hold before anything in the cluster is changed: it is reachable and known, and nodes agree. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.reasons import REDIS_UNREACHABLE, SETTLING, STRANGER_IN_CLUSTER
from operators.redis.steps.waiting import AGREEMENT_SECONDS, BLOCKED_SECONDS, phase_or
from shared.runtime.plan import PASS, Step


def await_redis(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """While no node answers though the kubelet finds some ready, the network is at fault, and not the cluster."""
    ready = [instance for instance in seen.instances if instance.ready]
    if not resource.formed or seen.reachable or not ready:
        return PASS
    names, error = (
        ", ".join(instance.name for instance in ready),
        next((instance.error for instance in ready if instance.error), ""),
    )
    message = (
        f"{names}: ready, says Kubernetes, and yet no node answers the operator{': ' if error else ''}"
        f"{error.rstrip('.')}. Nothing is changed meanwhile. Look whether a NetworkPolicy lets the operator's pods "
        "reach port 6379 of theirs."
    )
    return Step.wait(REDIS_UNREACHABLE, message, warning=True, requeue=BLOCKED_SECONDS)


def refuse_unknown_nodes(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """A member that is of none of our pods may belong to someone else: it is neither used nor forgotten."""
    if not resource.formed or not seen.unknown_nodes:
        return PASS
    them = ", ".join(f"{stranger.name} ({stranger.id})" for stranger in seen.unknown_nodes)
    return Step.blocked(
        STRANGER_IN_CLUSTER,
        f"The cluster has a member that is of none of its pods: {them}. Somebody added it, or an address was given to "
        "another cluster's pod. Nothing was changed. If nobody needs it, take its slots away and let every node forget "
        "it (CLUSTER FORGET).",
    )


def await_agreement(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Wait until all nodes report the same view. Gossip usually needs a second; until then nothing may lose data."""
    if not resource.formed or not (conflicts := seen.agreement.settled):
        return PASS
    message = f"Nodes do not agree yet, and nothing is changed until they do. {conflicts}"
    return Step.wait(phase_or(resource, SETTLING), message, requeue=AGREEMENT_SECONDS)
