"""Step that waits until running servers have reloaded their users file, so that they keep their items. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.reasons import RELOADING_USERS
from shared.runtime.plan import PASS, Step

CHECK_INTERVAL_SECONDS = 15.0
"""Time between two inspections: the kubelet updates the file within about a minute."""


def await_users(_resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Report servers that do not accept the users in the Secret yet; their sidecars make them reload the file."""
    stale = facts.servers_with_old_users
    if not stale:
        return PASS
    accepted, ready = facts.observed.accepted_users, len(facts.observed.workload.ready)
    progress = f"{ready - len(stale)} of {ready} servers accept the users in the Secret"
    unreachable = [(pod.name, accepted[pod.name].error.rstrip(".")) for pod in stale if accepted[pod.name].error]
    if unreachable:
        name, error = unreachable[0]
        message = f"{progress}. {name} cannot be inspected: {error}."
    else:
        message = f"{progress}. The kubelet updates the files within two minutes; then the servers reload them."
    return Step.progressing(RELOADING_USERS, message, warning=bool(unreachable), requeue=CHECK_INTERVAL_SECONDS)
