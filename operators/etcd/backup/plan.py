"""Plan of an EtcdBackup. Pure.

A snapshot belongs to one point in time: it is attempted a few times in a row, and then never again. A scheduled one is
attempted until the next one is due, and then ends, regardless of what it waits for: the next one is created only then.
The outcome is recorded in the status before the pod is deleted, so that nothing is lost or done twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from operators.etcd.api.backup import SCHEDULED, EtcdBackup, validate
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import pods, report
from operators.etcd.backup.assessment import MAX_ATTEMPTS, Assessment
from operators.etcd.backup.observe import Observed, choose
from operators.etcd.reasons import NO_AGENT_IMAGE, NO_MEMBER, POD_NOT_STARTING, REASONS, RUNNING
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Action, Apply, Delete, Plan, Step, StepOf, follow
from shared.runtime.settings import Settings
from shared.status.conditions import READY
from shared.status.reasons import IMAGE_PULL_FAILED
from shared.steps.planner import reject_invalid_spec

POLL_SECONDS = 60.0
"""Interval at which a pod that takes a snapshot is checked: no event reports a pod that hangs."""

_RETRIES = "failed; the operator retries."

RETRY_SECONDS = 10.0
"""Time until a missing prerequisite or an unreachable member is checked again: no watch reports it."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans an EtcdBackup with the settings of the operator."""

    settings: Settings

    def _steps(self) -> tuple[StepOf[EtcdBackup, Assessment], ...]:
        return (
            partial(reject_invalid_spec, validate),  # the same rules as at admission
            await_snapshot,  # a snapshot in progress
            wait_after_failure,  # before the next attempt
            partial(require_image, self.settings),  # the image that takes the snapshot
            require_prerequisites,  # the cluster, the destination, credentials
            partial(take_snapshot, self.settings),  # from the best member
        )

    def plan(self, backup: EtcdBackup, seen: Observed, now: datetime) -> Plan:
        """Return the actions of the steps, and the status that reports them."""
        facts = Assessment(backup, seen, now)
        if finished := report.finished(facts):
            return finished
        found = follow(self._steps(), backup, facts, now)
        until = backup.retry_until
        if until is None or seen.alive or found.actions:
            return Plan((found.actions,), found.verdict, report.status(facts), found.requeue, poll=found.poll)
        left = (until - now).total_seconds()
        if left <= 0:
            return report.expired(facts, found.verdict)
        requeue = left if found.requeue is None else min(left, found.requeue)
        return Plan((), found.verdict, report.status(facts), requeue, poll=found.poll)


def await_snapshot(backup: EtcdBackup, facts: Assessment, now: datetime) -> Step:
    """Wait while a pod takes the snapshot."""
    seen = facts.observed
    if seen.pod is None or facts.outcome is not None:
        return PASS
    pod = Pod.of(seen.pod)
    if pod.is_failing(now):
        return Step.wait(
            IMAGE_PULL_FAILED if pod.lacks_image else POD_NOT_STARTING,
            f"{seen.message} {pod.name} {pod.hindrance}.",
            warning=True,
            requeue=POLL_SECONDS,
        )
    return _taking(backup, facts, seen.message, requeue=POLL_SECONDS)


def wait_after_failure(backup: EtcdBackup, facts: Assessment, now: datetime) -> Step:
    """Record a failed attempt, and delay the next one; until then the pod is kept, so that its log can be read."""
    outcome, pod = facts.outcome, facts.observed.pod
    if outcome is None:
        return PASS
    left = (facts.next_attempt - now).total_seconds()
    message = f"{outcome.message} {_attempt(backup, facts.attempts)} {_RETRIES}"
    if left > 0 or facts.attempts != backup.reported.get("attempts"):
        return Step.wait(outcome.reason, message, warning=True, requeue=max(0.0, left))
    if pod is None:
        return PASS
    deletion = () if pod["metadata"].get("deletionTimestamp") else (Delete(POD, pod),)
    return Step.wait(outcome.reason, message, *deletion, warning=True, requeue=1)


def _attempt(backup: EtcdBackup, number: int) -> str:
    return f"Attempt {number}" if backup.retry_until else f"Attempt {number} of {MAX_ATTEMPTS}"


def _taking(
    backup: EtcdBackup, facts: Assessment, message: str, *actions: Action, requeue: float | None = None
) -> Step:
    """Report that a snapshot is being taken; the failure of the last attempt stays, so that attempts are no events."""
    before = condition(backup.obj, READY)
    last = str(before.get("message") or "")
    if facts.attempts and last.endswith(_RETRIES):
        return Step.wait(REASONS.named(before["reason"]), last, *actions, warning=True, requeue=requeue)
    return Step.wait(RUNNING, message, *actions, requeue=requeue)


def require_image(settings: Settings, _backup: EtcdBackup, _facts: Assessment, _now: datetime) -> Step:
    """Require the image that takes snapshots: that of the operator itself."""
    if settings.agent_image:
        return PASS
    return Step.blocked(
        NO_AGENT_IMAGE,
        "Snapshots need the image of the operator itself, which is not configured. Start the operator with "
        "--agent-image, as its Helm chart does. Nothing was changed.",
    )


def require_prerequisites(_backup: EtcdBackup, facts: Assessment, _now: datetime) -> Step:
    """Require the cluster, the destination and credentials; wait for what is missing."""
    problem = facts.observed.problem
    return PASS if problem is None else Step.wait(problem.reason, problem.message, warning=True, requeue=RETRY_SECONDS)


def take_snapshot(settings: Settings, backup: EtcdBackup, facts: Assessment, _now: datetime) -> Step:
    """Start one pod that takes the snapshot, from a member that has all data."""
    seen, cluster = facts.observed, facts.observed.cluster
    assert cluster is not None, "require_everything waits for it"
    choice = choose(cluster, seen.sources)
    if choice is None:
        errors = "; ".join(f"{source.name}: {source.error}" for source in seen.sources if source.error)
        why = errors or ("no healthy voter of this cluster answers" if seen.sources else "no member has a running pod")
        message = (
            f"No member of EtcdCluster {cluster.name} can provide a snapshot: {why.rstrip('.')}. The operator retries."
        )
        return Step.wait(NO_MEMBER, message, warning=True, requeue=RETRY_SECONDS)
    attempt = facts.attempts + 1
    label = _attempt(backup, attempt)
    message = f"{label}: taking the snapshot from {choice.name}. {choice.caution}".strip()
    keep = _retention_count(backup, cluster)
    pod = pods.snapshot_pod(
        settings,
        backup,
        cluster,
        choice.name,
        choice.status,
        attempt=attempt,
        message=message,
        keep=keep,
        password_secret=seen.password_secret,
    )
    return _taking(backup, facts, message, Apply(POD, pod, unchanged=True))  # an existing pod is kept and checked


def _retention_count(backup: EtcdBackup, cluster: EtcdCluster) -> int | None:
    """Return how many scheduled snapshots to keep; None for a snapshot without a schedule, 0 for all of them."""
    labels = backup.obj["metadata"].get("labels") or {}
    if labels.get(SCHEDULED) != cluster.uid:
        return None
    schedule = cluster.spec.backup
    return schedule.retention if schedule and schedule.destination == backup.spec.destination else 0
