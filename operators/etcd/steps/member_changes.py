"""Changes of members as calls: each one is a legal transition of the lifecycle. Pure."""

from __future__ import annotations

from operators.etcd.client.commands import AddLearner, MoveLeader, Promote, Remove
from operators.etcd.facts.assessment import Assessment
from operators.etcd.facts.lifecycles import MEMBER, MemberEvent, MemberState, member_state
from operators.etcd.objects import names
from operators.etcd.state.observed import Instance, endpoint, endpoints
from operators.etcd.steps.intervals import BLOCKED_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import Action, Step
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from shared.steps import volumes


def add(seen: Assessment, number: int) -> AddLearner:
    """Add a member as a learner."""
    resource = seen.resource
    instance = seen.instance(number)
    MEMBER.after(member_state(resource, seen, instance) if instance else MemberState.VACANT, MemberEvent.ADD)
    return AddLearner(endpoints(resource, seen), seen.secrets.access, names.peer_url(resource, number))


def promote(seen: Assessment, instance: Instance) -> Promote:
    """Promote a learner to a voter."""
    MEMBER.after(member_state(seen.resource, seen, instance), MemberEvent.PROMOTE)
    assert instance.member is not None
    return Promote(endpoints(seen.resource, seen), seen.secrets.access, instance.member)


def remove(seen: Assessment, instance: Instance) -> Remove:
    """Remove a member from etcd's list."""
    MEMBER.after(member_state(seen.resource, seen, instance), MemberEvent.REMOVE)
    assert instance.member is not None
    return Remove(endpoints(seen.resource, seen), seen.secrets.access, instance.member)


def delete_remains(seen: Assessment, instance: Instance) -> tuple[Action, ...]:
    """Delete the volume of a removed member, and its pod if the StatefulSet would keep one."""
    MEMBER.after(member_state(seen.resource, seen, instance), MemberEvent.DELETE)
    return volumes.replace_disk(instance, in_use=instance.member is not None)


def hand_over(seen: Assessment, leader: Instance, reason: Reason, why: str) -> Step:
    """Move the leadership to the lowest healthy voter that stays; only the leader itself accepts that request."""
    others = [instance for instance in seen.healthy_voters if instance is not leader]
    if not others:
        message = f"{why}; no other healthy voter can take over the leadership."
        return Step((), Progress.WAITING, reason, message, warning=True, requeue=BLOCKED_POLL_SECONDS)
    MEMBER.after(member_state(seen.resource, seen, leader), MemberEvent.HAND_OVER)
    to = min(others, key=lambda instance: instance.number)
    assert to.member is not None
    call = MoveLeader((endpoint(seen.resource, leader),), seen.secrets.access, to.member)
    return Step.wait(reason, f"{why}: moving the leadership to {to.name}.", call, requeue=MEMBERSHIP_POLL_SECONDS)
