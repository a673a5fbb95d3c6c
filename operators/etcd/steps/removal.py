"""Removes members that lost their data, and deletes the pods and volumes of removed members. Pure."""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.facts.lifecycles import MemberState
from operators.etcd.membership.quorum import removal_refusal
from operators.etcd.reasons import REMOVING, REPLACEMENT_BLOCKED, REPLACING
from operators.etcd.steps import member_changes
from operators.etcd.steps.intervals import BLOCKED_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress


def replace_lost_member(seen: Assessment) -> Step:
    """Remove a member whose data is lost; `grow_by_one` adds it again as a learner.

    The member must not return as a voter: the volume had its votes, and the entries that it confirmed as stored.
    """
    instance = next((instance for instance in seen.instances if instance.member and seen.lost(instance)), None)
    if instance is None or instance.member is None:
        return PASS
    found = (
        f"its volume was {instance.recorded}, and now is {instance.disk}"
        if instance.recorded != instance.disk
        else str(instance.empty)
    )
    loss = f"{instance.name} has lost its data ({found})"
    if refusal := removal_refusal(seen, instance.member):
        message = f"{loss}. The member is not replaced yet: {refusal}."
        return Step((), Progress.WAITING, REPLACEMENT_BLOCKED, message, warning=True, requeue=BLOCKED_POLL_SECONDS)
    message = f"{loss}: removing the member; it joins again with an empty volume."
    return Step.wait(REPLACING, message, member_changes.remove(seen, instance))


def delete_removed_members(seen: Assessment) -> Step:
    """Delete the pod, and then the volume, of a removed member."""
    if seen.members is None:
        return PASS
    replicas, waiting = seen.layout.replicas, []
    for instance in seen.instances:
        if seen.member_states[instance.number] is not MemberState.REMOVED:
            continue
        if instance.number < replicas:
            actions = member_changes.delete_remains(seen, instance)
            message = f"{instance.name} has left the cluster: deleting its volume, which is recreated empty."
            requeue = None if actions else MEMBERSHIP_POLL_SECONDS
            return Step(actions, Progress.WAITING, REMOVING, message, requeue=requeue)
        if instance.pod_obj is None and not instance.volume_leaving:  # the StatefulSet deletes the pod
            message = f"{instance.name} has left the cluster: deleting its volume."
            return Step.wait(REMOVING, message, *member_changes.delete_remains(seen, instance))
        waiting.append(instance.name)
    if waiting:
        return Step.progressing(
            REMOVING, f"{', '.join(waiting)}: removed from the cluster; waiting until the pods are deleted."
        )
    return PASS
