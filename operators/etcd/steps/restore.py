"""A cluster that begins with the data of a snapshot. Pure.

Before there is a seed, a pod makes data of the snapshot on the volume that the seed will have: fetched and verified,
read by etcd's own program, sealed by one rename (work.seal). That it is done is written into the status; then the pod
goes, and the seed starts with the data, as one that may not begin with an empty disk (`Closed`). So at no point can
an empty cluster come up in its place, and at each the work can be begun again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from operators.etcd.api.backup import COMPLETE
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import pods
from operators.etcd.backup.outcome import Outcome, outcome
from operators.etcd.backup.pods import restore_pod_name
from operators.etcd.backup.view import is_to_be_restored
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import SEED
from operators.etcd.objects.names import volume_name
from operators.etcd.settings import Settings
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Apply, Delete, Step
from shared.status.verdict import Progress

if TYPE_CHECKING:
    from operators.etcd.observe import Observed

RESTORING = "Restoring"

FINAL = frozenset({"SnapshotCorrupt", "NotASnapshot", "SnapshotTooNew", "DataInTheWay"})
"""Reasons that no second try mends: a person must name another snapshot, or another version."""

AGAIN, LATER = 10.0, 30.0
"""Seconds until what is missing is looked for again, and until what failed is tried again."""


def restore_data(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """The seed's volume has the data that spec.restore asks for, before there is a seed."""
    pod = seen.job_pods.get(restore_pod_name(resource))
    if not is_to_be_restored(resource):
        return _clear(pod)
    if seen.stateful_set is not None:
        is_open = bootstrap.of(seen.stateful_set["spec"]["template"])[0] == "new"
        return _too_late(resource) if is_open and not seen.cluster_id else _clear(pod)
    if not settings.agent_image:
        return Step.blocked(
            "NoAgentImage",
            "spec.restore: the operator does not know its own image, which restores: start it with --agent-image, as "
            "its chart does. Nothing was changed.",
        )
    problem, snapshot = seen.backup.problem, seen.backup.snapshot
    if problem is not None or snapshot is None:
        reason, message = (problem.reason, problem.message) if problem else (RESTORING, "The snapshot is looked for.")
        return Step((), Progress.WAITING, reason, message, warning=problem is not None, requeue=AGAIN)
    made = pods.restore_pod(settings, resource, snapshot.store, snapshot.file)
    told = f"{snapshot.location} becomes the data that the cluster begins with."
    if pod is None:
        claim = pods.seed_volume(settings, resource)
        # An old wish would put the snapshot's data in the place of a member that has lived on since.
        wanted = ((PERSISTENT_VOLUME_CLAIM, claim), (POD, made))
        return Step.wait(RESTORING, told, *(Apply(kind, obj, unchanged=True) for kind, obj in wanted))
    if pod["metadata"].get("deletionTimestamp"):
        return Step.wait(RESTORING, f"{told} The pod of an earlier try ends.", requeue=AGAIN)
    if annotation(pod, pods.RECIPE) != annotation(
        made, pods.RECIPE
    ):  # the spec names another snapshot, or another image to read it
        return Step.wait(RESTORING, told, Delete(POD, pod))
    came_to = outcome(pod)
    if came_to is None:
        trouble = Pod.of(pod).trouble
        said = f"{told} {Pod.of(pod).name} does not start: {trouble}" if trouble else told
        return Step((), Progress.WAITING, RESTORING, said, warning=bool(trouble), requeue=60)
    if came_to.succeeded:
        return Step.wait("Recording", f"{snapshot.location} is restored: that is written down.", requeue=0)
    return _failed(pod, came_to, now)


def restore_status(resource: EtcdCluster, seen: Observed) -> Obj | None:
    """status.restore: how far it is; what is complete stays."""
    recorded: Obj | None = resource.reported.get("restore")
    snapshot, pod = seen.backup.snapshot, seen.job_pods.get(restore_pod_name(resource))
    if not is_to_be_restored(resource) or seen.stateful_set is not None or snapshot is None:
        return recorded
    came_to = outcome(pod)
    is_its_own = pod is not None and annotation(pod, pods.TOKEN) == pods.restore_token(
        resource, snapshot.store, snapshot.file
    )
    if pod is None or not is_its_own or pod["metadata"].get("deletionTimestamp"):
        return {"source": snapshot.location, "phase": "Pending"}
    if came_to is None:
        return {"source": snapshot.location, "phase": "Running"}
    if not came_to.succeeded:
        return {"source": snapshot.location, "phase": "Failed"}
    return {"source": snapshot.location, "phase": COMPLETE, "revision": int(came_to.said["revision"])}


def _too_late(resource: EtcdCluster) -> Step:
    """The seed was let begin empty: whether its disk holds writes by now, nobody can tell."""
    return Step.blocked(
        "RestoreTooLate",
        "spec.restore was given when the cluster had been let begin empty. Nothing was changed. Remove it to go on "
        f"without a snapshot; or delete this resource and PersistentVolumeClaim {volume_name(resource, SEED)}, and "
        "create it anew.",
    )


def _clear(pod: Obj | None) -> Step:
    """Once it is over, its pod goes; one that could still write must be gone before a member starts."""
    if pod is None:
        return PASS
    going = () if pod["metadata"].get("deletionTimestamp") else (Delete(POD, pod),)
    if outcome(pod) is not None:
        return Step.do(*going)
    return Step((*going,), Progress.WAITING, RESTORING, "The restore's pod ends before members start.", requeue=AGAIN)


def _failed(pod: Obj, came_to: Outcome, now: datetime) -> Step:
    name = pod["metadata"]["name"]
    if came_to.reason in FINAL:
        mend = f"Change spec.restore, or mend it there and delete Pod {name}."
        return Step.blocked(came_to.reason, f"{came_to.message} {mend}")
    left = (came_to.finished + timedelta(seconds=LATER) - now).total_seconds() if came_to.finished else 0.0
    message = f"{came_to.message} It is tried again."
    if left > 0:
        return Step((), Progress.WAITING, came_to.reason, message, warning=True, requeue=left)
    return Step((Delete(POD, pod),), Progress.WAITING, came_to.reason, message, warning=True, requeue=1)
