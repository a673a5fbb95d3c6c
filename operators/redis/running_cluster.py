"""The cluster as it runs: the state that is healed while the spec is paused, invalid or not applied. Pure."""

from __future__ import annotations

from dataclasses import replace

from operators.redis.api.resource import RedisCluster
from operators.redis.api.spec import MAX_REPLICAS
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import redis_conf
from operators.redis.objects.names import is_foreign
from operators.redis.state.instance import Instance
from operators.redis.state.observed import ConfigTemplate
from operators.redis.steps.rolling_update import outdated
from shared.api import applied_spec
from shared.kubernetes import ordinals
from shared.kubernetes.kinds import Obj


def as_it_runs(seen: Assessment, /) -> Assessment:
    """Return the cluster with its present size and settings, instead of the spec's, and without foreign data."""
    running = _without_foreign(seen)
    if running.config != ConfigTemplate() or running.applied_config is not running.config_map:
        running = replace(running, config=ConfigTemplate(), config_map=running.applied_config)
    resource = _with_present_settings(_at_present_size(running), running.config_map)
    return running if resource is running.resource else replace(running, resource=resource)


def keep_replicas(seen: Assessment, /) -> Assessment:
    """Return the view with the present pods and primaries while outdated pods have keys that are only in memory.

    Replicas that the spec removes take over from them first. A StatefulSet without this spec may have other pods soon.
    Before the first restart, empty members are new primaries. Later they may be replicas that restarted without data.
    """
    resource, made, view = seen.resource, seen.stateful_set, seen.view
    follows = any(node.is_replica for node in view.members)
    if not resource.formed or made is None or resource.spec.replicas_per_master or not follows:
        return seen
    rolls = any(outdated(seen, each) for each in seen.instances)
    is_applied = applied_spec.note(resource).items() <= (made["metadata"].get("annotations") or {}).items()
    if not seen.only_in_pods or (is_applied and not rolls):
        return seen
    new = {move.target for move in seen.begun_moves} | {move.target for move in seen.pending_assignments}
    new |= {each.id for each in seen.instances if each.is_blank and not rolls}
    kept = resource.changed_to({"replicas": max(seen.decided_replicas, resource.spec.replicas)})
    return replace(seen, resource=replace(kept, kept_primaries=len(view.owned.keys() | (new & view.cluster))))


def _without_foreign(seen: Assessment) -> Assessment:
    """Return the observed state without objects of another cluster.

    The recorded node of such an instance stays known. It counts as unreachable, which is no evidence of lost data.
    """
    resource, made = seen.resource, seen.stateful_set
    objects = (made, *(instance.volume for instance in seen.instances))
    if not any(obj is not None and is_foreign(resource, obj) for obj in objects):
        return seen

    def own(instance: Instance) -> Instance:
        # A pod belongs to its StatefulSet, but a node belongs to the volume that has its data.
        holder = instance.volume or made
        if holder is None or not is_foreign(resource, holder):
            return instance
        return Instance(instance.number, instance.name, recorded=instance.recorded)

    own_set = None if made is None or is_foreign(resource, made) else made
    return replace(seen, stateful_set=own_set, instances=tuple(map(own, seen.instances)))


def _at_present_size(seen: Assessment) -> RedisCluster:
    """Return the resource with as many pods and primaries as there are.

    No recorded node counts as removed, because the spec that would remove it is not applied.
    """
    resource = seen.resource
    known = [instance.number + 1 for instance in seen.instances if instance.recorded]
    replicas = max([ordinals.replicas(seen.stateful_set, MAX_REPLICAS), *known])
    primaries = sum(1 for node in resource.recorded_nodes if node.slots)
    if not replicas or not primaries or (replicas, primaries) == (resource.spec.replicas, resource.primaries):
        return resource
    update = {"replicas": replicas, "replicas_per_master": max(replicas // primaries - 1, 0)}
    return resource.changed_to(update)


def _with_present_settings(resource: RedisCluster, config_map: Obj | None) -> RedisCluster:
    """Return the resource with the settings of the file that nodes read when they start."""
    if config_map is None:
        return resource
    settings = {name: redis_conf.joined(lines) for name, lines in redis_conf.present(config_map).items()}
    if settings == resource.spec.config:
        return resource
    return resource.changed_to({"config": settings})
