"""Health of a Memcached: whether every listed server serves, by the evidence of the kubelet. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import HUNG_SECONDS, Assessment
from operators.memcached.reasons import SERVER_NOT_RESPONDING, SERVERS_NOT_READY
from shared.status import health
from shared.status.health import Finding, Health, listed
from shared.status.phases import CREATING
from shared.status.reasons import REDUNDANCY_REDUCED, REDUNDANT, SERVED


def assess(seen: Assessment) -> Health:
    """Return the health of a Memcached."""
    available = _available(seen)
    return Health(available, _degraded(seen) if available.holds else health.not_served(), _observed(seen))


def _available(seen: Assessment) -> Finding:
    """Return whether every server that clients use is ready, each holds its own part of the keys, and accepted."""
    resource = seen.resource
    if resource.spec.size == 0:
        return Finding(True, SERVED, "Scaled to zero: no servers run.")
    if not seen.servers and resource.phase in ("", CREATING):
        return health.not_created()
    if not seen.serving_workload.ready:
        return Finding(False, SERVERS_NOT_READY, "No server is ready.")
    if unready := seen.unready_servers:
        return Finding(
            False, SERVERS_NOT_READY, f"{listed(unready)}: in the list of servers that clients use, but not ready."
        )
    serving = {pod.name for pod in seen.serving_workload.ready}
    if hung := tuple(name for name in seen.proven_hangs if name in serving):
        message = f"{listed(hung)}: ready, but not responding for {HUNG_SECONDS:g} s or more."
        return Finding(False, SERVER_NOT_RESPONDING, message)
    applied, mounts = seen.secrets.applied, seen.secrets.mounts
    original = (applied.source if applied and applied.name == mounts else "") or mounts  # of a copy
    if ended := health.certificate_ended(original, seen.served_until, seen.now):
        return ended
    return Finding(True, SERVED, "Every server in the list that clients use is ready.")


def _degraded(seen: Assessment) -> Finding:
    """Return whether fewer servers than requested share the load."""
    ready, size = len(seen.serving_workload.ready), seen.resource.spec.size
    if ready < size:
        return Finding(True, REDUNDANCY_REDUCED, f"{ready} of {size} servers are ready.")
    return Finding(False, REDUNDANT, f"All {size} servers are ready.")


def _observed(seen: Assessment) -> Finding:
    """Return whether the operator reaches the servers that it queries. A hang that is certain is not its blindness."""
    reports = (seen.served_certificates, seen.accepted_users)
    errors = {name: report.error for each in reports for name, report in each.items() if report.error}
    errors |= {name: str(error) for name, error in seen.unresponsive.items()}
    hung = {*seen.proven_hangs}
    return health.observed({name: error for name, error in errors.items() if name not in hung})
