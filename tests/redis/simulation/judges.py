"""Judges of what the operator claims: the status of a RedisCluster, and the owners of its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes import accessors
from shared.kubernetes.kinds import EVENT, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, NAME
from shared.status import conditions
from simulator.redis.node import ALL

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis
    from simulator.redis.process import Process


def judge_status(redis: SimulatedRedis, found: Obj) -> None:
    """Judge a status as data: each value must be true of the servers.

    Raises:
        AssertionError: a value is not true.
    """
    status, cluster = found.get("status") or {}, found["metadata"]["name"]
    servers = {process.pod: process for process in redis.running if process.cluster == cluster}
    nodes = {entry["name"]: entry for entry in status.get("nodes") or ()}
    ready = accessors.is_true(found, conditions.READY)
    if redis.cut_off or redis.hidden & servers.keys():
        assert not ready, f"Ready is True, though the operator does not reach {', '.join(sorted(redis.hidden))}"
    if accessors.is_true(found, conditions.AVAILABLE):
        missing = ALL & ~_available(redis, cluster)
        assert not missing, f"Available is True, though no server serves slots {Slots(missing)}"
    if "nodes" in redis.unknown_fields:
        return
    serve = {name: entry for name, entry in nodes.items() if entry["status"] == "True"}
    if all(entry["status"] != "Unknown" for entry in nodes.values()):  # otherwise it is the last known number
        assert status.get("readyReplicas", 0) == len(serve), f"readyReplicas {status.get('readyReplicas')} of {nodes}"
    for name, entry in serve.items():
        assert name in servers, f"status.nodes of {name} is True, though no server runs"
        _judge_serving(redis, servers[name], entry)
    owned = redis.owners(cluster)
    _judge_roles(_reached(redis, servers, owned), owned, nodes)
    if not ready:
        return
    assert len(nodes) == found["spec"]["replicas"], f"Ready is True with nodes {sorted(nodes)}"
    assert serve.keys() == servers.keys(), f"Ready is True with nodes {sorted(serve)}, and servers {sorted(servers)}"
    missing = ALL
    for mask in owned.values():
        missing &= ~mask
    assert not missing, f"Ready is True, though no node owns slots {Slots(missing)}"
    _judge_roles(servers, owned, nodes)
    shards = {each["master"]: (Slots.parse(each["slots"]).mask, {*each["replicas"]}) for each in status["shards"]}
    assert shards == {
        pod: (owned[process.node.id], {other.pod for other in redis.replicas_of(process)})
        for pod, process in servers.items()
        if process.node.id in owned
    }, f"status.shards: {status['shards']}"
    assert status["masters"] == len(shards), f"{status['masters']} primaries are reported"


def _judge_roles(servers: Mapping[str, Process], owned: Mapping[str, int], nodes: Mapping[str, Obj]) -> None:
    """Judge the role and the slots of each node that runs on one of these servers."""
    for name, entry in nodes.items():
        node = servers[name].node if name in servers else None
        if node is None or entry.get("nodeId") != node.id:
            continue
        reported, slots = entry.get("slots") or "", Slots(owned.get(node.id, 0))
        assert Slots.parse(reported) == slots, f"status.nodes of {name}: slots {reported or 'none'} instead of {slots}"
        assert (entry["role"] in ("slave", "replica")) == bool(node.me.primary), f"{name} is no {entry['role']}"


def _reached(redis: SimulatedRedis, servers: Mapping[str, Process], owned: Mapping[str, int]) -> Mapping[str, Process]:
    """Return the servers that the operator reaches, whose roles it therefore knows; none if these are not certain.

    Without a majority of the primaries, the present owners may be among the others: the status keeps what it had. And
    while servers learn of a change, the operator may have observed the time before it.
    """
    found = {pod: each for pod, each in servers.items() if not redis.cut_off and pod not in redis.hidden}
    views = {
        tuple(sorted((other.id, other.slots, other.primary) for other in each.node.known.values()))
        for each in found.values()
    }
    voters = owned.keys() & {each.node.id for each in found.values()}
    return found if len(views) == 1 and 2 * len(voters) > len(owned) else {}


def _available(redis: SimulatedRedis, cluster: str) -> int:
    """Return the slots that primaries serve; while the operator reaches no server, the slots of those that listen.

    Only the kubelet reports on servers then, and the readiness probe only connects. Redis accepts connections also with
    cluster_state:fail (processCommand in server.c answers CLUSTERDOWN), and the kernel does so for a server that hangs.
    """
    servers = [each for each in redis.processes.values() if each.cluster == cluster and not each.exit_message]
    is_reached = not redis.cut_off and any(each.runs and each.pod not in redis.hidden for each in servers)
    found = 0
    for each in servers:
        counts = (each.runs and each.serves) or not is_reached
        found |= each.node.me.slots if counts and not each.node.me.primary else 0
    return found


def _judge_serving(redis: SimulatedRedis, process: Process, entry: Obj) -> None:
    """Judge the entry of a node that serves clients: its identity, and that a replica is in sync with its primary.

    An operator that does not reach the primary cannot know where the link of the replica leads. The replica counts as
    before then (`availability.serves`).
    """
    name, node = process.pod, process.node
    assert entry["nodeId"] == node.id, f"status.nodes of {name} has another node id"
    assert entry["address"] == f"{process.address}:{process.port}", f"status.nodes of {name}: {entry['address']}"
    assert process.disk.endswith(entry["disk"]), f"status.nodes of {name} has disk {entry['disk']}"
    hidden = {other.node.id for other in redis.running if redis.cut_off or other.pod in redis.hidden}
    if not node.me.primary or node.me.primary in hidden:
        return
    end = redis.at(*process.source)
    assert entry.get("primaryId") == node.me.primary, f"status.nodes of {name} has another primary"
    assert end is not None, f"{name} is reported as synced, though no server is at {process.source}"
    assert end.node.id == node.me.primary, f"{name} is reported as synced, though it is connected to {end.pod}"
    assert process.linked, f"{name} is reported as synced, though it is not linked"
    assert entry.get("inSync") == "True", f"status.nodes of {name}: inSync {entry.get('inSync')}, though it serves"
    assert entry.get("copyOf") == node.me.primary, f"status.nodes of {name}: copyOf {entry.get('copyOf')}"


def judge_owners(found: Obj, objects: Iterable[tuple[Kind, Obj]]) -> None:
    """Judge the owners of the objects of a resource that is ready: they decide what is deleted with it.

    Raises:
        AssertionError: an object has other owners than that of a fresh resource with this spec.
    """
    objects, name, spec = [*objects], found["metadata"]["name"], found["spec"]
    workload = next((obj for kind, obj in objects if (kind, obj["metadata"]["name"]) == (STATEFUL_SET, name)), None)
    resource = None if spec.get("finalizers") == "" else found
    deletes = resource is not None and not (spec.get("storage") or {}).get("retain", True)
    own = {each["metadata"]["uid"] for each in (found, workload) if each}
    owners = {POD: workload, PERSISTENT_VOLUME_CLAIM: workload if deletes else None}
    for kind, obj in objects:
        labels, listed = obj["metadata"].get("labels") or {}, obj["metadata"].get("ownerReferences") or []
        if kind == EVENT or (labels.get(INSTANCE), labels.get(NAME)) != (name, "redis"):
            continue
        owner = owners.get(kind, resource)
        expected = [owner["metadata"]["uid"]] if owner else []
        if any(each.get("controller") and each["uid"] not in own for each in listed):
            continue  # an object of another owner
        assert [each["uid"] for each in listed] == expected, (
            f"{kind} {obj['metadata']['name']} has owners {[(each['kind'], each['name']) for each in listed]}, a fresh "
            f"one {[owner['kind']] if owner else []}"
        )
