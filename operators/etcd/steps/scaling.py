"""One member more, or one less: the cluster gets the size that the spec asks for. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.lifecycles import MemberState
from operators.etcd.membership.quorum import addition_refusal, removal_refusal
from operators.etcd.objects import names
from operators.etcd.observe import Instance, Observed
from operators.etcd.reasons import GROW_HELD, REPLACING, SCALE_DOWN_HELD
from operators.etcd.steps import member_changes
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.kubernetes.pods import container_status
from shared.runtime.plan import PASS, Step
from shared.status.reasons import CREATING, DEGRADED, SCALING
from shared.status.verdict import Progress

CONNECTED_SECONDS = 6.0
"""Time that every voter's server must have run before etcd accepts another member: its own 5 s, and one more because
Kubernetes reports whole seconds."""


def grow_by_one(resource: EtcdCluster, facts: Assessment, now: datetime) -> Step:
    """Add the lowest number without a member as a learner, which counts for no majority until it has caught up."""
    number = facts.missing_number
    if facts.members is None or number is None:
        return PASS
    present = sum(1 for instance in facts.instances if instance.member)
    name, goal = names.member_name(resource, number), f"{present} of {resource.spec.size} members are there"
    reason = {"": CREATING, CREATING: CREATING, DEGRADED: REPLACING}.get(resource.phase, SCALING)
    if refusal := addition_refusal(facts):
        message = f"{goal}. {name} is not added yet: {refusal}."
        return Step((), Progress.WAITING, GROW_HELD, message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    if remains := _remains(facts, facts.instance(number)):
        return Step.wait(reason, f"{goal}. {name} is not added yet: {remains}.", requeue=MEMBERSHIP_POLL_SECONDS)
    if (left := _unconnected_seconds(facts, now)) > 0:
        message = f"{goal}. {name} is next, once all have been connected for {CONNECTED_SECONDS:g} s, as etcd demands."
        return Step.wait(reason, message, requeue=left)
    add = member_changes.add(resource, facts, number)
    return Step.wait(reason, f"{goal}: {name} is added, at first without a vote.", add)


def shrink_by_one(resource: EtcdCluster, facts: Assessment, _now: datetime) -> Step:
    """Remove one surplus member: one that is down, else the one with the highest number.

    It leaves etcd's list first; pod and volume follow (`layout`, `delete_removed_members`). A leader hands over before,
    or writes would stop until the others have noticed.
    """
    surplus = [instance for instance in facts.instances if instance.member and instance.number >= resource.spec.size]
    if facts.members is None:
        return PASS
    if len(facts.members) <= resource.spec.size:  # a missing member is added first; one that is down goes even before
        surplus = [instance for instance in surplus if instance.member in facts.down]
    if not surplus:
        return PASS
    instance = max(
        surplus, key=lambda instance: (instance.member in facts.down and not instance.ready, instance.number)
    )
    assert instance.member is not None
    goal = f"{len(facts.members)} members are to be {resource.spec.size}"
    if refusal := removal_refusal(facts, instance.member):
        message = f"{goal}. {instance.name} is not removed yet: {refusal}."
        return Step((), Progress.WAITING, SCALE_DOWN_HELD, message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    if facts.leader is instance:
        return member_changes.hand_over(
            resource, facts, instance, SCALING, f"{goal}: {instance.name} leads and is to go"
        )
    remove = member_changes.remove(resource, facts, instance)
    return Step.wait(SCALING, f"{goal}: {instance.name} is removed.", remove)


def _remains(facts: Assessment, instance: Instance | None) -> str:
    """What of a former member is still there: a number joins with an empty disk, or not at all."""
    if instance is None or facts.member_states[instance.number] is not MemberState.REMOVED:
        return ""
    if instance.vacated or instance.volume_leaving:
        return "the volume of its former member is still there"
    return "pod and volume of its former member are still there"


def _unconnected_seconds(seen: Observed, now: datetime) -> float:
    """Time until every voter's server has run for long enough for etcd to accept another member."""
    states = [
        container_status(instance.pod_obj, names.CONTAINER).get("state") or {} for instance in seen.healthy_voters
    ]
    started = [at for state in states if (at := (state.get("running") or {}).get("startedAt"))]
    if len(started) < 2:  # a single voter asks no other one
        return 0.0
    return CONNECTED_SECONDS - (now - max(map(datetime.fromisoformat, started))).total_seconds()
