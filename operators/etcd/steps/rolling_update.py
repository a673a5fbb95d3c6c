"""Changes that need a restart: which pods are outdated, in what order they go, and what holds them. Pure.

The StatefulSet replaces no pod by itself (OnDelete): its order knows nothing of who is healthy or leads. An outdated
pod is told by the digest of its template, which leaves out what a running member never reads.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import Version, upgrade_refusal
from operators.etcd.client.commands import Remove
from operators.etcd.membership.quorum import member_names, removal_refusal, restart_refusal
from operators.etcd.membership.raft_log import unreadable
from operators.etcd.objects import bootstrap
from operators.etcd.objects.names import CONTAINER
from operators.etcd.objects.pod import TEMPLATE
from operators.etcd.observe import Instance, Observed, endpoints
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.member_changes import hand_over
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import STUCK, is_outdated
from shared.runtime.plan import PASS, Delete, Step
from shared.status.verdict import Progress

COMING_BACK = timedelta(minutes=2)
"""How long a pod may take to be a healthy member again before its change is said to be held by it."""


def outdated(seen: Observed, place: Instance) -> bool:
    """Whether a pod runs otherwise than the StatefulSet now says."""
    return is_outdated(place.pod_obj, seen.stateful_set, TEMPLATE)


def starts_otherwise(seen: Observed, place: Instance) -> bool:
    """Whether a pod was made with another word on empty disks than the StatefulSet now has."""
    if seen.stateful_set is None or place.pod_obj is None:
        return False
    return bootstrap.of(place.pod_obj) != bootstrap.of(seen.stateful_set["spec"]["template"])


def restart_awaited(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A learner's pod that cannot start as it was made is made anew: it has no vote, and nothing is lost with it.

    Such is one that was made before its member was added, or before the list changed, and one of an older template.
    """
    place = seen.place_of(seen.learner) if seen.learner else None
    if place is None or place.member is None or place.pod_obj is None or place.status is not None:
        return PASS
    unfit = outdated(seen, place) or (not place.member.name and starts_otherwise(seen, place))
    if not unfit:
        return PASS
    if place.pod and place.pod.leaving:
        return Step.wait("Joining", f"{place.name} joins: its former pod is on the way out. {_stuck(place)}".strip())
    return Step.wait("Joining", f"{place.name} joins: its pod is made anew, to start as a member.", _restart(place))


def _restart(place: Instance) -> Delete:
    assert place.pod_obj is not None
    return Delete(POD, place.pod_obj)


def versions(resource: EtcdCluster, seen: Observed) -> tuple[Version, ...]:
    """What members run: as they say themselves, or, where none does, as the status last told."""
    said = [place.status.version for place in seen.places if place.status and place.member]
    return tuple(map(Version.parse, said or filter(None, [resource.reported.get("version")])))


def refusal(resource: EtcdCluster, seen: Observed) -> str:
    """Why members must not become what the spec says; empty if they may."""
    cluster = Version.parse(seen.cluster_version) if seen.cluster_version else None
    return upgrade_refusal(versions(resource, seen), cluster, resource.version)


def permitted(resource: EtcdCluster, seen: Observed) -> EtcdCluster:
    """The resource as members may run it: with the image that they have, where the spec's is refused, or must wait."""
    if not refusal(resource, seen) and not unreadable(resource, seen):
        return resource
    lowest, image = min(versions(resource, seen)), None
    if seen.stateful_set is not None:
        containers = seen.stateful_set["spec"]["template"]["spec"]["containers"]
        image = next(container["image"] for container in containers if container["name"] == CONTAINER)
    spec = resource.spec.model_copy(update={"image": image, "version": str(lowest)})
    return EtcdCluster(resource.obj, spec)


