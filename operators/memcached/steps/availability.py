"""Steps that wait until every server is ready, and the phase of a Memcached. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.reasons import PODS_REFUSED, REFRESHING_CERTIFICATES, SERVER_FAILING, SWITCHING_WORKLOAD
from shared.runtime.plan import PASS, Step
from shared.status.phases import DEGRADED, FAILED, PAUSED, RUNNING
from shared.status.verdict import Progress, Verdict


def report_failing_server(_resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Report in Kubernetes' own words what keeps a server from starting."""
    workload = facts.observed.workload
    if workload.replica_failure:
        message = f"{facts.summary}. No further pod can be created: {workload.replica_failure}"
        return Step.progressing(PODS_REFUSED, message, warning=True)
    for pod in workload.current:
        if pod.trouble and not pod.ready:
            message = f"{facts.summary}. {pod.name} does not start: {pod.trouble}"
            return Step.progressing(SERVER_FAILING, message, warning=True)
    return PASS


def wait_for_servers(resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Wait until every server is current and ready, and none is left over."""
    if facts.settled:
        return PASS
    size, workload, former = resource.spec.size, facts.observed.workload, facts.observed.former
    present, ready = len(workload.current), len(workload.ready)
    reason = SWITCHING_WORKLOAD if former is not None else facts.operation
    if former is not None:
        message = f"{facts.summary} in the {workload.kind}; until all are, those of the {former.kind} serve."
    elif present > size and not workload.outdated:
        message = f"{present} servers run; {size} are wanted."
    elif workload.outdated > 0:
        message = f"{facts.summary}; {workload.outdated} still run as before the change."
    elif present == ready == size:
        message = f"{facts.summary}; Kubernetes has not yet taken up the change."
    else:
        message = f"{facts.summary}."
    return Step.progressing(reason, message, warning=reason == DEGRADED)


def phase(_resource: Memcached, facts: Assessment, verdict: Verdict) -> str:
    """What the resource is doing, in one word."""
    if verdict.reason == REFRESHING_CERTIFICATES:
        return RUNNING
    settled = {Progress.DONE: RUNNING, Progress.PAUSED: PAUSED, Progress.BLOCKED: FAILED}
    return settled.get(verdict.progress) or facts.operation


def summary(resource: Memcached, facts: Assessment) -> str:
    """The message of a resource that is as the spec asks."""
    return "No server is wanted, and none runs." if resource.spec.size == 0 else f"{facts.summary}."


def serves_all(resource: Memcached, facts: Assessment) -> bool:
    """Whether as many servers as the spec asks for are ready, outdated or not."""
    return len(facts.observed.workload.ready) == resource.spec.size
