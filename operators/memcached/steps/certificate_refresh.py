"""The step that makes servers serve a renewed certificate, so that they keep their items. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.reasons import REFRESHING_CERTIFICATES
from operators.memcached.security.certificates import REFRESH_INTERVAL_SECONDS, RefreshCertificates
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

"""Reason while servers that run as the spec asks do not all serve the Secret's certificate yet."""


def refresh_certificates(resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Make servers that serve another certificate than the Secret's read theirs again."""
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
    unreachable = [f"{pod.name} cannot be asked: {report.error}." for pod, report in reports if report.error]
    message = f"{ready - len(stale)} of {ready} servers show the Secret's certificate"
    message += f". {unreachable[0]}" if unreachable else "; the kubelet brings it within two minutes."
    actions = (RefreshCertificates(due, resource.spec.container_port, observed.secrets),) if due else ()
    return Step(
        actions,
        Progress.PROGRESSING,
        REFRESHING_CERTIFICATES,
        message,
        warning=bool(unreachable),
        requeue=REFRESH_INTERVAL_SECONDS,
    )
