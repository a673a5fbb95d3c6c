"""A cluster that begins with the data of a snapshot. Pure.

Before there is a seed, a pod makes data of the snapshot on the volume that the seed will have: fetched and verified,
read by etcd's own program, sealed by one rename (work.seal). That it is done is written into the status; then the pod
goes, and the seed starts with the data, as one that may not begin with an empty disk (`Closed`). So at no point can
an empty cluster come up in its place, and at each the work can be begun again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.etcd.api.backup import COMPLETE
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.backup import pods
from operators.etcd.backup.outcome import Outcome, outcome
from operators.etcd.lifecycles import RESTORE, RestoreEvent, RestoreState
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import SEED
from operators.etcd.objects.names import volume_name
from operators.etcd.reasons import NO_AGENT_IMAGE, RECORDING, RESTORE_TOO_LATE
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Apply, Delete, Step
from shared.runtime.settings import Settings
from shared.status.reasons import RESTORING
from shared.status.verdict import Progress

FINAL = frozenset({"SnapshotCorrupt", "NotASnapshot", "SnapshotTooNew", "DataInTheWay"})
"""Reasons that no second try mends: a person must name another snapshot, or another version."""

SEARCH_SECONDS, RETRY_SECONDS = 10.0, 30.0
"""Time until something missing is looked for again, and until what failed is tried again."""

POD_POLL_SECONDS = 60.0
"""Interval at which a pod at work is looked at: no event reports one that is silent."""

_PHASES = {
    RestoreState.FOUND: "Pending",
    RestoreState.RUNNING: "Running",
    RestoreState.FAILED: "Failed",
    RestoreState.SEALED: COMPLETE,
}


def restore_data(settings: Settings, resource: EtcdCluster, facts: Assessment, now: datetime) -> Step:
    """Make the data that spec.restore asks for on the seed's volume, before there is a seed."""
    pod = facts.job_pods.get(pods.restore_pod_name(resource))
    if not resource.is_to_be_restored or facts.stateful_set is not None:
        return _too_late(resource) if _may_have_begun_empty(resource, facts) else _clear(pod)
    if not settings.agent_image:
        return Step.blocked(
            NO_AGENT_IMAGE,
            "spec.restore: the operator does not know its own image, which restores: start it with --agent-image, as "
            "its chart does. Nothing was changed.",
        )
    problem, snapshot = facts.backup.problem, facts.backup.snapshot
    if problem is not None or snapshot is None:
        reason, message = (problem.reason, problem.message) if problem else (RESTORING, "The snapshot is looked for.")
        return Step((), Progress.WAITING, reason, message, warning=problem is not None, requeue=SEARCH_SECONDS)
    made = pods.restore_pod(settings, resource, snapshot.store, snapshot.file)
    message = f"{snapshot.location} becomes the data that the cluster begins with."
    if pod is None:
        RESTORE.after(facts.restore_state, RestoreEvent.START)
        # A stale plan would put the snapshot's data in the place of a member that has lived on since.
        objects = ((PERSISTENT_VOLUME_CLAIM, pods.seed_volume(settings, resource)), (POD, made))
        return Step.wait(RESTORING, message, *(Apply(kind, obj, unchanged=True) for kind, obj in objects))
    if pod["metadata"].get("deletionTimestamp"):
        return Step.wait(RESTORING, f"{message} The pod of an earlier try ends.", requeue=SEARCH_SECONDS)
    if annotation(pod, pods.RECIPE) != annotation(made, pods.RECIPE):  # another snapshot, or another image to read it
        RESTORE.after(facts.restore_state, RestoreEvent.DISCARD)
        return Step.wait(RESTORING, message, Delete(POD, pod))
    return _progress(pod, message, f"{snapshot.location} is restored: that is written down.", facts, now)


def restore_status(resource: EtcdCluster, facts: Assessment) -> Obj | None:
    """Return status.restore; what is complete stays."""
    recorded: Obj | None = resource.reported.get("restore")
    snapshot, phase = facts.backup.snapshot, _PHASES.get(facts.restore_state)
    if snapshot is None or phase is None:
        return recorded
    found: Obj = {"source": snapshot.location, "phase": phase}
    result = outcome(facts.job_pods.get(pods.restore_pod_name(resource)))
    if phase != COMPLETE or result is None:
        return found
    RESTORE.after(facts.restore_state, RestoreEvent.RECORD)
    return found | {"revision": int(result.result["revision"])}


def _may_have_begun_empty(resource: EtcdCluster, facts: Assessment) -> bool:
    """Whether a seed was allowed to begin a cluster, which has no id yet, although it is to be restored."""
    if not resource.is_to_be_restored or facts.stateful_set is None or facts.cluster_id:
        return False
    return bootstrap.of(facts.stateful_set["spec"]["template"])[0] == "new"


def _progress(pod: Obj, message: str, success: str, facts: Assessment, now: datetime) -> Step:
    """Report the pod that makes the data; retry what failed."""
    result = outcome(pod)
    if result is None:
        trouble = Pod.of(pod).trouble
        message = f"{message} {Pod.of(pod).name} does not start: {trouble}" if trouble else message
        return Step((), Progress.WAITING, RESTORING, message, warning=bool(trouble), requeue=POD_POLL_SECONDS)
    return Step.wait(RECORDING, success, requeue=0) if result.succeeded else _failed(pod, result, facts, now)


def _too_late(resource: EtcdCluster) -> Step:
    """The seed was let begin empty: whether its disk holds writes by now, nobody can tell."""
    return Step.blocked(
        RESTORE_TOO_LATE,
        "spec.restore was given when the cluster had been let begin empty. Nothing was changed. Remove it to go on "
        f"without a snapshot; or delete this resource and PersistentVolumeClaim {volume_name(resource, SEED)}, and "
        "create it anew.",
    )


def _clear(pod: Obj | None) -> Step:
    """Once it is over, its pod goes; one that could still write must be gone before a member starts."""
    if pod is None:
        return PASS
    deletions = () if pod["metadata"].get("deletionTimestamp") else (Delete(POD, pod),)
    if outcome(pod) is not None:
        return Step.do(*deletions)
    return Step(
        (*deletions,),
        Progress.WAITING,
        RESTORING,
        "The restore's pod ends before members start.",
        requeue=SEARCH_SECONDS,
    )


def _failed(pod: Obj, came_to: Outcome, facts: Assessment, now: datetime) -> Step:
    name = pod["metadata"]["name"]
    if came_to.reason in FINAL:
        fix = f"Change spec.restore, or mend it there and delete Pod {name}."
        return Step.blocked(came_to.reason, f"{came_to.message} {fix}")
    left = (came_to.finished + timedelta(seconds=RETRY_SECONDS) - now).total_seconds() if came_to.finished else 0.0
    message = f"{came_to.message} It is tried again."
    if left > 0:
        return Step((), Progress.WAITING, came_to.reason, message, warning=True, requeue=left)
    RESTORE.after(facts.restore_state, RestoreEvent.DISCARD)
    return Step((Delete(POD, pod),), Progress.WAITING, came_to.reason, message, warning=True, requeue=1)
