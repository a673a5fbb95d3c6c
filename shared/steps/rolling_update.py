"""Policy of a rolling update: outdated pods are recreated one at a time, and the first failure stops the update. Pure.

StatefulSets use the update strategy OnDelete, because Kubernetes' own order ignores the roles of pods. A pod is
outdated if the digest of its template differs from that of the StatefulSet. A pod is recreated only after the previous
one is back, so that a change that breaks the first pod stops there and can be reverted.

A pod that serves is evicted within its disruption budget, as `kubectl drain` does: whichever of the two comes second
waits. Only a pod that does not serve is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import POD
from shared.runtime.plan import Delete, Evict, Step
from shared.status.reasons import IMAGE_PULL_FAILED, Reason
from shared.steps.instance import Instance

RETURN_TIMEOUT = timedelta(minutes=2)
"""Time allowed for a recreated pod to serve again before the update is reported as blocked by it."""

InstanceT = TypeVar("InstanceT", bound=Instance)


@dataclass(frozen=True)
class RollingUpdate(Generic[InstanceT]):
    """A rolling update, as planned in one reconcile.

    Attributes:
        instances: all instances of the database.
        is_outdated: whether the pod of an instance differs from the current template of the StatefulSet.
        stale: instances whose pods are to be recreated.
        reason: reason while the update progresses.
        blocked_reason: reason while the update is blocked.
        blocked_seconds: time until a blocked update is observed again.
        evicts: whether pods that serve are evicted (`may_evict`).
    """

    instances: Sequence[InstanceT]
    is_outdated: Callable[[InstanceT], bool]
    stale: Sequence[InstanceT]
    reason: Reason
    blocked_reason: Reason
    blocked_seconds: float
    evicts: bool = True

    @property
    def progress(self) -> str:
        return f"Rolling update: {len(self.stale)} of {len(self.instances)} pods are outdated"

    def next(self, rank: Callable[[InstanceT], Any], gates: Sequence[Callable[[InstanceT], Step | None]]) -> Step:
        """Recreate the outdated pod with the lowest rank, unless a gate returns another step.

        Args:
            rank: order of the outdated pods.
            gates: preconditions, checked in order; a gate returns None if its precondition is met.
        """
        instance = min(self.stale, key=rank)
        for gate in gates:
            if (answer := gate(instance)) is not None:
                return answer
        return self.recreate(instance)

    def recreate(self, instance: InstanceT, how: str = " is being recreated.") -> Step:
        return Step.wait(self.reason, f"{self.progress}; {instance.name}{how}", stop(instance, evicts=self.evicts))

    def wait(self, why: str, *, requeue: float | None = None) -> Step:
        """Wait for a condition that resolves without user action."""
        return Step.wait(self.reason, f"{self.progress}. {why}", requeue=requeue)

    def block(self, instance: InstanceT, why: str, *, with_problem: bool = False) -> Step:
        """Report why a pod cannot be recreated, and an updated pod that fails, if there is one.

        Args:
            with_problem: whether the message includes the problem of the failing pod.
        """
        message, reason = f"{self.progress}. {instance.name} is not recreated yet: {why}", self.blocked_reason
        for other in self.instances:
            if other.pod and other.pod.problem and not self.is_outdated(other):
                quoted = f" and {other.pod.hindrance}" if with_problem else ""
                reason = IMAGE_PULL_FAILED if other.pod.lacks_image else reason
                message += (
                    f" {other.name} is already updated{quoted}. "
                    "Fix the spec or revert the change; the other pods are not updated until then."
                )
                break
        return Step.wait(reason, message, warning=True, requeue=self.blocked_seconds)


def may_evict(budget: PodDisruptionBudget | None, size: int) -> bool:
    """Whether planned work evicts pods, rather than deletes them.

    A budget that never allows an eviction keeps pods on their nodes. It does not prevent a change of the spec, as for
    any workload of Kubernetes. No drain can stop another pod at the same time, so that a deletion is safe.

    Args:
        budget: the budget in the spec; None for the default one.
        size: number of pods.
    """
    return budget is None or not budget.blocks_every_eviction(size)


def stop(instance: Instance, *, evicts: bool) -> Delete | Evict:
    """Stop a pod for planned work, so that the StatefulSet recreates it; one that does not serve is deleted.

    A budget with the policy IfHealthyBudget protects a pod that does not serve, although a restart may repair it.

    Args:
        evicts: see `may_evict`.
    """
    assert instance.pod_obj is not None
    serves = instance.pod is not None and instance.pod.ready
    return Evict(instance.pod_obj) if serves and evicts else restart(instance)


def restart(instance: Instance) -> Delete:
    """Delete a pod that does not serve, so that the StatefulSet recreates it."""
    assert instance.pod_obj is not None
    return Delete(POD, instance.pod_obj)


def broken(instances: Sequence[InstanceT], is_outdated: Callable[[InstanceT], bool]) -> list[InstanceT]:
    """Return the instances with an outdated pod whose server does not run: the update may repair them."""
    return [
        instance
        for instance in instances
        if instance.pod and not instance.pod.leaving and not instance.runs and is_outdated(instance)
    ]


def is_returning(instance: Instance, now: datetime) -> bool:
    """Whether a pod was created recently and has no known problem."""
    if instance.pod and instance.pod.problem:
        return False
    created = instance.pod_obj["metadata"].get("creationTimestamp") if instance.pod_obj else None
    return not created or now - datetime.fromisoformat(created) <= RETURN_TIMEOUT
