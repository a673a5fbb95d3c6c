"""Scaling: adds or removes one member at a time until the cluster has spec.size members. Pure."""

from __future__ import annotations

from operators.etcd.api.catalogue import Hazard, bug_of
from operators.etcd.client.commands import CancelDowngrade
from operators.etcd.facts.assessment import Assessment
from operators.etcd.facts.lifecycles import MemberState
from operators.etcd.membership.quorum import addition_refusal, removal_refusal
from operators.etcd.objects import names
from operators.etcd.reasons import GROW_BLOCKED, REPLACING, SCALE_DOWN_BLOCKED
from operators.etcd.state.observed import Instance
from operators.etcd.steps import member_changes
from operators.etcd.steps.intervals import BLOCKED_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.version_change import running_version
from shared.kubernetes.pods import running_since
from shared.runtime.plan import PASS, Step
from shared.status.reasons import CREATING, DEGRADED, SCALING
from shared.status.verdict import Progress

CONNECTED_SECONDS = 6.0
"""Time that every voter's server must have run before etcd accepts another member.

etcd requires 5 s; one more because Kubernetes reports whole seconds.
"""

HIDES_DOWNGRADE = "3.5."
"""Version of a cluster whose members do not report that a downgrade to it has not ended.

Until then no member can join. 3.5 ends it within 5 s, but never while a member does not answer, such as an added one.

Source: monitorDowngrade and isMatchedVersions of 3.5 in server/etcdserver.
"""


def grow_by_one(seen: Assessment) -> Step:
    """Add the lowest missing number as a learner, which does not vote until it has caught up."""
    number = seen.missing_number
    return PASS if seen.members is None or number is None else _add(seen, number)


def readd_replaced_member(seen: Assessment) -> Step:
    """While the spec cannot be applied, add a removed member again, so that the cluster keeps its size."""
    number = min(seen.replaced_numbers, default=None)
    if seen.spec_applies or seen.members is None or number is None:
        return PASS
    return _add(seen, number)


def _add(seen: Assessment, number: int) -> Step:
    resource = seen.resource
    present = sum(1 for instance in seen.instances if instance.member)
    name, goal = names.member_name(resource, number), f"Scaling from {present} to {resource.spec.size} members"
    if not resource.phase or resource.phase == CREATING:
        goal = f"{present} of {resource.spec.size} members are created"
    elif resource.phase == DEGRADED:
        goal = f"Replacing a member: {present} of {resource.spec.size} members exist"
    elif present >= resource.spec.size:
        goal = "Replacing a member with a higher number"
    reason = {"": CREATING, CREATING: CREATING, DEGRADED: REPLACING}.get(resource.phase, SCALING)
    if refusal := addition_refusal(seen) or _unsafe_addition(seen):
        message = f"{goal}; {name} is not added yet: {refusal}."
        return Step((), Progress.WAITING, GROW_BLOCKED, message, warning=True, requeue=BLOCKED_POLL_SECONDS)
    if remains := _remains(seen, seen.instance(number)):
        return Step.wait(reason, f"{goal}; {name} is not added yet: {remains}.", requeue=MEMBERSHIP_POLL_SECONDS)
    if (left := _unconnected_seconds(seen)) > 0:
        message = (
            f"{goal}; adding {name} once all voters have been connected for {CONNECTED_SECONDS:g} s, as etcd requires."
        )
        return Step.wait(reason, message, requeue=left)
    is_hidden = seen.cluster_version.startswith(HIDES_DOWNGRADE)  # all voters answer, so none runs a later series
    ended = (CancelDowngrade(seen.endpoints, seen.secrets.access),) if is_hidden else ()
    add = member_changes.add(seen, number)
    return Step.wait(reason, f"{goal}: adding {name} as a learner.", *ended, add)


def shrink_by_one(seen: Assessment) -> Step:
    """Remove one surplus member: one that is down, or else the one with the highest number.

    The member is removed from etcd first; pod and volume follow (`layout`, `delete_removed_members`). A leader hands
    over the leadership before that, so that writes do not stop until the next election.
    """
    resource = seen.resource
    surplus = [instance for instance in seen.instances if instance.member and instance.number >= resource.spec.size]
    if seen.members is None:
        return PASS
    # A missing member is added first, but a surplus one that is down is removed even before that.
    if len(seen.members) <= resource.spec.size:
        surplus = [instance for instance in surplus if instance.member in seen.down]
    if not surplus:
        return PASS
    instance = max(surplus, key=lambda instance: (instance.member in seen.down and not instance.ready, instance.number))
    assert instance.member is not None
    goal = f"Scaling from {len(seen.members)} to {resource.spec.size} members"
    if refusal := removal_refusal(seen, instance.member):
        message = f"{goal}; {instance.name} is not removed yet: {refusal}."
        return Step((), Progress.WAITING, SCALE_DOWN_BLOCKED, message, warning=True, requeue=BLOCKED_POLL_SECONDS)
    if seen.leader is instance:
        return member_changes.hand_over(
            seen, instance, SCALING, f"{goal}; {instance.name} is the leader and is to be removed"
        )
    remove = member_changes.remove(seen, instance)
    return Step.wait(SCALING, f"{goal}: removing {instance.name}.", remove)


def _unsafe_addition(seen: Assessment) -> str:
    """Return why the version of a new member makes it unsafe to add one; empty if it is safe."""
    version = running_version(seen)
    unsafe = bug_of(version, Hazard.JOINING_WITH_AUTH) if version and seen.auth_enabled is not False else None
    if unsafe is None:
        return ""
    return f"with {unsafe}, {unsafe.effect} ({unsafe.source}). Set spec.version to {unsafe.fixed} or later"


def _remains(seen: Assessment, instance: Instance | None) -> str:
    """Describe what is left of a former member: a number is reused only with an empty volume."""
    if instance is None or seen.member_states[instance.number] is not MemberState.REMOVED:
        return ""
    if instance.vacated or instance.volume_leaving:
        return "the volume of the former member still exists"
    return "the pod and the volume of the former member still exist"


def _unconnected_seconds(seen: Assessment) -> float:
    """Return the time until every voter has run long enough for etcd to accept another member."""
    starts = (running_since(instance.pod_obj, names.CONTAINER) for instance in seen.healthy_voters)
    started = [at for at in starts if at is not None]
    if len(started) < 2:  # a single voter has no connections to wait for
        return 0.0
    return CONNECTED_SECONDS - (seen.now - max(started)).total_seconds()
