"""Changes that need a restart: which pods are outdated, in what order they go, and what holds them. Pure.

The StatefulSet replaces no pod by itself (OnDelete): its order knows nothing of who is a master, and who follows. An
outdated pod is told by the digest of its template.

One at a time: broken pods first, for nobody misses them; then replicas; a master last, after a replica that already is
as the spec says took its place. So a change that breaks the first pod stops there, and can be taken back.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.redis.api.engine_versions import Engine, Version, refusal, upgrade_refusal
from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import FailOver
from operators.redis.instance import Instance, endpoint
from operators.redis.objects.names import CONTAINER
from operators.redis.objects.pod import TEMPLATE
from operators.redis.observe import Observed, outlives_pods
from operators.redis.steps.bootstrap import SOON
from operators.redis.steps.membership_repair import HELD, TURNING, needed
from operators.redis.steps.scaling import masters, pairs, staying
from operators.redis.topology.cluster_view import Seen
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import STUCK, is_outdated
from shared.runtime.plan import PASS, Delete, Step
from shared.status.verdict import Progress

UPGRADING, HELD_UP = "Upgrading", "RollHeld"

COMING_BACK = timedelta(minutes=2)
"""How long a pod may take to be a member in step again before a change is said to be held by it."""


def outdated(seen: Observed, place: Instance) -> bool:
    """Whether a pod runs otherwise than the StatefulSet now says."""
    return is_outdated(place.pod_obj, seen.stateful_set, TEMPLATE)


def running(resource: RedisCluster, seen: Observed) -> tuple[Engine, ...]:
    """What nodes run: as they say themselves, or, where none does, as the status last told."""
    said = [place.said for place in seen.places if place.said]
    engines = [Engine("valkey" if each.engine == "valkey" else "redis", Version.parse(each.version)) for each in said]
    return tuple(engines or (known.engine for known in resource.recorded_nodes if known.engine))


def refused_version(resource: RedisCluster, seen: Observed) -> str:
    """Why nodes must not become what the spec says; empty if they may."""
    return refusal(resource.engine) or upgrade_refusal(running(resource, seen), resource.engine)


def permitted(resource: RedisCluster, seen: Observed) -> RedisCluster:
    """The resource as nodes may run it: with the image that they have, where the spec's is refused."""
    if seen.stateful_set is None or not refused_version(resource, seen):
        return resource
    containers = seen.stateful_set["spec"]["template"]["spec"]["containers"]
    image = next(container["image"] for container in containers if container["name"] == CONTAINER)
    lowest = min(running(resource, seen), default=resource.engine)
    pod = resource.spec.template.model_copy(update={"middleware_image": image})
    told = {"pod": [pod], "version": str(lowest.version), "engine": lowest.name}
    return RedisCluster(resource.obj, resource.spec.model_copy(update=told))


