"""A learner becomes a voter, or is given up. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.lifecycles import MemberState
from operators.etcd.observe import Instance, Observed
from operators.etcd.reasons import JOINING, LEARNER_STUCK, PROMOTING
from operators.etcd.steps import member_changes
from operators.etcd.steps.intervals import MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import PASS, Step, announced
from shared.status.reasons import SCALING
from shared.status.verdict import Progress


def promote_learner(resource: EtcdCluster, facts: Assessment, now: datetime, *, patience: float) -> Step:
    """Promote a learner that has caught up; give up one that does not.

    etcd refuses while the learner's log is behind (Raft's thesis, §4.2.1); a refusal is no failure, and the step
    retries. A learner has no vote, so that removing it costs no quorum.

    Args:
        patience: seconds that it may take.
    """
    instance = facts.instance_of(facts.learner) if facts.learner else None
    if instance is None:
        return PASS
    if instance.number >= resource.spec.size:
        message = f"{instance.name} is not wanted any more: it is removed before it gets a vote."
        return Step.wait(SCALING, message, member_changes.remove(resource, facts, instance))
    if facts.member_states[instance.number] is MemberState.CAUGHT_UP:
        promote = member_changes.promote(resource, facts, instance)
        return Step((promote,), Progress.WAITING, PROMOTING, f"{instance.name} has caught up: it gets its vote.")
    hindrance = f"It does not start: {instance.pod.trouble}" if instance.pod and instance.pod.trouble else ""
    since = _awaited_since(instance)
    if since is not None and now - since >= timedelta(seconds=patience):
        message = (
            f"{instance.name} did not catch up within {patience:g} s (--create-timeout): it is removed, and joins "
            f"anew with an empty disk. {hindrance}"
        ).strip()
        remove = member_changes.remove(resource, facts, instance)
        return announced(resource.obj, Step((remove,), Progress.WAITING, LEARNER_STUCK, message, warning=True))
    message, warning = f"{instance.name} joins: {hindrance or _standing(facts, instance)}", bool(hindrance)
    return Step((), Progress.WAITING, JOINING, message, warning=warning, requeue=MEMBERSHIP_POLL_SECONDS)


def _standing(seen: Observed, instance: Instance) -> str:
    if instance.status and seen.leader and seen.leader.status:
        return f"it has {instance.status.raft_applied} of {seen.leader.status.raft_index} entries."
    return "its pod is not there yet." if instance.pod is None else "its server does not answer yet."


def _awaited_since(instance: Instance) -> datetime | None:
    """Since when a learner could have come: since its pod or its volume was made; None before it has any.

    Without a pod it could not, and would not come sooner if it was added anew.
    """
    made = [obj["metadata"].get("creationTimestamp") for obj in (instance.pod_obj, instance.volume) if obj]
    return max((datetime.fromisoformat(time) for time in made if time), default=None)
