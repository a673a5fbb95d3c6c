"""Step that makes running servers load a renewed certificate, so that they keep their items. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.reasons import REFRESHING_CERTIFICATES
from operators.memcached.security.certificates import REFRESH_INTERVAL_SECONDS, RefreshCertificates
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress


def refresh_certificates(resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Send refresh_certs to servers that do not serve the certificate in the Secret."""
    stale = facts.servers_with_old_certificate
    if not stale:
        return PASS
    observed, ready = facts.observed, len(facts.observed.workload.ready)
    reports = [(pod, observed.served_certificates[pod.name]) for pod in stale]
    due = tuple(
        (pod.name, pod.address)
        for pod, report in reports
        if not report.error and report.age >= REFRESH_INTERVAL_SECONDS
    )
    unreachable = [(pod.name, report.error.rstrip(".")) for pod, report in reports if report.error]
    progress = f"{ready - len(stale)} of {ready} servers serve the certificate in the Secret"
    if unreachable:
        name, error = unreachable[0]
        message = f"{progress}. {name} cannot be inspected: {error}."
    else:
        message = f"{progress}. The kubelet updates the files within two minutes; then the servers reload them."
    actions = (
        (RefreshCertificates(due, resource.spec.container_port, observed.secrets, resource.certificate),) if due else ()
    )
    return Step(
        actions,
        Progress.PROGRESSING,
        REFRESHING_CERTIFICATES,
        message,
        warning=bool(unreachable),
        requeue=REFRESH_INTERVAL_SECONDS,
    )