def refuse_new_version(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """Of a version that the operator does not work with nothing is made in the first place."""
    return refuse_version(resource, seen, now) if seen.stateful_set is None else PASS


def refuse_version(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A version that is too old, or that the data would not survive, is not rolled out; what runs goes on."""
    why = refused_version(resource, seen)
    return Step.blocked("VersionRefused", f"spec.version: {why} Nothing was changed.") if why else PASS


def restart_broken(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Outdated pods in which the server does not even run are made anew: what a change broke, the next one mends.

    Not where data that may be the only copy would go with the pod.
    """
    broken = [
        place
        for place in seen.places
        if place.pod and not place.leaving and not place.runs and outdated(seen, place)
        if not _is_dear(resource, seen, place)
    ]
    if not broken:
        return PASS
    names = ", ".join(place.name for place in broken)
    message = f"{names}: does not run, and was made before the change; it is made anew."
    return Step.wait(UPGRADING if resource.formed else "Creating", message, *map(_restart, broken))


def roll_outdated(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """Outdated pods are made anew: replicas first, a master after a replica took its place; held if none is in step."""
    stale = [place for place in staying(resource, seen) if outdated(seen, place)]
    if not resource.formed or not stale:
        return PASS
    goal = f"{len(stale)} of {len(seen.places)} pods still run as before the change"
    if not resource.spec.rolls:
        names = ", ".join(place.name for place in stale)
        return Step.progressing(
            "PodsOutdated", f"{goal}: {names}. spec.pod[0].updateStrategy is OnDelete: delete them."
        )
    if leaving := [place for place in seen.places if place.leaving]:
        told = f"{goal}. {leaving[0].name} is on the way out"
        if stuck := _stuck(leaving[0], now):
            return Step((), Progress.WAITING, HELD_UP, f"{told}, and {stuck}", warning=True, requeue=HELD)
        return Step.wait(UPGRADING, f"{told}.", requeue=HELD)
    place = min(stale, key=lambda place: (_rank(seen, place), place.number))
    if _rank(seen, place) <= BROKEN:
        if _is_dear(resource, seen, place):
            return _held(
                seen, goal, place, "it does not answer, and its data may be the only copy, and go with its pod."
            )
        return Step.wait(UPGRADING, f"{goal}: {place.name}, which nobody misses, is made anew.", _restart(place))
    if why := _missing(resource, seen, place):
        if _coming_back(seen, place, now):
            return Step.wait(UPGRADING, f"{goal}. {why}", requeue=SOON)
        return _held(seen, goal, place, why)
    if not seen.view.slots_of(place.id):
        if place.is_asked(now):
            return Step.wait(UPGRADING, f"{goal}. Clients hear that {place.name} is no master any more.", requeue=SOON)
        return Step.wait(UPGRADING, f"{goal}: {place.name} is made anew.", _restart(place))
    return _after_failover(resource, seen, goal, place)


def _stuck(place: Instance, now: datetime) -> str:
    """What keeps a pod whose deletion was asked for; empty if it may simply take its time."""
    assert place.pod_obj is not None
    metadata = place.pod_obj["metadata"]
    if place.pod is None and metadata.get("finalizers"):
        return f"is kept by finalizers, though it has ended: {', '.join(metadata['finalizers'])}."
    if now - datetime.fromisoformat(metadata["deletionTimestamp"]) > COMING_BACK:
        return f"should have gone at {metadata['deletionTimestamp']}. {STUCK}"
    return ""


def _restart(place: Instance) -> Delete:
    assert place.pod_obj is not None
    return Delete(POD, place.pod_obj)


BROKEN = 1
"""The highest rank of those that are not in step as it is."""


def _is_dear(resource: RedisCluster, seen: Observed, place: Instance) -> bool:
    """Whether data that may be the only copy would go with a pod."""
    node_id = place.id or (place.recorded.node_id if place.recorded else "")
    if not resource.formed or outlives_pods(resource) or seen.lost(node_id):
        return False
    return bool(seen.view.slots_of(node_id)) or needed(seen.view, node_id)


def _rank(seen: Observed, place: Instance) -> int:
    """Who goes first: whom nobody misses, then replicas, masters last."""
    node = seen.view.nodes.get(place.id)
    if node is None or node.said is None:
        return 0
    if node.is_replica:
        return 1 if not node.synced else 2
    return 3 if not seen.view.slots_of(place.id) else 4


def _missing(resource: RedisCluster, seen: Observed, place: Instance) -> str:
    """Who beside a pod is not there or not in step, and why; empty if all are: another one must not go meanwhile."""
    for other in staying(resource, seen):
        if other is place:
            continue
        node = seen.view.nodes.get(other.id)
        if node is None:
            return _why_missing(other)
        if node.id not in seen.view.cluster:
            return f"{other.name} is no member yet."
        if node.is_replica and not node.synced:
            return f"{other.name} has yet to get what its master has."
        if not other.ready:
            return f"{other.name} is not ready yet, says Kubernetes."
    changed = pairs(resource, seen)
    behind = [node_id for node_id, master in changed.items() if seen.view.nodes[node_id].master != master]
    return f"{seen.name_of(behind[0])} is to replicate {seen.name_of(changed[behind[0]])} first." if behind else ""


def _why_missing(place: Instance) -> str:
    if place.pod is None:
        return f"{place.name} has no pod."
    if place.pod.trouble:
        return f"{place.name} does not start: {place.pod.trouble}"
    return f"{place.name} does not answer: {place.error.rstrip('.')}." if place.error else f"{place.name} starts."


def _coming_back(seen: Observed, place: Instance, now: datetime) -> bool:
    """Whether what is missing was just made anew, and nothing is wrong with it: that is no trouble yet."""
    for other in seen.places:
        node = seen.view.nodes.get(other.id)
        if other is place or (node is not None and (not node.is_replica or node.synced) and other.ready):
            continue
        if outdated(seen, other) or (other.pod and other.pod.trouble):
            return False
        made = other.pod_obj["metadata"].get("creationTimestamp") if other.pod_obj else None
        if made and now - datetime.fromisoformat(made) > COMING_BACK:
            return False
    return True


def _after_failover(resource: RedisCluster, seen: Observed, goal: str, place: Instance) -> Step:
    """A master's pod goes when it is none any more: a replica in step takes over, one that is current if there is."""
    view = seen.view
    heirs = [heir for heir in view.heirs(place.id) if heir.synced and not seen.reachable[heir.id].leaving]
    if heirs:  # one at a place that goes will do for want of another: its pod stays while it owns slots
        heir = min(heirs, key=lambda heir: (not _stays(resource, seen, heir), outdated(seen, seen.reachable[heir.id])))
        call = FailOver(seen.secrets.access, endpoint(resource, seen.reachable[heir.id]), heir.id, "")
        return Step.wait(UPGRADING, f"{goal}; {heir.name} takes the place of {place.name}.", call, requeue=TURNING)
    # Also those that are to follow another, or to go: who follows it may be elected meanwhile, and lack what it has.
    followed = dict.fromkeys(replica for replica, master in pairs(resource, seen).items() if master == place.id)
    followed |= dict.fromkeys(copy.id for copy in view.replicas_of(place.id) if not seen.lost(copy.id))
    if followed and place.id not in masters(resource, seen):
        return PASS  # it gives its slots away first
    if followed:
        names = ", ".join(seen.name_of(replica) for replica in followed)
        return _held(seen, goal, place, f"it is a master, and of its replicas ({names}) none is in step.")
    if not outlives_pods(resource):
        why = (
            "it is a master without a replica, and its data would go with its pod (there is no spec.storage). Let "
            "spec.replicas be larger"
        )
        return _held(seen, goal, place, f"{why}.")
    message = f"{goal}: {place.name} is made anew. It has no replica: its slots are not served until it is back."
    return Step.wait(UPGRADING, message, _restart(place))


def _stays(resource: RedisCluster, seen: Observed, node: Seen) -> bool:
    place = seen.reachable.get(node.id)
    return place is not None and place.number < resource.spec.replicas and not place.leaving


def _held(seen: Observed, goal: str, place: Instance, why: str) -> Step:
    """Says who holds the others up, and in Kubernetes' own words what it lacks."""
    message = f"{goal}. {place.name} is not made anew yet: {why}"
    broken = [other for other in seen.places if other.pod and other.pod.trouble and not outdated(seen, other)]
    if broken:
        message += (
            f" {broken[0].name} already runs as the spec says. Mend the spec, or take the change back: the others stay "
            "as they are."
        )
    return Step((), Progress.WAITING, HELD_UP, message, warning=True, requeue=HELD)
