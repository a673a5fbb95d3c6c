"""Who is a member, and how that changes: one dangerous step at a time. Pure.

etcd's own list is the truth; the StatefulSet follows it (`layout`). So a change is one step in etcd, and wherever the
operator stops after it, the rest follows from what is seen. To come: added as a learner, started, caught up, given a
vote. To go: leadership away, removed from the list, then its pod, then its volume, and only then may that number come
again: a data directory of a former member is of no use to a new one, and etcd ends over it.

What etcd does was tried with 3.6.8 on three servers (and read in the sources of 3.4 to 3.7):

- Flags on a disk that holds data count for nothing: a member restarts the same with `Closed` as with `New`.
- On an empty disk, `Closed`, and `Joining` of another number, end with `couldn't find local name`; they leave an empty
  member/snap/db behind, over which a later start with `Joining` goes well.
- `Joining` with the others under names that no pod has is taken: etcd compares URLs; with one missing in the list it
  ends with `member count is unequal` or `no match found for existing member`.
- `New` on an empty disk at the same URL with the same token makes the same cluster id and member id again, at revision
  1: nobody could tell it from the cluster that was. Hence "never again once an id is recorded".
- A removed member's process ends (exit code 0), and ends again at each restart on its disk; under its new id as well.
- A voter that is dead may be removed at once; any addition answers `unhealthy cluster` until all voters have been
  connected for 5 s (etcd's HealthInterval), and so right after every promotion and start.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import AddLearner, MoveLeader, Promote, Remove
from operators.etcd.membership import bootstrap
from operators.etcd.membership.bootstrap import Closed
from operators.etcd.membership.layout import layout
from operators.etcd.membership.quorum import addition_refusal, names, removal_refusal
from operators.etcd.objects import resources
from operators.etcd.objects.resources import CLIENTS, SERVES
from operators.etcd.observe import Instance, Observed, endpoints
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.runtime.plan import PASS, Action, Delete, Patch, Step, announced
from shared.status.verdict import Progress

SOON = 1.0
"""Seconds until etcd is asked again about what moves in it alone: no watch tells of that."""

HELD = 10.0
"""The same while a step is held for something that is down."""

CONNECTED = 6.0
"""Seconds that every voter's server must have run before etcd takes a further member: its own 5, and one more, for
Kubernetes tells whole seconds."""

CAUGHT_UP = 0.9
"""Part of the leader's log that a learner must have for etcd to give it a vote (readyPercentThreshold in server.go)."""


