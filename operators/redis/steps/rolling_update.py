"""Changes that need a restart: which pods are outdated, in what order they are recreated, and what holds them. Pure."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from operators.redis.api.engine_versions import Engine, Version, refusal, upgrade_refusal
from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.instance import Instance
from operators.redis.objects.names import CONTAINER
from operators.redis.objects.pod import TEMPLATE
from operators.redis.observe import Observed, outlives_pods
from operators.redis.reasons import PODS_OUTDATED, ROLL_HELD, VERSION_REFUSED
from operators.redis.steps.failover import take_over
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.kubernetes.pods import STUCK, is_outdated
from shared.runtime.plan import PASS, Step
from shared.status.phases import CREATING, UPGRADING
from shared.steps import rolling_update
from shared.steps.rolling_update import RETURN_TIMEOUT, RollingUpdate, is_returning, restart, template_image

BROKEN = 1
"""The highest rank of nodes that are not in sync as it is."""


def outdated(seen: Observed, instance: Instance) -> bool:
    """Whether a pod runs otherwise than the StatefulSet now says."""
    return is_outdated(instance.pod_obj, seen.stateful_set, TEMPLATE)


def running(resource: RedisCluster, seen: Observed) -> tuple[Engine, ...]:
    """What nodes run: as they say themselves, or, where none does, as the status last told."""
    report = [instance.report for instance in seen.instances if instance.report]
    engines = [Engine("valkey" if each.engine == "valkey" else "redis", Version.parse(each.version)) for each in report]
    return tuple(engines or (known.engine for known in resource.recorded_nodes if known.engine))


def refused_version(resource: RedisCluster, seen: Observed) -> str:
    """Why nodes must not become what the spec says; empty if they may."""
    return refusal(resource.engine) or upgrade_refusal(running(resource, seen), resource.engine)


def permitted(resource: RedisCluster, seen: Observed) -> RedisCluster:
    """The resource as nodes may run it: with the image that they have, where the spec's is refused."""
    if seen.stateful_set is None or not refused_version(resource, seen):
        return resource
    lowest = min(running(resource, seen), default=resource.engine)
    image = template_image(seen.stateful_set, CONTAINER)
    pod = resource.spec.template.model_copy(update={"middleware_image": image})
    update = {"pod": [pod], "version": str(lowest.version), "engine": lowest.name}
    return RedisCluster(resource.obj, resource.spec.model_copy(update=update))


