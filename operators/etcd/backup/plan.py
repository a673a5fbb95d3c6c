"""Plan of an EtcdBackup. Pure.

A snapshot belongs to one point in time: it is attempted a few times in a row, and then never again. A scheduled one is
attempted until the next one is due, and then ends, regardless of what it waits for: the next one is created only then.
The outcome is recorded in the status before the pod is deleted, so that nothing is lost or done twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from operators.etcd.api.backup import SCHEDULED, EtcdBackup, validate
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import pods, report
from operators.etcd.backup.assessment import MAX_ATTEMPTS, Assessment
from operators.etcd.backup.observe import Observed, choose
from operators.etcd.backup.outcome import removal
from operators.etcd.backup.report import RETRIES
from operators.etcd.reasons import NO_AGENT_IMAGE, NO_MEMBER, POD_NOT_STARTING, REASONS, RUNNING
from shared.kubernetes.accessors import condition, is_terminating
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import STUCK, Pod
from shared.runtime.plan import PASS, Action, Apply, Plan, Step, StepOf, follow, shortest
from shared.runtime.settings import Settings
from shared.status.conditions import READY
from shared.status.reasons import HIBERNATED, IMAGE_PULL_FAILED
from shared.steps.planner import reject_invalid_spec

POLL_SECONDS = 60.0
"""Interval at which a pod that takes a snapshot is checked: no event reports a pod that hangs."""

_RETRIES = f"failed. {RETRIES}"

RETRY_SECONDS = 10.0
"""Time until a missing prerequisite or an unreachable member is checked again: no watch reports it."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans an EtcdBackup with the settings of the operator."""

    settings: Settings

    def plan(self, backup: EtcdBackup, observed: Observed, now: datetime) -> Plan:
        """Return the actions of the steps, and the status that reports them."""
        seen = Assessment(resource=backup, settings=self.settings, now=now, observed=observed)
        if finished := report.finished(seen):
            return finished
        found = follow(STEPS, seen)
        until, runs = backup.retry_until, observed.pod is not None and seen.outcome is None
        is_first = bool(found.actions) and not backup.reported  # the operator was down when it was due
        left = None if until is None or runs or is_first else (until - now).total_seconds()
        if left is not None and left <= 0:
            return report.expired(seen, found.verdict)
        requeue = shortest(left, found.requeue)
        return Plan((found.actions,), found.verdict, report.status(seen), requeue, poll=found.poll)


def await_snapshot(seen: Assessment) -> Step:
    """Wait while a pod takes the snapshot."""
    observed = seen.observed
    if observed.pod is None or seen.outcome is not None:
        return PASS
    pod = Pod.of(observed.pod)
    if pod.is_failing(seen.now):
        return Step.wait(
            IMAGE_PULL_FAILED if pod.lacks_image else POD_NOT_STARTING,
            f"{observed.message} {pod.name} {pod.hindrance}.",
            warning=True,
            requeue=POLL_SECONDS,
        )
    return _taking(seen, observed.message, requeue=POLL_SECONDS)


def wait_after_failure(seen: Assessment) -> Step:
    """Record a failed attempt, and delay the next one; until then the pod is kept, so that its log can be read."""
    outcome, pod = seen.outcome, seen.observed.pod
    if outcome is None:
        return PASS
    left = (seen.next_attempt - seen.now).total_seconds()
    deleted = is_terminating(pod)
    stays = f" Pod {pod['metadata']['name']} is terminating. {STUCK}" if pod is not None and deleted else ""
    message = f"{outcome.message}{stays} {_attempt(seen.resource, seen.attempts)} {_RETRIES}"
    if left > 0 or seen.attempts != seen.resource.reported.get("attempts"):
        return Step.wait(outcome.reason, message, warning=True, requeue=max(0.0, left))
    if pod is None:
        return PASS
    return Step.wait(outcome.reason, message, *removal(pod), warning=True, requeue=RETRY_SECONDS if deleted else 1)


def _attempt(backup: EtcdBackup, number: int) -> str:
    return f"Attempt {number}" if backup.retry_until else f"Attempt {number} of {MAX_ATTEMPTS}"


def _taking(seen: Assessment, message: str, *actions: Action, requeue: float | None = None) -> Step:
    """Report that a snapshot is being taken; the failure of the last attempt stays, so that attempts are no events."""
    before = condition(seen.resource.obj, READY)
    last = str(before.get("message") or "")
    if seen.attempts and last.endswith(_RETRIES):
        return Step.wait(REASONS.named(before["reason"]), last, *actions, warning=True, requeue=requeue)
    return Step.wait(RUNNING, message, *actions, requeue=requeue)


def require_image(seen: Assessment) -> Step:
    """Require the image that takes snapshots: that of the operator itself."""
    if seen.settings.agent_image:
        return PASS
    return Step.blocked(NO_AGENT_IMAGE, f"{pods.NO_IMAGE} Nothing was changed.")


def require_prerequisites(seen: Assessment) -> Step:
    """Require the cluster, the destination and credentials; wait for what is missing."""
    problem = seen.observed.problem
    return PASS if problem is None else Step.wait(problem.reason, problem.message, warning=True, requeue=RETRY_SECONDS)


def take_snapshot(seen: Assessment) -> Step:
    """Start one pod that takes the snapshot, from a member that has all data."""
    backup, observed, cluster = seen.resource, seen.observed, seen.observed.cluster
    assert cluster is not None, "require_everything waits for it"
    choice = choose(cluster, observed.sources)
    if choice is None:
        errors = "; ".join(f"{source.name}: {source.error}" for source in observed.sources if source.error)
        why = errors or (
            "no healthy voter of this cluster answers" if observed.sources else "no member has a running pod"
        )
        why = "it hibernates (spec.hibernate)" if cluster.phase == HIBERNATED else why
        message = (
            f"No member of EtcdCluster {cluster.name} can provide a snapshot: {why.rstrip('.')}. The operator retries."
        )
        return Step.wait(NO_MEMBER, message, warning=True, requeue=RETRY_SECONDS)
    attempt = seen.attempts + 1
    label = _attempt(backup, attempt)
    message = f"{label}: taking the snapshot from {choice.name}. {choice.caution}".strip()
    keep = _retention_count(backup, cluster)
    keep = 0 if keep and choice.differs else keep
    pod = pods.snapshot_pod(
        seen.settings,
        backup,
        cluster,
        choice.name,
        choice.status,
        attempt=attempt,
        now=seen.now,
        message=message,
        keep=keep,
        password_secret=observed.password_secret,
    )
    return _taking(seen, message, Apply(POD, pod, unchanged=True))  # an existing pod is kept and checked


def _retention_count(backup: EtcdBackup, cluster: EtcdCluster) -> int | None:
    """Return how many scheduled snapshots to keep; None for a snapshot without a schedule, 0 for all of them."""
    labels = backup.obj["metadata"].get("labels") or {}
    if labels.get(SCHEDULED) != cluster.uid:
        return None
    schedule = cluster.spec.backup
    return schedule.retention if schedule and schedule.destination == backup.spec.destination else 0


STEPS: tuple[StepOf[Assessment], ...] = (
    reject_invalid_spec(validate),  # the same rules as at admission
    await_snapshot,  # a snapshot in progress
    wait_after_failure,  # before the next attempt
    require_image,  # the image that takes the snapshot
    require_prerequisites,  # the cluster, the destination, credentials
    take_snapshot,  # from the best member
)