def refuse_strangers(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A member that is of no place is not ours to remove, and nobody can tell whether it is healthy."""
    if not seen.unknown_members:
        return PASS
    them = names(seen, seen.unknown_members)
    return Step.blocked(
        "UnknownMember",
        f"etcd's list has {them}, which is of no pod of this cluster: somebody added it, or changed its address. "
        "Members are left as they are until it is removed (etcdctl member remove) or has its address back.",
    )


def drop_leavings(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Where a member was removed, its pod and then its volume go."""
    if seen.members is None:
        return PASS
    replicas = layout(resource, seen).replicas
    waiting: list[str] = []
    for place in seen.places:
        if place.member is not None or not (place.volume or place.pod_obj):
            continue
        if place.number < replicas:
            if place.vacated or (place.volume and _leaving(place.volume)):
                actions = _vacate(place)
                message = f"{place.name} is no member any more: its volume goes, and a new one takes its place."
                return Step((*actions,), Progress.WAITING, "Removing", message, requeue=None if actions else SOON)
        elif place.pod_obj is not None:
            waiting.append(place.name)
        elif place.volume and not _leaving(place.volume):
            message = f"{place.name} is no member any more: its volume goes."
            return Step.wait("Removing", message, Delete(PERSISTENT_VOLUME_CLAIM, place.volume))
        elif place.volume:
            waiting.append(place.name)
    if waiting:
        return Step.progressing("Removing", f"{', '.join(waiting)}: no member any more, on the way out.")
    return PASS


def _vacate(place: Instance) -> list[Action]:
    """Takes the disk away from a place that stays.

    First the volume, which then waits for the pod: the next pod cannot have it.
    """
    actions: list[Action] = []
    if place.volume and not _leaving(place.volume):
        actions.append(Delete(PERSISTENT_VOLUME_CLAIM, place.volume))
    if place.pod_obj and not _leaving(place.pod_obj):
        actions.append(Delete(POD, place.pod_obj))
    return actions


def _leaving(obj: Obj) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def replace_lost_member(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A member whose data is gone is removed; `grow_by_one` brings it back as a learner.

    It must not come back as the voter it was: it has forgotten what it voted for, and what it told others to have
    stored.
    """
    for place in seen.places:
        if place.member is None or not seen.lost(place):
            continue
        found = (
            f"its disk was {place.recorded}, and now is {place.disk}" if place.recorded != place.disk else "it is empty"
        )
        told = f"{place.name} has lost its data ({found})"
        if refusal := removal_refusal(seen, place.member):
            message = f"{told}. It is not replaced yet: {refusal}."
            return Step((), Progress.WAITING, "ReplacementHeld", message, warning=True, requeue=HELD)
        return Step.wait(
            "Replacing",
            f"{told}: it is removed, and joins again with an empty disk.",
            Remove(endpoints(resource, seen), seen.secrets.access, place.member),
        )
    return PASS


def close_begun(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """The pod of a member that has begun may not begin, or join, a second time, should its disk be found empty.

    Before it has a vote, and before clients come: from then on a disk that is gone must be known to be gone.
    """
    change: Obj = {"metadata": {"annotations": bootstrap.annotated(resource, Closed())}}
    return Step.do(
        *(
            Patch(POD, place.pod_obj, change)
            for place in seen.places
            if place.pod_obj and place.pod and not place.pod.leaving and place.member and place.member.name
        )
    )


def admit_clients(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Clients are sent to every voter: the Service selects pods by a label that learners' pods are made without."""
    change: Obj = {"metadata": {"labels": {SERVES: CLIENTS}}}
    return Step.do(
        *(
            Patch(POD, place.pod_obj, change)
            for place in seen.places
            if place.pod_obj and place.pod and not place.pod.leaving and place.member and not place.member.learner
        )
    )


def promote_learner(resource: EtcdCluster, seen: Observed, now: datetime, *, patience: float) -> Step:
    """Make a learner that has caught up a voter; give up one that does not come.

    etcd refuses while the learner's log is behind (Raft's thesis, §4.2.1), so a refusal is no failure: it is asked
    again. A learner has no vote, so that removing it costs nobody anything.

    Args:
        patience: seconds that it may take.
    """
    learner = seen.learner
    place = seen.place_of(learner) if learner else None
    if learner is None or place is None:
        return PASS
    remove = Remove(endpoints(resource, seen), seen.secrets.access, learner)
    if place.number >= resource.spec.size:
        return Step.wait(
            "Scaling", f"{place.name} is not wanted any more: it is removed before it gets a vote.", remove
        )
    if learner.name and seen.healthy(place) and _caught_up(seen, place):
        promote = Promote(endpoints(resource, seen), seen.secrets.access, learner)
        return Step((promote,), Progress.WAITING, "Promoting", f"{place.name} has caught up: it gets its vote.")
    since = _awaited_since(place)
    if since is not None and now - since >= timedelta(seconds=patience):
        message = (
            f"{place.name} did not catch up within {patience:g} s (--create-timeout): it is removed, and joins "
            f"anew with an empty disk. {_hindrance(place)}"
        )
        stuck = Step((remove,), Progress.WAITING, "LearnerStuck", message.strip(), warning=True)
        return announced(resource.obj, stuck)
    message = f"{place.name} joins: {_standing(seen, place)}"
    return Step((), Progress.WAITING, "Joining", message, warning=bool(_hindrance(place)), requeue=SOON)


def _caught_up(seen: Observed, place: Instance) -> bool:
    ahead = seen.leader.status if seen.leader else None
    return bool(ahead and place.status and place.status.raft_applied >= CAUGHT_UP * ahead.raft_index)


def _standing(seen: Observed, place: Instance) -> str:
    ahead = seen.leader.status if seen.leader else None
    if hindrance := _hindrance(place):
        return hindrance
    if place.status and ahead:
        return f"it has {place.status.raft_applied} of {ahead.raft_index} entries."
    if place.pod is None:
        return "its pod is not there yet."
    return "its server does not answer yet."


def _hindrance(place: Instance) -> str:
    return f"It does not start: {place.pod.trouble}" if place.pod and place.pod.trouble else ""


def _awaited_since(place: Instance) -> datetime | None:
    """Since when a learner could have come: since its pod or its volume was made; None before it has any.

    Without a pod it could not, and would not come sooner if it was added anew.
    """
    made = [obj["metadata"].get("creationTimestamp") for obj in (place.pod_obj, place.volume) if obj]
    return max((datetime.fromisoformat(time) for time in made if time), default=None)


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
        return Step((), Progress.WAITING, "ScaleDownHeld", message, warning=True, requeue=HELD)
    if seen.leader is place:
        return hand_over(resource, seen, place, "Scaling", f"{goal}: {place.name} leads and is to go")
    remove = Remove(endpoints(resource, seen), seen.secrets.access, member)
    return Step.wait("Scaling", f"{goal}: {place.name} is removed.", remove)


def hand_over(resource: EtcdCluster, seen: Observed, leader: Instance, reason: str, why: str) -> Step:
    """The leadership moves to the lowest healthy voter that stays; only the leader itself can be asked."""
    others = [place for place in seen.healthy_voters if place is not leader]
    if not others:
        message = f"{why}, and there is nobody to lead instead."
        return Step((), Progress.WAITING, reason, message, warning=True, requeue=HELD)
    to = min(others, key=lambda place: place.number)
    assert to.member is not None
    call = MoveLeader((resources.endpoint(resource, leader),), seen.secrets.access, to.member)
    return Step.wait(reason, f"{why}: {to.name} takes the lead.", call, requeue=SOON)


def grow_by_one(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """The lowest number without a member joins: as a learner, which counts for no majority until it has caught up."""
    if seen.members is None:
        return PASS
    taken = {place.number for place in seen.places if place.member}
    number = next((number for number in range(resource.spec.size) if number not in taken), None)
    if number is None:
        return PASS
    name, goal = resources.member_name(resource, number), f"{len(taken)} of {resource.spec.size} members are there"
    reason = {"": "Creating", "Creating": "Creating", "Degraded": "Replacing"}.get(resource.phase, "Scaling")
    if refusal := addition_refusal(seen):
        message = f"{goal}. {name} is not added yet: {refusal}."
        return Step((), Progress.WAITING, "GrowHeld", message, warning=True, requeue=HELD)
    place = seen.place(number)
    if place and (occupied := _occupied(place, layout(resource, seen).replicas)):
        return Step.wait(reason, f"{goal}. {name} is not added yet: {occupied}.", requeue=SOON)
    if (left := _unconnected(seen, now)) > 0:
        message = f"{goal}. {name} is next, once all have been connected for {CONNECTED:g} s, as etcd demands."
        return Step.wait(reason, message, requeue=left)
    add = AddLearner(endpoints(resource, seen), seen.secrets.access, resources.peer_url(resource, number))
    return Step.wait(reason, f"{goal}: {name} is added, at first without a vote.", add)


def _occupied(place: Instance, replicas: int) -> str:
    """What of a former member is still at a place: a number joins with an empty disk, or not at all."""
    if place.vacated or (place.volume and _leaving(place.volume)):
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
        if container["name"] == resources.CONTAINER
        and (state := (container.get("state") or {}).get("running") or {}).get("startedAt")
    ]
    if len(started) < 2:  # etcd asks nobody else where there is one voter
        return 0.0
    return CONNECTED - (now - max(map(datetime.fromisoformat, started))).total_seconds()
