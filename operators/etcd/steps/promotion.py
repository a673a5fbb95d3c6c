"""Promotes a learner to a voter, or removes it after a timeout. Pure."""

from __future__ import annotations

from datetime import timedelta

from operators.etcd.facts.assessment import Assessment
from operators.etcd.facts.lifecycles import MemberState
from operators.etcd.membership import catching_up
from operators.etcd.reasons import JOINING, LEARNER_STUCK, PROMOTING
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps import member_changes
from operators.etcd.steps.intervals import MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import PASS, Step, announced
from shared.status.reasons import IMAGE_PULL_FAILED, SCALING
from shared.status.verdict import Progress


def promote_learner(seen: Assessment) -> Step:
    """Promote a learner that has caught up; remove one that makes no progress.

    etcd rejects the promotion while the learner's log is behind (Raft's thesis, §4.2.1). A rejection is not a failure:
    the step retries. A learner does not vote, so that removing it does not affect the quorum. It
    may make no progress for `--create-timeout`, in addition to the time for a copy of the database.
    """
    resource = seen.resource
    instance = seen.instance_of(seen.learner) if seen.learner else None
    if instance is None:
        return PASS
    if instance.number >= resource.spec.size:
        message = (
            f"{instance.name} is no longer needed (spec.size is {resource.spec.size}): removing the learner "
            "before it votes."
        )
        return Step.wait(SCALING, message, member_changes.remove(seen, instance))
    if seen.member_states[instance.number] is MemberState.CAUGHT_UP:
        promote = member_changes.promote(seen, instance)
        message = f"{instance.name} has caught up with the leader: promoting it to a voter."
        return Step((promote,), Progress.WAITING, PROMOTING, message)
    hindrance = f"its pod {instance.pod.hindrance}" if instance.pod and instance.pod.hindrance else ""
    since = catching_up.stalled_since(resource, instance)
    allowed = catching_up.allowed_seconds(seen, instance, seen.settings.create_timeout)
    if since is not None and seen.now - since >= timedelta(seconds=allowed):
        message = (
            f"{instance.name} made no progress for {allowed:.0f} s{', and ' * bool(hindrance)}{hindrance}: "
            "removing it; it joins again with an empty volume."
        )
        remove = member_changes.remove(seen, instance)
        return announced(resource.obj, Step((remove,), Progress.WAITING, LEARNER_STUCK, message, warning=True))
    message, warning = f"{instance.name} is joining: {hindrance or _catch_up(seen, instance)}", bool(hindrance)
    reason = IMAGE_PULL_FAILED if instance.pod and instance.pod.lacks_image else JOINING
    return Step((), Progress.WAITING, reason, message, warning=warning, poll=MEMBERSHIP_POLL_SECONDS)


def _catch_up(seen: Observed, instance: Instance) -> str:
    if instance.status and seen.leader and seen.leader.status:
        return f"it has applied {instance.status.raft_applied} of {seen.leader.status.raft_index} log entries."
    if instance.progress and instance.progress.receiving and seen.leader:
        return f"it receives a snapshot of the database ({seen.leader.db_size / 2**20:.0f} MiB)."
    return "it has no pod yet." if instance.pod is None else "its server does not answer yet."
