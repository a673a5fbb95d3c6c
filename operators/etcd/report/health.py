"""Health of an EtcdCluster: whether it serves requests, by the evidence of members and the kubelet. Pure.

The readiness probe of a member needs a leader. So a member that the kubelet reports as ready is evidence that clients
are served, also while the operator reaches no member.
"""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects.names import CLIENTS, SERVES, client_service_name, server_secret
from operators.etcd.reasons import ALARM_RAISED, ANOTHER_CLUSTER, NO_ENDPOINTS, NO_QUORUM
from operators.etcd.steps.data_loss import known_voters
from operators.etcd.steps.recording import is_another_cluster
from shared.kubernetes.accessors import label
from shared.status import health
from shared.status.health import Finding, Health
from shared.status.reasons import REDUNDANCY_REDUCED, REDUNDANT, SERVED


def assess(seen: Assessment) -> Health:
    """Return the health of an EtcdCluster."""
    available = _available(seen)
    if available.holds and not any(each.ready and label(each.pod_obj, SERVES) == CLIENTS for each in seen.instances):
        service = client_service_name(seen.resource)
        message = f"Service {service} has no endpoints: no pod that is ready has the label {SERVES}={CLIENTS}."
        available = Finding(False, NO_ENDPOINTS, message)
    unreachable = {each.name: each.error for each in seen.instances if each.is_out_of_reach}
    degraded = _degraded(seen) if available.holds else health.not_served()
    return Health(available, degraded, health.observed(unreachable))


def _available(seen: Assessment) -> Finding:
    """Return whether the cluster has a quorum and a leader, clients accept its certificate, and it accepts requests.

    Members read their certificate at each handshake. With the alarm NOSPACE they refuse writes that need space, with
    CORRUPT every request.
    """
    resource = seen.resource
    secret = server_secret(resource)
    period = seen.secrets.validity.get(secret)
    ended = health.certificate_ended(secret, period.ends if period else None, seen.now)
    if ended and resource.recorded_cluster_id:
        return ended
    if alarms := _alarms(seen):
        return Finding(False, ALARM_RAISED, f"Members raised the alarm {', '.join(alarms)}.")
    if is_another_cluster(seen):
        return Finding(False, ANOTHER_CLUSTER, "Members serve the keys of another cluster, and none of this one.")
    if seen.members is not None:
        return Finding(True, SERVED, "The members have a quorum and a leader.")
    if not resource.recorded_cluster_id:
        return health.not_created()
    ready, voters = _ready(seen), len(known_voters(seen))
    if ready > voters // 2 or (ready and not seen.answering):
        return Finding(True, SERVED, f"The kubelet reports {ready} of {voters} voters as ready: they have a leader.")
    if seen.leader_id:
        return Finding(True, SERVED, "Members report a leader, for which they need a quorum.")
    return Finding(
        False,
        NO_QUORUM,
        f"The kubelet reports {ready} of {voters} voters as ready, and no member that answers reports a leader.",
    )


def _degraded(seen: Assessment) -> Finding:
    """Return whether fewer healthy voters than requested are left."""
    healthy, size = _healthy(seen), seen.resource.spec.size
    if healthy < size:
        return Finding(True, REDUNDANCY_REDUCED, f"{healthy} of {size} voters are healthy.")
    return Finding(False, REDUNDANT, f"All {size} voters are healthy.")


def _alarms(seen: Assessment) -> list[str]:
    """Return the raised alarms; the last reported ones while no member answers."""
    if seen.answering:
        return sorted({alarm.kind for alarm in seen.alarms})
    return sorted(
        {alarm for member in seen.resource.reported.get("members") or () for alarm in member.get("alarms") or ()}
    )


def _healthy(seen: Assessment) -> int:
    """Return the number of voters that are healthy, or that only the operator cannot reach."""
    if seen.members is None:
        return _ready(seen)
    voters = [instance for instance in seen.instances if instance.member and not instance.member.learner]
    return sum(seen.healthy(instance) or instance.is_out_of_reach for instance in voters)


def _ready(seen: Assessment) -> int:
    """Return the number of known voters that the kubelet reports as ready."""
    found = (seen.instance_named(voter.name) for voter in known_voters(seen))
    return sum(instance is not None and instance.ready for instance in found)
