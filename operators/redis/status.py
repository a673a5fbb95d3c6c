"""What is said of a RedisCluster: its status, from what was seen. Pure.

A healthy cluster's status does not move: nothing that moves by itself, such as keys, offsets and memory, is in it. Of
a node that does not answer, what was last told stays, for it is what the operator goes by.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from operators.redis import migration_status
from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.server import PORT
from operators.redis.instance import Instance
from operators.redis.objects import names
from operators.redis.objects.names import COMPONENT
from operators.redis.reasons import JOINING, NOT_ANSWERING, SERVING, STARTING, SYNCING
from operators.redis.settings import Settings
from operators.redis.steps import data_loss_recovery
from operators.redis.steps.availability import serves
from operators.redis.steps.bootstrap_plan import planned
from operators.redis.steps.rolling_update import running
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import selector_text
from shared.status.verdict import Verdict


def report(
    settings: Settings, resource: RedisCluster, seen: Assessment, now: datetime, phase: str, verdict: Verdict
) -> Obj:
    """The whole status, but Ready, Reconciling and Stalled."""
    begun = seen.has_formed and not data_loss_recovery.restarts_empty(resource, seen)
    found: dict[str, Any] = {
        "phase": phase,
        "reason": "" if verdict.done else verdict.message,
        "replicas": sum(1 for instance in seen.instances if instance.pod),
        "readyReplicas": sum(1 for instance in seen.instances if serves(seen, instance)),
        "masters": sum(1 for primary in seen.view.primaries if primary.answers),
        "conditions": [
            node_condition(resource, seen, instance, now) for instance in seen.instances if _is_reported(seen, instance)
        ],
        "formed": begun,
        "forming": [
            {"name": node.name, "nodeId": node.node_id, "epoch": node.epoch, "slots": node.slots}
            for node in (() if begun else planned(seen))
        ],
        "shards": _shards(resource, seen),
        "migration": migration_status.progress(seen, now),
        "assigned": migration_status.assigned(seen),
        "former": _former(resource, seen) if begun and not verdict.done else None,
        "recovery": data_loss_recovery.report(resource, seen),
        "version": _version(resource, seen),
        "image": resource.image_reference(settings.image_repository),
        "selector": selector_text(names.owner(resource, settings.operator).selector(COMPONENT)),
        "endpoints": [
            f"{names.host(resource, instance.name)}:{PORT}" for instance in seen.instances if serves(seen, instance)
        ],
    }
    return {name: value for name, value in found.items() if value is not None}


def node_condition(resource: RedisCluster, seen: Assessment, instance: Instance, now: datetime) -> Obj:
    """The entry of one node: as the seed has it, and on which disk it is."""
    before, known = _entry(resource, instance), seen.node_to_record(instance)
    reason, message = _doing(seen, instance)
    entry: dict[str, Any] = {
        "name": instance.name,
        "instance": f"{instance.pod.address}:{PORT}" if instance.pod and instance.pod.address else None,
        "nodeId": known[0] if known else None,
        "domainName": names.domain_name(resource, instance.name),
        "hostname": instance.host or None,
        "hostIP": ((instance.pod_obj or {}).get("status") or {}).get("hostIP"),
        "status": str(serves(seen, instance)),
        "reason": str(reason),
        "message": message,
        "disk": known[1] if known else None,
        "version": f"{instance.report.engine} {instance.report.version}" if instance.report else before.get("version"),
        **_role(seen, before, known[0] if known else ""),
    }
    same = all(before.get(field) == entry[field] for field in ("type", "status"))
    entry["lastTransitionTime"] = (before.get("lastTransitionTime") if same else None) or f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return {name: value for name, value in entry.items() if value is not None}


def _role(seen: Assessment, before: Obj, node_id: str) -> Obj:
    """What a node is to the others; of one that no node knows, what the status said before, if it is the same node."""
    role: Obj = {name: before.get(name) for name in ("masterNodeId", "slots", "copyOf")}
    role["type"] = before.get("type", "master")
    if node_id and before.get("nodeId") != node_id:
        role = {"type": "master", "masterNodeId": node_id, "slots": None, "copyOf": None}
    if (node := seen.view.nodes.get(node_id)) is not None:
        role["type"] = "slave" if node.is_replica else "master"
        role["masterNodeId"] = node.primary or node.id
        role["slots"] = str(seen.view.slots_of(node.id)) or None
        role["copyOf"] = node.primary if node.synced else role["copyOf"]
    return role


def _former(resource: RedisCluster, seen: Assessment) -> list[Obj] | None:
    """Nodes that are written down for no place any more, until all are there again: one that was away when the others
    forgot them brings them back, and they are not to be taken for somebody else's.
    """
    former = dict(resource.former_nodes)
    for instance in seen.instances:
        known = seen.node_to_record(instance)
        if instance.recorded and (known is None or known[0] != instance.recorded.node_id):
            former[instance.recorded.node_id] = instance.name
    return [{"name": name, "nodeId": node_id} for node_id, name in former.items()] or None


def _entry(resource: RedisCluster, instance: Instance) -> Obj:
    """What was last told of a place; empty if nothing was."""
    told = resource.reported.get("conditions") or ()
    return next((entry for entry in told if entry.get("name") == instance.name), {})


def _is_reported(seen: Assessment, instance: Instance) -> bool:
    return instance.pod is not None or seen.node_to_record(instance) is not None


def _doing(seen: Assessment, instance: Instance) -> tuple[str, str]:
    """What a node is doing, and for people, why it does not serve."""
    if serves(seen, instance):
        return SERVING, ""
    if instance.pod is None or instance.pod.trouble:
        why = instance.pod.trouble if instance.pod else "There is no pod."
        return (why.partition(":")[0] if instance.pod else "NoPod"), why
    if instance.report is None:
        return (NOT_ANSWERING, instance.error) if instance.ready and instance.error else (STARTING, "")
    if instance.report.loading:
        return STARTING, "It reads its data."
    node = seen.view.nodes[instance.id]
    if node.is_replica:
        return SYNCING, f"It gets what {seen.name_of(node.primary)} has."
    return JOINING, "It owns no slots."


def _shards(resource: RedisCluster, seen: Assessment) -> list[Obj]:
    """Masters and their replicas, by place; as last told where nobody answers."""
    if not seen.reachable:
        return list(resource.reported.get("shards") or ())
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


def _version(resource: RedisCluster, seen: Assessment) -> str | None:
    lowest = min(running(resource, seen), default=None)
    return str(lowest) if lowest else resource.reported.get("version")
