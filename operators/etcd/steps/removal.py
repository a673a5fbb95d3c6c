"""Members that leave: one whose data is lost is removed, and what a removed member leaves is deleted. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.lifecycles import MemberState
from operators.etcd.membership.quorum import removal_refusal
from operators.etcd.reasons import REMOVING, REPLACEMENT_HELD, REPLACING
from operators.etcd.steps import member_changes
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress


def replace_lost_member(resource: EtcdCluster, facts: Assessment, _now: datetime) -> Step:
    """Remove a member whose data is gone; `grow_by_one` brings it back as a learner.

    It must not come back as the voter it was: it has forgotten what it voted for, and what it confirmed as stored.
    """
    instance = next((instance for instance in facts.instances if instance.member and facts.lost(instance)), None)
    if instance is None or instance.member is None:
        return PASS
    found = (
        f"its disk was {instance.recorded}, and now is {instance.disk}"
        if instance.recorded != instance.disk
        else "it is empty"
    )
    loss = f"{instance.name} has lost its data ({found})"
    if refusal := removal_refusal(facts, instance.member):
        message = f"{loss}. It is not replaced yet: {refusal}."
        return Step((), Progress.WAITING, REPLACEMENT_HELD, message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    message = f"{loss}: it is removed, and joins again with an empty disk."
    return Step.wait(REPLACING, message, member_changes.remove(resource, facts, instance))


def delete_removed_members(resource: EtcdCluster, facts: Assessment, _now: datetime) -> Step:
    """Delete the pod, and then the volume, of a member that was removed."""
    if facts.members is None:
        return PASS
    replicas, waiting = facts.layout.replicas, []
    for instance in facts.instances:
        if facts.member_states[instance.number] is not MemberState.REMOVED:
            continue
        if instance.number < replicas:
            actions = member_changes.delete_remains(resource, facts, instance)
            message = f"{instance.name} is no member any more: its volume goes, and a new one takes its place."
            requeue = None if actions else MEMBERSHIP_POLL_SECONDS
            return Step(actions, Progress.WAITING, REMOVING, message, requeue=requeue)
        if instance.pod_obj is None and not instance.volume_leaving:  # the StatefulSet deletes the pod
            message = f"{instance.name} is no member any more: its volume goes."
            return Step.wait(REMOVING, message, *member_changes.delete_remains(resource, facts, instance))
        waiting.append(instance.name)
    if waiting:
        return Step.progressing(REMOVING, f"{', '.join(waiting)}: no member any more, on the way out.")
    return PASS
