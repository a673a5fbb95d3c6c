"""Health of a RedisCluster: whether each slot has a primary that accepts writes, and which copies are missing. Pure."""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.objects.names import server_secret
from operators.redis.reasons import SLOTS_UNSERVED, WRITES_REFUSED
from operators.redis.steps import placement
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.accessors import is_true
from shared.status import health
from shared.status.conditions import AVAILABLE
from shared.status.health import Finding, Health
from shared.status.reasons import SERVED, SERVICE_UNKNOWN


def assess(seen: Assessment) -> Health:
    """Return the health of a RedisCluster."""
    unreachable = {each.name: each.error for each in seen.instances if each.is_out_of_reach}
    return Health(_available(seen), _degraded(seen), health.observed(unreachable))


def _available(seen: Assessment) -> Finding:
    """Return whether every slot has a serving primary, clients accept its certificate, and it accepts writes."""
    if not seen.has_formed:
        return health.not_created()
    secret = server_secret(seen.resource)
    period = seen.secrets.validity.get(secret)
    if ended := health.certificate_ended(secret, period.ends if period else None, seen.now):
        return ended
    service = seen.service
    if service.unserved:
        return Finding(False, SLOTS_UNSERVED, f"No primary serves {brief(service.unserved)}.")
    if service.foreign:
        owners = health.listed(tuple(node.name for node in seen.unknown_nodes if node.id in service.owners))
        return Finding(
            None,
            SERVICE_UNKNOWN,
            f"It is unknown whether {brief(service.foreign)} are served: by the cluster's own table, their owner is "
            f"{owners}, which belongs to none of its pods.",
        )
    if service.unknown:
        return Finding(
            None,
            SERVICE_UNKNOWN,
            f"It is unknown whether {brief(service.unknown)} are served: the last known primary is not ready, and a "
            "replica that the operator does not reach may have taken over.",
        )
    if refusing := seen.refusing_writes:
        return Finding(
            False,
            WRITES_REFUSED,
            f"{health.listed(refusing)}: refusing writes, because the last write to the log failed "
            "(aof_last_write_status in INFO). Check the space on the volume.",
        )
    nodes = seen.view.reachable_nodes
    if len(seen.view.refusing) < len(nodes):
        return Finding(True, SERVED, "Every slot has a serving primary.")
    # The readiness probe only connects, which also succeeds during an outage: it does not end one.
    if nodes or not is_true(seen.resource.obj, AVAILABLE):
        return Finding(
            None,
            SERVICE_UNKNOWN,
            "It is unknown whether any slot is served: the kubelet reports the last known primaries as ready, but no "
            "node that the operator reaches reports cluster_state:ok.",
        )
    return Finding(True, SERVED, "The kubelet reports the last known primary of every slot as ready.")


def _degraded(seen: Assessment) -> Finding | None:
    """Return whether copies are missing or on too few hosts; None while no node is reachable."""
    if not seen.resource.formed:
        return health.not_served()
    return placement.degraded(seen) if seen.reachable else None
