"""The status of a RedisCluster, from the observed state. Pure.

The status of a healthy cluster does not change: it has no values that change by themselves, such as keys, offsets
and memory. Entries of unreachable nodes keep their last values, because the operator depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from operators.redis.api.node_entries import POD_NOT_READY, PRIMARY_ROLE, REPLICA_ROLE, as_conditions, out_of_sync_since
from operators.redis.api.status import job_entries, move_entries
from operators.redis.client.server import PORT
from operators.redis.facts import migration_status
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names
from operators.redis.objects.names import COMPONENT
from operators.redis.reasons import JOINING, REPLICATING_ELSEWHERE, SERVING, STARTING, SYNCING
from operators.redis.report import foreign_slots
from operators.redis.state.instance import Instance
from operators.redis.steps import (
    adoption,
    connection_secret,
    data_loss_recovery,
    placement,
    replication_link,
    spec_users,
)
from operators.redis.steps.availability import serves
from operators.redis.steps.bootstrap_plan import planned
from operators.redis.steps.rolling_update import outdated, running
from operators.redis.topology.cluster_view import Seen
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.addresses import host_port
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import selector_text
from shared.status.messages import settled
from shared.status.progress import Work
from shared.status.reasons import HIBERNATED, NOT_ANSWERING
from shared.status.verdict import Verdict
from shared.steps import connection
from shared.steps.hibernation import is_stopped


def report(seen: Assessment, phase: str, verdict: Verdict) -> Obj:
    """Return the status without the conditions that every kind has (`shared.status.conditions`)."""
    resource = seen.resource
    own = names.owner(resource, seen.settings.operator)
    known = seen.view.nodes  # the journal removes jobs that succeeded; others stay until their node is forgotten
    begun = seen.has_formed and not data_loss_recovery.restarts_empty(seen)
    found: dict[str, Any] = {
        "phase": phase,
        "reason": "" if verdict.done else verdict.message,
        "replicas": sum(1 for instance in seen.instances if instance.pod),
        "readyReplicas": sum(1 for instance in seen.instances if _may_serve(seen, instance)),
        "masters": sum(1 for node_id in seen.service.owners if _is_up(seen, node_id)),
        "nodes": [node_entry(seen, each) for each in seen.instances if each.pod or seen.node_to_record(each)],
        "nodesInConditions": resource.began_with_conditions or None,
        "formed": begun,
        "forming": [
            {"name": node.name, "nodeId": node.node_id, "epoch": node.epoch, "slots": node.slots}
            for node in (() if begun else planned(seen))
        ],
        "shards": _shards(seen),
        "migration": migration_status.progress(seen),
        "assigned": migration_status.assigned(seen),
        "moves": move_entries(seen.begun_moves) if resource.formed else [],  # the journal adds others
        "jobs": job_entries(each for each in resource.recorded_jobs if not known or each.node in known) or None,
        "foreign": [{"nodeId": each, "slots": str(on)} for each, on in sorted(seen.foreign.items()) if on] or None,
        "placement": _attempt(seen),
        "former": _former(seen) if begun and not verdict.done else None,
        "recovery": data_loss_recovery.report(seen),
        "users": spec_users.report(seen),
        "version": _version(seen),
        "image": resource.image_reference(seen.settings.image_repository),
        "selector": selector_text(own.selector(COMPONENT)),
        "endpoints": _endpoints(seen),
    }
    found |= adoption.report(seen)
    present = connection_secret.connection(seen)
    found |= connection.status(own, COMPONENT, present, seen.connection, resource.reported)
    in_conditions = as_conditions(found["nodes"]) if resource.has_nodes_in_conditions else []
    found["conditions"] = [*foreign_slots.conditions(seen), *in_conditions]
    return {name: value for name, value in found.items() if value is not None}


def work(seen: Assessment) -> Iterator[Work]:
    """Yield the nodes that do not serve yet, the pods of an earlier template, and the slots that have to move."""
    serving = sum(1 for instance in seen.staying if _may_serve(seen, instance))
    yield Work("Nodes", serving, seen.resource.spec.replicas)
    pods = [instance for instance in seen.instances if instance.pod]
    yield Work("Pods", sum(not outdated(seen, instance) for instance in pods), len(pods))
    if moving := migration_status.progress(seen):
        yield Work("Slots", moving["moved"], moving["slots"], datetime.fromisoformat(moving["since"]))


def _endpoints(seen: Assessment) -> list[str]:
    """Return the endpoints of the nodes that serve; that of a node stays while only the operator cannot reach it."""
    before = seen.resource.reported.get("endpoints") or ()
    found = ((instance, f"{names.host(seen.resource, instance.name)}:{PORT}") for instance in seen.instances)
    return [url for instance, url in found if serves(seen, instance) or (_is_unknown(seen, instance) and url in before)]


def _is_unknown(seen: Assessment, instance: Instance) -> bool:
    """Whether it is unknown if a node serves.

    Only the operator cannot reach it: the kubelet reports it as ready, and no majority as failed. Or its recorded role
    stays (`_role`), although it reports another one.
    """
    known = instance.recorded
    if known is None or seen.lost(known.node_id):
        return False
    node = seen.view.nodes.get(known.node_id)
    if instance.report is not None:
        return (
            node is not None
            and _keeps_role(seen, node)
            and _has_another_role(node, seen.entries.get(instance.name, {}))
        )
    return instance.is_out_of_reach and (node is None or not node.failing)


def _keeps_role(seen: Assessment, node: Seen) -> bool:
    """Whether the recorded role of a node stays: while no majority of the primaries answers, it may be outdated."""
    return (seen.resource.formed and not seen.view.can_elect) or seen.missed_takeover(node.id)


def _has_another_role(node: Seen, before: Obj) -> bool:
    copies = before.get("copyOf") if node.synced else node.primary
    return (before.get("primaryId") or "", copies) != (node.primary, node.primary)


def _may_serve(seen: Assessment, instance: Instance) -> bool:
    """Whether a node serves clients, or only the operator cannot reach it."""
    return serves(seen, instance) or _is_unknown(seen, instance)


def _is_up(seen: Assessment, node_id: str) -> bool:
    """Whether a node answers, or only the operator cannot reach it."""
    instance = seen.instance_of(node_id)
    return node_id in seen.reachable or (instance is not None and _is_unknown(seen, instance))


def _attempt(seen: Assessment) -> Obj | None:
    """Return the failover that spreads the primaries, which is recorded before it is requested."""
    found = placement.attempt(seen)
    if found is None:
        return None
    return {"from": found.source, "to": found.target, "since": rfc3339(found.since)}


def node_entry(seen: Assessment, instance: Instance) -> Obj:
    """Return the entry of one node, with its volume."""
    before, known = seen.entries.get(instance.name, {}), seen.node_to_record(instance)
    node_id, disk = known or (None, None)
    reason, message = _doing(seen, instance)
    node = seen.view.nodes.get(node_id or "")
    entry: dict[str, Any] = {
        "name": instance.name,
        "status": "Unknown" if _is_unknown(seen, instance) else str(serves(seen, instance)),
        "reason": str(reason),
        "message": settled(message, before.get("message") or "" if before.get("reason") == reason else ""),
        "nodeId": node_id,
        "flags": list(node.flags) or None if node else None,
        "address": host_port(instance.pod.address, PORT) if instance.pod and instance.pod.address else None,
        "domainName": names.domain_name(seen.resource, instance.name),
        "host": instance.location.host or None,
        "hostIP": ((instance.pod_obj or {}).get("status") or {}).get("hostIP"),
        "zone": instance.location.zone or None,
        "disk": disk,
        "version": f"{instance.report.engine} {instance.report.version}" if instance.report else before.get("version"),
        **_role(seen, before, node_id),
    }
    if entry["role"] == REPLICA_ROLE:
        is_synced = node is not None and node.synced
        # A link to a primary that does not answer proves nothing, nor does a node that only the operator cannot reach.
        is_unknown = entry["status"] == "Unknown" or (node and node.connected and not (node.primary_at or node.astray))
        since = None if is_synced else out_of_sync_since(before) or (None if is_unknown else rfc3339(seen.now))
        entry |= {"outOfSyncSince": since, "inSync": "False" if since else "True" if is_synced else "Unknown"}
    same = all(before.get(field) == entry[field] for field in ("role", "status"))
    entry["lastTransitionTime"] = (before.get("lastTransitionTime") if same else None) or rfc3339(seen.now)
    return {name: value for name, value in entry.items() if value is not None}


def _role(seen: Assessment, before: Obj, node_id: str | None) -> Obj:
    """Return the role of a node; the recorded one of the same node, if no other node knows better.

    And while no majority of the primaries answers: reachable ones may be outdated, and the present owners lost.
    """
    node = seen.view.nodes.get(node_id or "")
    if node_id and before.get("nodeId") != node_id:
        before = {}
    if node is None or (before and _keeps_role(seen, node)) or seen.missed_takeover(node.id):
        kept = _COPY if node is None or not node.may_have_other_data else ()
        recorded = {name: before.get(name) for name in ("primaryId", "slots", *kept)}
        return recorded | {"role": before.get("role", PRIMARY_ROLE)}
    return {
        "role": REPLICA_ROLE if node.is_replica else PRIMARY_ROLE,
        "primaryId": node.primary or None,
        "slots": str(seen.view.slots_of(node.id) | seen.last_owned(node.id)) or None,
        **_copy(node, before),
    }


_COPY = "copyOf", "copyHasKeys"


def _copy(node: Seen, before: Obj) -> Obj:
    """Return whose data a node has; a record ends when other data may have replaced it.

    A primary has the data of the one that it took over from. Once it is replaced itself, it has its own until it is in
    sync.
    """
    if node.synced:
        return {"copyOf": node.primary, "copyHasKeys": bool(node.report and node.report.keys) or None}
    if node.is_primary and before.get("role") == REPLICA_ROLE:
        return {"copyOf": before.get("primaryId")}
    if node.is_replica and before.get("role") == PRIMARY_ROLE:
        return {"copyOf": node.id if not node.may_have_other_data else None}
    return {} if node.may_have_other_data else {name: before.get(name) for name in _COPY}


def _former(seen: Assessment) -> list[Obj] | None:
    """Return nodes that are no longer recorded for an instance, until all instances are complete: a node that was
    unreachable when the others forgot them brings them back, and they must not count as unknown nodes.
    """
    former = dict(seen.resource.former_nodes)
    for instance in seen.instances:
        known = seen.node_to_record(instance)
        if instance.recorded and (known is None or known[0] != instance.recorded.node_id):
            former[instance.recorded.node_id] = instance.name
    return [{"name": name, "nodeId": node_id} for node_id, name in former.items()] or None


NO_POD = "The pod does not exist."


def _doing(seen: Assessment, instance: Instance) -> tuple[str, str]:
    """Return the reason and the message of a node: why it does not serve."""
    if serves(seen, instance):
        return SERVING, ""
    if instance.pod is None and is_stopped(seen):
        return HIBERNATED, "The pod is stopped, and its volume is kept."
    if instance.pod is None or instance.pod.problem:
        no_pod = f"The pod {instance.hidden}." if instance.hidden else NO_POD
        return (instance.pod.problem_reason, instance.pod.problem) if instance.pod else ("NoPod", no_pod)
    if instance.report is None:
        return (NOT_ANSWERING, instance.error) if instance.ready and instance.error else (STARTING, "")
    if instance.report.loading:
        return STARTING, "Loading data."
    node = seen.view.nodes[instance.id]
    if node.synced or seen.view.slots_of(node.id):
        return STARTING, POD_NOT_READY
    if node.astray:
        return REPLICATING_ELSEWHERE, replication_link.problem(seen, node)
    if node.is_replica:
        return SYNCING, f"Syncing with {seen.name_of(node.primary)}."
    return JOINING, "The node owns no slots."


def _shards(seen: Assessment) -> list[Obj]:
    """Return the primaries and their replicas, in order of their names; the recorded ones if no node is reachable."""
    if not seen.reachable:
        return list(seen.resource.reported.get("shards") or ())
    view = seen.view
    shards = [
        {
            "master": seen.name_of(primary.id),
            "slots": str(view.slots_of(primary.id)),
            "replicas": sorted((seen.name_of(replica.id) for replica in view.replicas_of(primary.id)), key=_natural),
        }
        for primary in view.primaries
    ]
    return sorted(shards, key=lambda shard: _natural(str(shard["master"])))


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdecimal() else (name, -1)


def _version(seen: Assessment) -> str | None:
    lowest = min(running(seen), default=None)
    return str(lowest) if lowest else seen.resource.reported.get("version")
