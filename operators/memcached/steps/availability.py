"""Steps that wait until all servers are ready, and the phase of a Memcached. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.facts.assessment import Assessment
from operators.memcached.facts.pause import CHECK_INTERVAL_SECONDS
from operators.memcached.reasons import (
    PODS_REFUSED,
    REFRESHING_CERTIFICATES,
    RELOADING_USERS,
    SERVER_FAILING,
    SERVER_NOT_RESPONDING,
    SWITCHING_WORKLOAD,
)
from shared.kubernetes.accessors import condition
from shared.runtime.plan import PASS, Step
from shared.status.conditions import READY
from shared.status.health import listed
from shared.status.messages import grouped
from shared.status.phases import DEGRADED, FAILED, PAUSED, RUNNING, SCALING, UPDATING
from shared.status.reasons import IMAGE_PULL_FAILED, RESIZING
from shared.status.verdict import Progress, Verdict

UNCREATED_SECONDS = 15.0
"""Time without Ready after which pods that a StatefulSet has not created are reported."""


def report_failing_server(seen: Assessment) -> Step:
    """Report why Kubernetes cannot create or start servers."""
    workload = seen.workload
    if workload.replica_failure:
        message = f"{seen.summary}. Kubernetes rejects new pods: {workload.replica_failure}"
        return Step.progressing(PODS_REFUSED, message, warning=True)
    failing = [pod for pod in workload.current if pod.is_failing(seen.now)]
    if failing:
        reason = IMAGE_PULL_FAILED if any(pod.lacks_image for pod in failing) else SERVER_FAILING
        problems = " ".join(grouped({pod.name: pod.hindrance for pod in failing}, len(workload.current)))
        return Step.progressing(reason, f"{seen.summary}. {problems}", warning=True)
    if missing := workload.uncreated:
        ready = condition(seen.resource.obj, READY)
        since = ready.get("lastTransitionTime") if ready.get("status") != "True" else None
        left = UNCREATED_SECONDS - ((seen.now - datetime.fromisoformat(since)).total_seconds() if since else 0.0)
        if left > 0:
            return Step(requeue=left)
        message = (
            f"{seen.summary}. Kubernetes has not created {missing} of the pods: `kubectl describe statefulset "
            f"{seen.resource.name} -n {seen.resource.namespace}` names the reason."
        )
        return Step.progressing(PODS_REFUSED, message, warning=True)
    waits = [seconds for pod in workload.current if (seconds := pod.seconds_to_schedule(seen.now))]
    return Step(requeue=min(waits)) if waits else PASS


def wait_for_servers(seen: Assessment) -> Step:
    """Wait until all servers are up to date and ready, and surplus servers are deleted."""
    if seen.settled:
        return PASS
    size, workload, former = seen.resource.spec.size, seen.workload, seen.former
    present, ready = len(workload.current), len(workload.ready)
    reason, requeue = SWITCHING_WORKLOAD if former is not None else seen.operation, None
    if former is not None:
        message = (
            f"Changing from a {former.kind} to a {workload.kind}: {seen.summary} in the {workload.kind}. Clients use "
            f"the {former.kind} until all are ready."
        )
    elif workload.outdated > 0:
        message = f"Rolling update: {workload.updated} of {size} servers are updated, and {ready} are ready."
        if waits_for := seen.pause.waits_for:
            message, requeue = f"{message} {waits_for}.", CHECK_INTERVAL_SECONDS
    elif present > size:
        message = f"Removing surplus servers: {present} servers run, and the desired number is {size}."
    elif present == ready == size:
        message = f"{seen.summary}. Waiting for the {workload.kind} controller to observe the change."
    elif reason == SCALING:
        message = f"Scaling to {size} servers: {seen.summary}."
    elif reason == UPDATING:
        message = f"Rolling update: {seen.summary}."
    elif reason == DEGRADED:
        message = f"{seen.summary}. Kubernetes restarts or replaces the others."
    else:
        message = f"Creating the servers: {seen.summary}."
    return Step.progressing(reason, message, warning=reason == DEGRADED, requeue=requeue)


def report_hung_servers(seen: Assessment) -> Step:
    """Report servers that do not respond, and that no sidecar watches. Only a user may end them, with their items.

    Those that the operator cannot reach are in the condition Observed, until a query succeeds soon.
    """
    if not (hung := seen.hung_servers):
        return Step(requeue=CHECK_INTERVAL_SECONDS) if seen.unresponsive else PASS
    spec = seen.resource.spec
    is_earlier = spec.metrics_port is not None or spec.auth is not None  # new servers have a sidecar that ends them
    advice = "An annotation in spec.annotations replaces the servers: then" if is_earlier else "With spec.metrics,"
    message = (
        f"{seen.summary}. {listed(hung)}: accepting connections, but not responding to the operator. If clients get no "
        f"response either, delete the pod. {advice} a sidecar ends servers that hang."
    )
    return Step.progressing(SERVER_NOT_RESPONDING, message, warning=True, requeue=CHECK_INTERVAL_SECONDS)


def phase(seen: Assessment, verdict: Verdict) -> str:
    """Return `status.phase`."""
    if verdict.reason in (RELOADING_USERS, REFRESHING_CERTIFICATES, RESIZING):
        return RUNNING
    if verdict.reason == SERVER_NOT_RESPONDING:
        return DEGRADED  # also after a change of the spec, which is applied
    settled = {Progress.DONE: RUNNING, Progress.PAUSED: PAUSED, Progress.BLOCKED: FAILED}
    return settled.get(verdict.progress) or seen.operation


def summary(seen: Assessment) -> str:
    """Return the message of a resource that matches the spec."""
    return "Scaled to zero: no servers run." if seen.resource.spec.size == 0 else f"{seen.summary}."


def serves_all(seen: Assessment) -> bool:
    """Return whether `spec.size` servers are ready, outdated or not, and none of them hangs."""
    return len(seen.workload.ready) == seen.resource.spec.size and not seen.proven_hangs


def pauses(seen: Assessment) -> float:
    """Return the seconds that a rolling update pauses after each server."""
    spec = seen.resource.spec
    return float(spec.size * spec.update_strategy.pause_seconds)
