"""Step that waits until running servers have reloaded their users file, so that they keep their items. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.reasons import RELOADING_USERS, USERS_NOT_PROVEN
from shared.runtime.plan import PASS, Step
from shared.runtime.settings import Settings

CHECK_INTERVAL_SECONDS = 5.0
"""Time between two inspections: the kubelet updates a file within about a minute, and servers load it in seconds."""


def await_users(seen: Assessment) -> Step:
    """Report servers that have not loaded the users in the Secret yet; their sidecars make them reload the file."""
    stale = seen.servers_with_old_users
    accepted, ready = seen.accepted_users, len(seen.workload.ready)
    if not stale:
        return _report_unproven(seen.settings, len(seen.servers_with_unproven_users), ready)
    progress = f"{ready - len(stale)} of {ready} servers have loaded the users in the Secret"
    unreachable = [(pod.name, accepted[pod.name].error.rstrip(".")) for pod in stale if accepted[pod.name].error]
    if unreachable:
        name, error = unreachable[0]
        message = f"{progress}. {name} cannot be inspected: {error}."
    else:
        message = f"{progress}. The kubelet updates the files within two minutes; then the servers reload them."
    return Step.progressing(RELOADING_USERS, message, warning=bool(unreachable), requeue=CHECK_INTERVAL_SECONDS)


def _report_unproven(settings: Settings, unproven: int, ready: int) -> Step:
    """Report servers that accept all users in the Secret, and may accept others."""
    if not unproven:
        return PASS
    advice = (
        "An annotation in spec.annotations replaces the servers."
        if settings.write_secrets
        else "That needs a Secret, which the operator may not write: set the chart value rbac.writeSecrets."
    )
    return Step.note(
        USERS_NOT_PROVEN,
        f"{unproven} of {ready} servers accept the users in the Secret, and it is unknown whether they accept removed "
        f"ones: no sidecar attests it. {advice}",
    )
