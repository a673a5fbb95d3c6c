"""Rolling update: which pods are outdated, in which order they are recreated, and what blocks them. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from operators.redis.api.engine_versions import Engine, Version, refusal, upgrade_refusal
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.nodes import PENDING_LOG
from operators.redis.objects.names import CONTAINER
from operators.redis.objects.pod import TEMPLATE
from operators.redis.reasons import PODS_OUTDATED, ROLL_BLOCKED, VERSION_REFUSED
from operators.redis.state.instance import Instance, understands
from operators.redis.state.observed import Observed
from operators.redis.steps.failover import take_over
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.kubernetes.pods import STUCK, container_of, is_outdated
from shared.runtime.plan import PASS, Step
from shared.status.phases import CREATING, UPGRADING
from shared.steps import rolling_update
from shared.steps.rolling_update import RETURN_TIMEOUT, RollingUpdate, is_returning, may_evict, restart

BROKEN = 1
"""Highest rank of nodes that are not in sync anyway."""

_KEPT = " Replicas stay until then, for keys in memory."
"""End of messages while replicas stay that the spec removes (`keep_replicas`)."""


def outdated(seen: Observed, instance: Instance) -> bool:
    """Return whether a pod differs from the current template of the StatefulSet."""
    return is_outdated(instance.pod_obj, seen.stateful_set, TEMPLATE)


def running(seen: Assessment) -> tuple[Engine, ...]:
    """Return the engines that nodes run; if no node is reachable, as last recorded in the status."""
    report = [instance.report for instance in seen.instances if instance.report]
    engines = [Engine("valkey" if each.engine == "valkey" else "redis", Version.parse(each.version)) for each in report]
    return tuple(engines or (known.engine for known in seen.resource.recorded_nodes if known.engine))


def refused_version(seen: Assessment) -> str:
    """Return why nodes must not change to the version of the spec; empty if they may."""
    return refusal(seen.resource.engine) or upgrade_refusal(running(seen), seen.resource.engine)


def permitted(seen: Assessment) -> Assessment:
    """Return the view with the image that nodes run in the spec, if the version of the spec is refused."""
    resource = seen.resource
    if seen.stateful_set is None or not refused_version(seen):
        return seen
    lowest = min(running(seen), default=resource.engine)
    pods = sorted(seen.instances, key=lambda each: not (each.report and each.report.version == str(lowest.version)))
    made = (seen.stateful_set["spec"]["template"], *(each.pod_obj for each in pods))  # a client may rename a container
    image = next(filter(None, (container_of(each, CONTAINER).get("image") for each in made)), None)
    pod = resource.spec.template.model_copy(update={"middleware_image": image})
    update = {"pod": [pod], "version": str(lowest.version), "engine": lowest.name}
    return replace(seen, resource=resource.changed_to(update))


def refuse_new_version(seen: Assessment) -> Step:
    """Block the creation of a cluster with an unsupported version."""
    return refuse_version(seen) if seen.stateful_set is None else PASS


def refuse_version(seen: Assessment) -> Step:
    """Block a version that is unsupported or could not read the data; running nodes are not changed."""
    why = refused_version(seen)
    return Step.blocked(VERSION_REFUSED, f"spec.version: {why} Nothing was changed.") if why else PASS


def restart_broken(seen: Assessment) -> Step:
    """Recreate outdated pods whose server does not run, so that a corrected spec repairs a faulty change.

    Not if data that may be the only copy would be lost with the pod.
    """
    broken = [
        instance
        for instance in rolling_update.broken(seen.instances, partial(outdated, seen))
        if not _would_lose_data(seen, instance)
    ]
    if not broken:
        return PASS
    names = ", ".join(instance.name for instance in broken)
    message = f"Recreating {names}: the server does not run, and the pod is outdated."
    return Step.wait(UPGRADING if seen.resource.formed else CREATING, message, *map(restart, broken))


def evicts(seen: Assessment) -> bool:
    """Whether planned work evicts pods, rather than deletes them: see `may_evict`, also of the default budget."""
    spec = seen.resource.spec
    return may_evict(spec.pod_disruption_budget, spec.replicas) and not seen.lacks_copies


def roll_outdated(seen: Assessment) -> Step:
    """Recreate outdated pods one at a time: broken ones first, then replicas; a primary after a replica took over."""
    resource = seen.resource
    stale = [instance for instance in seen.staying if outdated(seen, instance)]
    if not resource.formed or not stale:
        return PASS
    roll = RollingUpdate(
        seen.instances, partial(outdated, seen), stale, UPGRADING, ROLL_BLOCKED, BLOCKED_SECONDS, evicts(seen)
    )
    if not resource.spec.rolls:
        names = ", ".join(instance.name for instance in stale)
        kept = _KEPT if resource.kept_primaries else ""
        return Step.progressing(
            PODS_OUTDATED,
            f"{roll.progress}: {names}. spec.pod[0].updateStrategy is OnDelete: delete these pods to update them."
            f"{kept}",
        )
    if leaving := [instance for instance in seen.instances if instance.leaving]:
        return _await_deletion(roll, leaving[0], seen.now)
    return roll.next(
        rank=lambda instance: (_rank(seen, instance), instance.number),
        gates=(
            partial(_recreate_broken, seen, roll),  # no other node depends on it, unless its data is the only copy
            partial(_await_others, seen, roll),  # each present, in sync and ready
            partial(_await_clients, seen, roll),  # until clients know that the node is no longer a primary
            partial(_fail_over, seen, roll),  # a primary is recreated after a replica took over
        ),
    )


def _await_deletion(roll: RollingUpdate[Instance], instance: Instance, now: datetime) -> Step:
    message = f"{roll.progress}. {instance.name} is being deleted"
    if stuck := _stuck(instance, now):
        return Step.wait(ROLL_BLOCKED, f"{message}: {stuck}", warning=True, requeue=BLOCKED_SECONDS)
    return Step.wait(UPGRADING, f"{message}.", requeue=BLOCKED_SECONDS)


def _stuck(instance: Instance, now: datetime) -> str:
    """Return what prevents the deletion of a pod; empty if it may simply need more time."""
    assert instance.pod_obj is not None
    metadata = instance.pod_obj["metadata"]
    if instance.pod is None and metadata.get("finalizers"):
        return f"the pod has ended, but finalizers remain: {', '.join(metadata['finalizers'])}."
    if now - datetime.fromisoformat(metadata["deletionTimestamp"]) > RETURN_TIMEOUT:
        return f"the deletion should have ended at {metadata['deletionTimestamp']}. {STUCK}"
    return ""


def _recreate_broken(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    if _rank(seen, instance) > BROKEN:
        return None
    if _would_lose_data(seen, instance):
        return roll.block(
            instance, "it is unreachable, and its data, which may be the only copy, would be lost with its pod."
        )
    return roll.recreate(instance, " is being recreated.")


def _would_lose_data(seen: Assessment, instance: Instance) -> bool:
    """Return whether data that may be the only copy would be lost with a pod."""
    node_id = instance.id or (instance.recorded.node_id if instance.recorded else "")
    if not seen.resource.formed or not seen.why_keys_end(instance) or seen.lost(node_id):
        return False
    return bool(seen.view.slots_of(node_id)) or seen.is_needed(node_id)


def _rank(seen: Assessment, instance: Instance) -> int:
    """Return the position in the rolling update: unreachable nodes first, then replicas, primaries last."""
    node = seen.view.nodes.get(instance.id)
    if node is None or node.report is None:
        return 0
    if node.is_replica:
        return 1 if not node.synced else 2
    return 3 if not seen.view.slots_of(instance.id) else 4


def _await_others(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    if not (why := _missing(seen, instance)):
        return None
    missing = [other for other in _others(seen, instance) if not _is_back(seen, other)]
    if all(not outdated(seen, other) and is_returning(other, seen.now) for other in missing):
        return roll.wait(why, requeue=GOSSIP_SECONDS)
    return roll.block(instance, f"{why}{_kept(seen)}")


def _kept(seen: Assessment) -> str:
    """Return why replicas stay that the spec removes, and what a user can do; empty if none stays."""
    advice = "Repair the replica, or delete the outdated pods whose keys may be lost."
    return f"{_KEPT} {advice}" if seen.resource.kept_primaries else ""


def _others(seen: Assessment, instance: Instance) -> list[Instance]:
    """Return the other instances; of replicas that only stay for a while (`keep_replicas`), those that were nodes."""
    size, others = seen.resource.obj["spec"]["replicas"], (each for each in seen.staying if each is not instance)
    return [each for each in others if each.number < size or each.recorded or each.report]


def _missing(seen: Assessment, instance: Instance) -> str:
    """Return which other node is missing or not in sync, and why; empty if none: until then no pod may be recreated."""
    for other in _others(seen, instance):
        node = seen.view.nodes.get(other.id)
        if node is None:
            return f"{other.name} {other.why_away}."
        if node.id not in seen.view.cluster:
            return f"{other.name} is not a member yet."
        if node.is_replica and not node.synced:
            return f"{other.name} is not in sync with its primary yet."
        if not other.ready:
            return f"{other.name} is not ready yet."
    changed = seen.pairs
    behind = [node_id for node_id, primary in changed.items() if seen.view.nodes[node_id].primary != primary]
    return f"{seen.name_of(behind[0])} must replicate {seen.name_of(changed[behind[0]])} first." if behind else ""


def _is_back(seen: Assessment, instance: Instance) -> bool:
    node = seen.view.nodes.get(instance.id)
    return node is not None and (not node.is_replica or node.synced) and instance.ready


def _await_clients(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    if seen.view.slots_of(instance.id) or not instance.is_draining(seen.now):
        return None
    return roll.wait(
        f"Waiting for clients to notice that {instance.name} is no longer a primary.", requeue=GOSSIP_SECONDS
    )


def _fail_over(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    """Fail over a primary before its pod is recreated: to a replica in sync, if possible one that is updated."""
    view = seen.view
    if not view.slots_of(instance.id):
        return None
    if candidate := successor_in_sync(seen, instance.id):
        call = take_over(seen, candidate.id)
        return Step.wait(
            UPGRADING,
            f"{roll.progress}; {candidate.name} is taking over from {instance.name}.",
            call,
            requeue=FAILOVER_SECONDS,
        )
    # Also replicas that change their primary or are removed: they may be elected before, without all of its data.
    followed = dict.fromkeys(replica for replica, primary in seen.pairs.items() if primary == instance.id)
    followed |= dict.fromkeys(copy.id for copy in view.replicas_of(instance.id) if not seen.lost(copy.id))
    if followed and instance.id not in seen.primaries:
        return PASS  # its slots move away first
    if followed:
        names = ", ".join(seen.name_of(replica) for replica in followed)
        return roll.block(instance, f"it is a primary, and none of its replicas ({names}) is in sync.{_kept(seen)}")
    if not (why := seen.why_keys_end(instance)):
        how = " is being recreated. It has no replica: its slots are not served until it is back."
        return roll.recreate(instance, how)
    without = [each for each in seen.instances if each.report and not each.report.has_log]
    others = [each.name for each in without if not understands(seen.resource, each)]
    expects = seen.slot_plan.moves or seen.resource.spec.replicas_per_master or instance.id not in seen.primaries
    if (expects or (seen.awaits_log and not others)) and _can_read_moved(seen):
        return PASS  # slots move, or replicas join; or `apply_config` reports the files that servers begin
    if why == PENDING_LOG:
        return roll.wait(f"Waiting for {instance.name} to write its append-only file.", requeue=SYNC_SECONDS)
    advice = "Increase spec.replicas, with replicasPerMaster 1; or, if its keys may be lost, delete the pod."
    if seen.awaits_log:
        advice = f"Revert spec.version until all have an append-only file: {', '.join(others)} cannot begin it before."
    stays = " Slots stay until then: an older version cannot read keys of a newer one." if seen.slot_plan.moves else ""
    why = f"it is a primary without a replica, and its data would be lost with its pod ({why}). {advice}{stays}"
    return roll.block(instance, why)


def _can_read_moved(seen: Assessment) -> bool:
    """Return whether no slot is to move to a server of an older version."""
    at = {node_id: Version.parse(each.report.version) for node_id, each in seen.reachable.items() if each.report}
    moves = [(at.get(each.source), at.get(each.target)) for each in seen.slot_plan.moves]
    return all(source and target and source <= target for source, target in moves)


def successor_in_sync(seen: Assessment, primary: str) -> Seen | None:
    """Return the replica to take over from a reachable primary without a loss; None if none is in sync and stays.

    One that is being removed is the last choice, and its pod stays while it owns slots.
    """
    candidates = [
        candidate
        for candidate in seen.view.failover_candidates(primary)
        if candidate.synced and not seen.reachable[candidate.id].leaving
    ]
    return min(
        candidates,
        key=lambda candidate: (not _stays(seen, candidate), outdated(seen, seen.reachable[candidate.id])),
        default=None,
    )


def _stays(seen: Assessment, node: Seen) -> bool:
    instance = seen.reachable.get(node.id)
    return instance is not None and instance.number < seen.resource.spec.replicas and not instance.leaving
