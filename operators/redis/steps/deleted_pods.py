"""Stops servers that run on although their pods are deleted. Pure.

The kernel discards SIGTERM for the first process of a container (PID 1) that has no handler for it yet. A server that
gets the signal so early starts, serves, and is killed when the grace period ends. The kubelet delays the signal
(`pod.STOP_DELAY_SECONDS`), which is not enough on a busy machine, and pods of earlier builds have no delay. The runtime
sends it once, also if the pod is deleted again (container_stop.go in containerd).

A server that answers is ended by SHUTDOWN, which does what SIGTERM does. One that has never listened is killed earlier,
by a second deletion with a shorter grace period.
"""

from __future__ import annotations

from datetime import datetime

from operators.redis.client.commands import ShutDown
from operators.redis.facts.assessment import Assessment
from operators.redis.objects.names import CONTAINER
from operators.redis.objects.pod import is_started_afresh, is_started_waiting
from operators.redis.objects.redis_conf import appends, writes_log
from operators.redis.state.instance import Instance
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.pods import running_since
from shared.runtime.plan import PASS, Delete, Step, shortest

SHUTDOWN_SECONDS = 20.0
"""Time from the deletion of a pod after which a server that answers got no SIGTERM.

The kubelet sends it after five seconds, and the server then waits for its replicas, by default for 10 s
(`shutdown-timeout`). If it still waits, SHUTDOWN changes nothing (shutdownCommand in db.c of Redis 7.0).
"""

KILL_SECONDS = 30.0
"""Time from the deletion of a pod after which a server that was never ready is no longer expected to listen."""

SHORT_GRACE_SECONDS = 10
"""Grace period of the second deletion, which the kubelet counts from then on."""


def stop_servers(seen: Assessment) -> Step:
    """Stop the servers of deleted pods that got no SIGTERM."""
    actions: list[ShutDown | Delete] = []
    requeue: float | None = None
    for instance in seen.instances:
        if instance.pod is None or instance.pod_obj is None or (since := _deleted_since(instance)) is None:
            continue
        report, due = instance.report, SHUTDOWN_SECONDS if instance.report else KILL_SECONDS
        if since < due:
            requeue = shortest(requeue, due - since)
        # If keys would end with the process, a replica may copy them before it is killed.
        elif report is not None and (not seen.why_keys_end(instance) or not seen.is_needed(report.id)):
            actions.append(ShutDown(seen.secrets.access, seen.at(report.id), report.id, report.run_id))
            requeue = shortest(requeue, SHUTDOWN_SECONDS)
        elif report is None and _was_never_ready(instance.pod_obj) and _survives_kill(seen, instance.pod_obj):
            actions.append(Delete(POD, instance.pod_obj, unchanged=True, grace_seconds=SHORT_GRACE_SECONDS))
    return Step(tuple(actions), requeue=requeue) if actions or requeue else PASS


def _deleted_since(instance: Instance) -> float | None:
    """Return the seconds since the deletion of a pod; None if it is not deleted, or is about to be killed."""
    grace = ((instance.pod_obj or {}).get("metadata") or {}).get("deletionGracePeriodSeconds") or 0
    since = instance.deleted_seconds
    if since is None or grace <= SHORT_GRACE_SECONDS or since >= grace:  # or its node is lost, or a finalizer keeps it
        return None
    return since


def _was_never_ready(pod_obj: Obj) -> bool:
    """Return whether the kubelet has found the running process of a server never ready, also not after the deletion.

    It probes every second until the server listens, and every five seconds from then on. The condition has the time of
    its last change, which is not after the start of the process.
    """
    ready = accessors.condition(pod_obj, "Ready")
    since, started = ready.get("lastTransitionTime"), running_since(pod_obj, CONTAINER)
    if ready.get("status") != "False" or not since or started is None:
        return False
    return datetime.fromisoformat(since) <= started


def _survives_kill(seen: Assessment, pod_obj: Obj) -> bool:
    """Return whether a server loses nothing if it is killed while it stops: it writes no snapshot then."""
    if is_started_afresh(pod_obj):
        return True
    if not writes_log(seen.persistence) or is_started_waiting(pod_obj):
        return False
    return appends(seen.resource, seen.template_text)
