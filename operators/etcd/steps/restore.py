"""Restores a snapshot into a new cluster. Pure.

Before the seed exists, a pod creates a data directory from the snapshot on the seed's future volume: the snapshot is
fetched and verified, restored by etcd's own program, and completed by one rename (work.seal). The status records the
completion. Then the pod is deleted, and the seed starts with the data, without permission to bootstrap on an empty
volume (`Closed`). So an empty cluster can never start instead, and every part can be repeated.
"""

from __future__ import annotations

from operators.etcd.api.backup import COMPLETE
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import pods
from operators.etcd.backup.outcome import Outcome, ended_for, outcome, removal
from operators.etcd.facts.assessment import Assessment
from operators.etcd.facts.lifecycles import RESTORE, RestoreEvent, RestoreState
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import SEED
from operators.etcd.objects.names import volume_name
from operators.etcd.reasons import NO_AGENT_IMAGE, RECORDING, RESTORE_TOO_LATE
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Apply, Delete, Step
from shared.status.reasons import IMAGE_PULL_FAILED, RESTORING
from shared.status.verdict import Progress

FINAL = frozenset({"SnapshotCorrupt", "NotASnapshot", "SnapshotTooNew", "DataInTheWay"})
"""Reasons that a retry does not resolve: a user must name another snapshot or another version."""

SEARCH_SECONDS, RETRY_SECONDS = 10.0, 30.0
"""Time until a missing snapshot is searched again, and until a failed restore is retried."""

POD_POLL_SECONDS = 60.0
"""Interval at which a running pod is checked: no event reports a pod that hangs."""

_PHASES = {
    RestoreState.FOUND: "Pending",
    RestoreState.RUNNING: "Running",
    RestoreState.FAILED: "Failed",
    RestoreState.SEALED: COMPLETE,
}


def restore_data(seen: Assessment) -> Step:
    """Create the data that spec.restore requests on the seed's volume, before the seed exists."""
    resource = seen.resource
    pod = seen.job_pods.get(pods.restore_pod_name(resource))
    if not resource.is_to_be_restored or seen.stateful_set is not None:
        return _too_late(resource) if _may_have_begun_empty(seen) else _clear(pod)
    if not seen.settings.agent_image:
        return Step.blocked(NO_AGENT_IMAGE, f"spec.restore: {pods.NO_IMAGE} Nothing was changed.")
    problem, snapshot = seen.backup.problem, seen.backup.snapshot
    if problem is not None or snapshot is None:
        reason, message = (problem.reason, problem.message) if problem else (RESTORING, "Searching the snapshot.")
        return Step((), Progress.WAITING, reason, message, warning=problem is not None, requeue=SEARCH_SECONDS)
    made = pods.started(pods.restore_pod(seen.settings, resource, snapshot.store, snapshot.file), seen.now)
    message = f"Restoring {snapshot.location} as the initial data of the cluster."
    if pod is None:
        RESTORE.after(seen.restore_state, RestoreEvent.START)
        # A stale plan would put the snapshot's data on the volume of a member that has since accepted writes.
        objects = ((PERSISTENT_VOLUME_CLAIM, pods.seed_volume(seen.settings, resource)), (POD, made))
        return Step.wait(RESTORING, message, *(Apply(kind, obj, unchanged=True) for kind, obj in objects))
    if is_terminating(pod):
        return Step.wait(
            RESTORING, f"{message} Waiting until the pod of an earlier attempt is deleted.", requeue=SEARCH_SECONDS
        )
    if annotation(pod, pods.RECIPE) != annotation(made, pods.RECIPE):  # another snapshot, or another image
        RESTORE.after(seen.restore_state, RestoreEvent.DISCARD)
        return Step.wait(RESTORING, message, Delete(POD, pod))
    return _progress(seen, pod, message, f"{snapshot.location} is restored: recording that in status.")


def restore_status(seen: Assessment) -> Obj | None:
    """Return status.restore; a completed restore is kept."""
    recorded: Obj | None = seen.resource.reported.get("restore")
    snapshot, phase = seen.backup.snapshot, _PHASES.get(seen.restore_state)
    if snapshot is None or phase is None:
        return recorded
    found: Obj = {"source": snapshot.location, "phase": phase}
    result = outcome(seen.job_pods.get(pods.restore_pod_name(seen.resource)))
    if phase != COMPLETE or result is None:
        return found
    RESTORE.after(seen.restore_state, RestoreEvent.RECORD)
    return found | {"revision": int(result.result["revision"])}


def _may_have_begun_empty(seen: Assessment) -> bool:
    """Whether a seed was allowed to bootstrap a cluster, which has no id yet, although spec.restore is set."""
    if not seen.resource.is_to_be_restored or seen.stateful_set is None or seen.cluster_id:
        return False
    return bootstrap.of(seen.stateful_set["spec"]["template"])[0] == "new"


def _progress(seen: Assessment, pod: Obj, message: str, success: str) -> Step:
    """Report the pod that creates the data; retry after a failure."""
    result = outcome(pod)
    if result is None:
        starting = Pod.of(pod)
        problem = starting.hindrance
        message = f"{message} {starting.name} {problem}." if problem else message
        reason = IMAGE_PULL_FAILED if starting.lacks_image else RESTORING
        return Step((), Progress.WAITING, reason, message, warning=bool(problem), requeue=POD_POLL_SECONDS)
    return Step.wait(RECORDING, success, requeue=0) if result.succeeded else _failed(seen, pod, result)


def _too_late(resource: EtcdCluster) -> Step:
    """Block: the seed was allowed to bootstrap an empty cluster, and its volume may have writes by now."""
    return Step.blocked(
        RESTORE_TOO_LATE,
        "spec.restore was set after the cluster was allowed to start empty. Nothing was changed. Remove "
        "spec.restore to continue without a snapshot. Or delete this resource and PersistentVolumeClaim "
        f"{volume_name(resource, SEED)}, and create the resource again.",
    )


def _clear(pod: Obj | None) -> Step:
    """Delete the pod of a finished restore; a pod that could still write must be deleted before a member starts."""
    if pod is None or outcome(pod) is not None:
        return Step.do(*removal(pod))
    message = "Waiting until the restore's pod is deleted; members start afterwards."
    return Step.wait(RESTORING, message, *removal(pod), requeue=SEARCH_SECONDS)


def _failed(seen: Assessment, pod: Obj, came_to: Outcome) -> Step:
    name = pod["metadata"]["name"]
    if came_to.reason in FINAL:
        fix = f"Change spec.restore, or fix the snapshot at its source and delete Pod {name}."
        return Step.blocked(came_to.reason, f"{came_to.message} {fix}")
    left = RETRY_SECONDS - ended_for(pod, seen.now)
    message = f"{came_to.message} The operator retries."
    if left > 0:
        return Step((), Progress.WAITING, came_to.reason, message, warning=True, requeue=left)
    RESTORE.after(seen.restore_state, RestoreEvent.DISCARD)
    return Step((Delete(POD, pod),), Progress.WAITING, came_to.reason, message, warning=True, requeue=1)
