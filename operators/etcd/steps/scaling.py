"""One member more, or one less: the cluster gets the size that the spec asks for. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import AddLearner, Remove
from operators.etcd.membership.layout import layout
from operators.etcd.membership.quorum import addition_refusal, removal_refusal
from operators.etcd.objects import names
from operators.etcd.observe import Instance, Observed, endpoints
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.leadership import hand_over
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

CONNECTED = 6.0
"""Seconds that every voter's server must have run before etcd takes a further member: its own 5, and one more, for
Kubernetes tells whole seconds."""


def grow_by_one(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """The lowest number without a member joins: as a learner, which counts for no majority until it has caught up."""
    if seen.members is None:
        return PASS
    taken = {place.number for place in seen.places if place.member}
    number = next((number for number in range(resource.spec.size) if number not in taken), None)
    if number is None:
        return PASS
    name, goal = names.member_name(resource, number), f"{len(taken)} of {resource.spec.size} members are there"
    reason = {"": "Creating", "Creating": "Creating", "Degraded": "Replacing"}.get(resource.phase, "Scaling")
    if refusal := addition_refusal(seen):
        message = f"{goal}. {name} is not added yet: {refusal}."
        return Step((), Progress.WAITING, "GrowHeld", message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    place = seen.place(number)
    if place and (occupied := _occupied(place, layout(resource, seen).replicas)):
        return Step.wait(reason, f"{goal}. {name} is not added yet: {occupied}.", requeue=MEMBERSHIP_POLL_SECONDS)
    if (left := _unconnected(seen, now)) > 0:
        message = f"{goal}. {name} is next, once all have been connected for {CONNECTED:g} s, as etcd demands."
        return Step.wait(reason, message, requeue=left)
    add = AddLearner(endpoints(resource, seen), seen.secrets.access, names.peer_url(resource, number))
    return Step.wait(reason, f"{goal}: {name} is added, at first without a vote.", add)


def shrink_by_one(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """One member too many goes: the highest number, unless another that is to go is down, which goes first.

    First out of etcd's list; pod and volume follow (`layout`, `drop_leavings`). A leader hands over before: else nobody
    could write until the others had found out.
    """
    surplus = [place for place in seen.places if place.member and place.number >= resource.spec.size]
    if seen.members is None:
        return PASS
    if len(seen.members) <= resource.spec.size:  # another is missing, and comes first; but not before who is down goes
        surplus = [place for place in surplus if place.member in seen.down]
    if not surplus:
        return PASS
    place = max(surplus, key=lambda place: (place.member in seen.down and not place.ready, place.number))
    member = place.member
    assert member is not None
    goal = f"{len(seen.members)} members are to be {resource.spec.size}"
    if refusal := removal_refusal(seen, member):
        message = f"{goal}. {place.name} is not removed yet: {refusal}."
        return Step((), Progress.WAITING, "ScaleDownHeld", message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    if seen.leader is place:
        return hand_over(resource, seen, place, "Scaling", f"{goal}: {place.name} leads and is to go")
    remove = Remove(endpoints(resource, seen), seen.secrets.access, member)
    return Step.wait("Scaling", f"{goal}: {place.name} is removed.", remove)


def _occupied(place: Instance, replicas: int) -> str:
    """What of a former member is still at a place: a number joins with an empty disk, or not at all."""
    if place.vacated or place.volume_leaving:
        return "the volume of its former member is still there"
    if place.number >= replicas and (place.volume or place.pod_obj):
        return "pod and volume of its former member are still there"
    return ""


def _unconnected(seen: Observed, now: datetime) -> float:
    """Seconds until every voter's server has run for long enough for etcd to take a further member."""
    started = [
        state["startedAt"]
        for place in seen.healthy_voters
        for container in ((place.pod_obj or {}).get("status") or {}).get("containerStatuses") or ()
        if container["name"] == names.CONTAINER
        and (state := (container.get("state") or {}).get("running") or {}).get("startedAt")
    ]
    if len(started) < 2:  # etcd asks nobody else where there is one voter
        return 0.0
    return CONNECTED - (now - max(map(datetime.fromisoformat, started))).total_seconds()