def refuse_new_version(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """Of a version that the operator does not work with nothing is made in the first place."""
    return refuse_version(resource, seen, now) if seen.stateful_set is None else PASS


def refuse_version(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A version that is too old, or that the data would not survive, is not rolled out; what runs goes on."""
    why = refused_version(resource, seen)
    return Step.blocked(VERSION_REFUSED, f"spec.version: {why} Nothing was changed.") if why else PASS


def restart_broken(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Recreate outdated pods in which the server does not even run: what a change broke, the next one repairs.

    Not where data that may be the only copy would go with the pod.
    """
    broken = [
        instance
        for instance in rolling_update.broken(seen.instances, partial(outdated, seen))
        if not _would_lose_data(resource, seen, instance)
    ]
    if not broken:
        return PASS
    names = ", ".join(instance.name for instance in broken)
    message = f"{names}: does not run, and was made before the change; it is made anew."
    return Step.wait(UPGRADING if resource.formed else CREATING, message, *map(restart, broken))


def roll_outdated(resource: RedisCluster, seen: Assessment, now: datetime) -> Step:
    """Recreate outdated pods one at a time: broken ones first, then replicas; a primary after a replica took over."""
    stale = [instance for instance in seen.staying if outdated(seen, instance)]
    if not resource.formed or not stale:
        return PASS
    roll = RollingUpdate(seen.instances, partial(outdated, seen), stale, UPGRADING, ROLL_HELD, BLOCKED_SECONDS)
    if not resource.spec.rolls:
        names = ", ".join(instance.name for instance in stale)
        return Step.progressing(
            PODS_OUTDATED, f"{roll.goal}: {names}. spec.pod[0].updateStrategy is OnDelete: delete them."
        )
    if leaving := [instance for instance in seen.instances if instance.leaving]:
        return _await_deletion(roll, leaving[0], now)
    return roll.next(
        rank=lambda instance: (_rank(seen, instance), instance.number),
        gates=(
            partial(_recreate_broken, resource, seen, roll),  # nothing depends on it, unless its data is the only copy
            partial(_await_others, seen, roll, now),  # each present, in sync and ready
            partial(_await_clients, seen, roll, now),  # until they know that the node is no primary any more
            partial(_fail_over, resource, seen, roll),  # a primary goes after a replica took its place
        ),
    )


def _await_deletion(roll: RollingUpdate[Instance], instance: Instance, now: datetime) -> Step:
    message = f"{roll.goal}. {instance.name} is on the way out"
    if stuck := _stuck(instance, now):
        return Step.wait(ROLL_HELD, f"{message}, and {stuck}", warning=True, requeue=BLOCKED_SECONDS)
    return Step.wait(UPGRADING, f"{message}.", requeue=BLOCKED_SECONDS)


def _stuck(instance: Instance, now: datetime) -> str:
    """What keeps a pod whose deletion was asked for; empty if it may simply take its time."""
    assert instance.pod_obj is not None
    metadata = instance.pod_obj["metadata"]
    if instance.pod is None and metadata.get("finalizers"):
        return f"is kept by finalizers, though it has ended: {', '.join(metadata['finalizers'])}."
    if now - datetime.fromisoformat(metadata["deletionTimestamp"]) > RETURN_TIMEOUT:
        return f"should have gone at {metadata['deletionTimestamp']}. {STUCK}"
    return ""


def _recreate_broken(
    resource: RedisCluster, seen: Assessment, roll: RollingUpdate[Instance], instance: Instance
) -> Step | None:
    if _rank(seen, instance) > BROKEN:
        return None
    if _would_lose_data(resource, seen, instance):
        return roll.hold(instance, "it does not answer, and its data may be the only copy, and go with its pod.")
    return roll.recreate(instance, ", which nobody misses, is made anew.")


def _would_lose_data(resource: RedisCluster, seen: Assessment, instance: Instance) -> bool:
    """Whether data that may be the only copy would go with a pod."""
    node_id = instance.id or (instance.recorded.node_id if instance.recorded else "")
    if not resource.formed or outlives_pods(resource) or seen.lost(node_id):
        return False
    return bool(seen.view.slots_of(node_id)) or seen.is_needed(node_id)


def _rank(seen: Assessment, instance: Instance) -> int:
    """Who goes first: whom nobody misses, then replicas, masters last."""
    node = seen.view.nodes.get(instance.id)
    if node is None or node.report is None:
        return 0
    if node.is_replica:
        return 1 if not node.synced else 2
    return 3 if not seen.view.slots_of(instance.id) else 4


def _await_others(seen: Assessment, roll: RollingUpdate[Instance], now: datetime, instance: Instance) -> Step | None:
    why = _missing(seen, instance)
    if not why:
        return None
    missing = [other for other in seen.instances if other is not instance and not _is_back(seen, other)]
    if all(not outdated(seen, other) and is_returning(other, now) for other in missing):
        return roll.wait(why, requeue=GOSSIP_SECONDS)
    return roll.hold(instance, why)


def _missing(seen: Assessment, instance: Instance) -> str:
    """Who beside a pod is not there or not in step, and why; empty if all are: another one must not go meanwhile."""
    for other in seen.staying:
        if other is instance:
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
    changed = seen.pairs
    behind = [node_id for node_id, primary in changed.items() if seen.view.nodes[node_id].primary != primary]
    return f"{seen.name_of(behind[0])} is to replicate {seen.name_of(changed[behind[0]])} first." if behind else ""


def _why_missing(instance: Instance) -> str:
    if instance.pod is None:
        return f"{instance.name} has no pod."
    if instance.pod.trouble:
        return f"{instance.name} does not start: {instance.pod.trouble}"
    return (
        f"{instance.name} does not answer: {instance.error.rstrip('.')}."
        if instance.error
        else f"{instance.name} starts."
    )


def _is_back(seen: Assessment, instance: Instance) -> bool:
    node = seen.view.nodes.get(instance.id)
    return node is not None and (not node.is_replica or node.synced) and instance.ready


def _await_clients(seen: Assessment, roll: RollingUpdate[Instance], now: datetime, instance: Instance) -> Step | None:
    if seen.view.slots_of(instance.id) or not instance.is_draining(now):
        return None
    return roll.wait(f"Clients hear that {instance.name} is no master any more.", requeue=GOSSIP_SECONDS)


def _fail_over(
    resource: RedisCluster, seen: Assessment, roll: RollingUpdate[Instance], instance: Instance
) -> Step | None:
    """Recreate a primary's pod once it is none any more: a replica in sync takes over, if possible a current one."""
    view = seen.view
    if not view.slots_of(instance.id):
        return None
    failover_candidates = [
        candidate
        for candidate in view.failover_candidates(instance.id)
        if candidate.synced and not seen.reachable[candidate.id].leaving
    ]
    if (
        failover_candidates
    ):  # one at a place that is removed will do for want of another: its pod stays while it owns slots
        candidate = min(
            failover_candidates,
            key=lambda candidate: (not _stays(resource, seen, candidate), outdated(seen, seen.reachable[candidate.id])),
        )
        call = take_over(seen, candidate.id)
        return Step.wait(
            UPGRADING,
            f"{roll.goal}; {candidate.name} takes the place of {instance.name}.",
            call,
            requeue=FAILOVER_SECONDS,
        )
    # Also replicas that are to follow another, or to go: they may be elected meanwhile, and lack what it has.
    followed = dict.fromkeys(replica for replica, primary in seen.pairs.items() if primary == instance.id)
    followed |= dict.fromkeys(copy.id for copy in view.replicas_of(instance.id) if not seen.lost(copy.id))
    if followed and instance.id not in seen.primaries:
        return PASS  # it gives its slots away first
    if followed:
        names = ", ".join(seen.name_of(replica) for replica in followed)
        return roll.hold(instance, f"it is a master, and of its replicas ({names}) none is in step.")
    if not outlives_pods(resource):
        why = "it is a master without a replica, and its data would go with its pod (there is no spec.storage)."
        return roll.hold(instance, f"{why} Let spec.replicas be larger.")
    return roll.recreate(instance, " is made anew. It has no replica: its slots are not served until it is back.")


def _stays(resource: RedisCluster, seen: Assessment, node: Seen) -> bool:
    instance = seen.reachable.get(node.id)
    return instance is not None and instance.number < resource.spec.replicas and not instance.leaving