def refuse_unsafe_upgrade(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A version that the data would not survive is not rolled out; what runs goes on."""
    if why := refusal(resource, seen):
        return Step.blocked("UpgradeRefused", f"{why} Nothing was changed.")
    if why := unreadable(resource, seen):  # what else the change is about goes on meanwhile: it may be what mends it
        return Step.progressing("UpgradeHeld", why, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    return PASS


def restart_broken(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Where no list is known, outdated pods in which etcd does not even run are made anew: nobody can miss them.

    So a change that broke a whole cluster, or the only member, is mended by the next one. Not where the data would go
    with the pod.
    """
    if seen.members is not None or (resource.spec.storage.medium == "Memory" and resource.recorded_cluster_id):
        return PASS
    for place in seen.places:
        if place.pod_obj and place.pod and outdated(seen, place) and not place.runs and not place.pod.leaving:
            message = f"{place.name} does not run, and was made before the change: it is made anew."
            return Step.wait("Updating", message, _restart(place))
    return PASS


def roll_outdated_pods(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Outdated pods are made anew, one at a time: broken ones first, then followers, the leader last.

    Each goes only when the one before is back: a change that breaks the first stops there, and can be taken back.
    """
    stale = [place for place in seen.places if place.member and outdated(seen, place)]
    if not stale:
        return PASS
    goal = f"{len(stale)} of {len(seen.places)} pods still run as before the change"
    if leaving := [place for place in seen.places if place.pod and place.pod.leaving]:
        return Step.wait("Updating", f"{goal}. {leaving[0].name} is on the way out. {_stuck(leaving[0])}".strip())
    place = min(stale, key=lambda place: (place.runs, seen.healthy(place), place is seen.leader, place.number))
    if place.runs and (late := _late(seen, place)):
        return Step.wait("Updating", f"{goal}. {late}")
    if resource.spec.storage.medium == "Memory":
        return _leave_and_rejoin(resource, seen, place, goal)
    if why := restart_refusal(seen, place):
        if coming := _coming_back(seen, now):
            return Step.wait(
                "Updating", f"{goal}. {coming} is made anew, and comes back.", requeue=MEMBERSHIP_POLL_SECONDS
            )
        return _held(seen, goal, place, why)
    others = [other for other in seen.healthy_voters if other is not place]
    if place is seen.leader and others:
        return hand_over(resource, seen, place, "Updating", f"{goal}; {place.name} leads and is the last")
    return Step.wait("Updating", f"{goal}: {place.name} is made anew.", _restart(place))


def _coming_back(seen: Observed, now: datetime) -> str:
    """Whose pod was just made anew, if nobody else is down: that is no trouble yet."""
    down = [seen.place_of(member) for member in seen.down]
    for place in down:
        if place is None or outdated(seen, place) or (place.pod and place.pod.trouble):
            return ""
        made = place.pod_obj["metadata"]["creationTimestamp"] if place.pod_obj else now.isoformat()
        if now - datetime.fromisoformat(made) > COMING_BACK:
            return ""
    return ", ".join(place.name for place in down if place)


def _late(seen: Observed, place: Instance) -> str:
    """Who is not yet ready for clients, though it takes part: another one must not go meanwhile."""
    for other in seen.healthy_voters:
        if other is not place and not other.ready:
            return f"{other.name} takes part again, and is not yet ready for clients."
    return ""


def _held(seen: Observed, goal: str, place: Instance, why: str) -> Step:
    """Says who holds the others up, and in Kubernetes' own words what it lacks."""
    message = f"{goal}. {place.name} is not made anew yet: {why}."
    broken = [other for other in seen.places if other.pod and other.pod.trouble and not outdated(seen, other)]
    if broken and broken[0].pod:
        message += (
            f" {broken[0].name} already runs as the spec says, and does not start: {broken[0].pod.trouble} "
            "Mend the spec, or take the change back: the others stay as they are."
        )
    return Step((), Progress.WAITING, "UpgradeHeld", message, warning=True, requeue=HELD_BACK_POLL_SECONDS)


def _leave_and_rejoin(resource: EtcdCluster, seen: Observed, place: Instance, goal: str) -> Step:
    """Where the data goes with the pod, the member leaves before, and joins again with the new one; then the next."""
    assert place.member is not None
    present = {other.number for other in seen.places if other.member}
    if not present.issuperset(range(resource.spec.size)):
        return PASS
    if why := removal_refusal(seen, place.member):
        if len(seen.voters) == 1:
            why += ", and its data would go with its pod (storage.medium is Memory). Let spec.size be 3"
        return _held(seen, goal, place, why)
    if place is seen.leader:
        return hand_over(resource, seen, place, "Updating", f"{goal}; {place.name} leads and is the last")
    remove = Remove(endpoints(resource, seen), seen.secrets.access, place.member)
    message = f"{goal}: {place.name} leaves, for its data goes with its pod, and joins again with a new one."
    return Step.wait("Updating", message, remove)


def _stuck(place: Instance) -> str:
    """What to do where a pod's deletion takes longer than the pod was given."""
    if place.pod_obj is None or place.runs:
        return ""
    return STUCK if place.status is None and not place.ready else ""


def who_is_down(seen: Observed) -> str:
    """The members that are down, each with what is known of why."""
    told = []
    for member in seen.down:
        place = seen.place_of(member)
        if place is None:
            told.append(member_names(seen, (member,)))
        elif place.pod is None:
            told.append(f"{place.name} has no pod.")
        elif place.pod.leaving:
            told.append(f"{place.name} is on the way out. {STUCK}")
        elif place.pod.trouble:
            told.append(f"{place.name} does not start: {place.pod.trouble}")
        elif place.status is None:
            told.append(f"{place.name} does not answer: {place.error}" if place.error else f"{place.name} starts.")
        elif place.status.leader == 0:
            told.append(f"{place.name} knows no leader.")
        else:
            told.append(f"{place.name} is catching up.")
    return " ".join(told)
