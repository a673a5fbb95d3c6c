"""Judges of what the operator claims: the status of a RedisCluster, and the owners of its objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes import accessors
from shared.kubernetes.kinds import EVENT, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ownership import INSTANCE
from shared.status import conditions
from tests.unit.redis.simulation.node import ALL

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis


def judge_status(redis: FakeRedis, found: Obj) -> None:
    """Judge a status as data: each value must be true of the servers.

    Raises:
        AssertionError: a value is not true.
    """
    status, cluster = found.get("status") or {}, found["metadata"]["name"]
    servers = {process.pod: process for process in redis.running if process.cluster == cluster}
    hides = redis.cut_off or bool(redis.hidden & servers.keys())
    if accessors.is_true(found, conditions.AVAILABLE) and not hides:
        serving = 0
        for process in servers.values():
            serving |= process.node.me.slots if process.serves and not process.node.me.primary else 0
        assert serving == ALL, f"Available is True, though no server serves slots {Slots(ALL & ~serving)}"
    if not accessors.is_true(found, conditions.READY):
        return
    assert not hides, f"Ready is True, though the operator does not reach {', '.join(sorted(redis.hidden))}"
    owned = redis.owners(cluster)
    nodes = {entry["name"]: entry for entry in status["nodes"]}
    assert len(nodes) == found["spec"]["replicas"], f"Ready is True with nodes {sorted(nodes)}"
    assert nodes.keys() == servers.keys(), f"Ready is True with nodes {sorted(nodes)}, and servers {sorted(servers)}"
    assert status["readyReplicas"] == found["spec"]["replicas"], f"readyReplicas {status['readyReplicas']}"
    for name, entry in nodes.items():
        process = servers[name]
        node = process.node
        assert entry["nodeId"] == node.id, f"status.nodes of {name} has another node id"
        assert entry["address"] == f"{process.address}:{process.port}", f"status.nodes of {name}: {entry['address']}"
        assert process.disk.endswith(entry["disk"]), f"status.nodes of {name} has disk {entry['disk']}"
        assert Slots.parse(entry.get("slots") or "").mask == owned.get(node.id, 0), f"status.nodes of {name}: slots"
        assert (entry["role"] in ("slave", "replica")) == bool(node.me.primary), f"{name} is no {entry['role']}"
        if not node.me.primary:
            continue
        end = redis.at(*process.source)
        assert entry.get("primaryId") == node.me.primary, f"status.nodes of {name} has another primary"
        assert end is not None, f"Ready is True, though {name} is connected to {process.source}, where no server is"
        assert end.node.id == node.me.primary, f"Ready is True, though {name} is connected to {end.pod}"
        assert process.linked, f"Ready is True, though {name} is not synced"
        assert entry.get("copyOf") == node.me.primary, f"status.nodes of {name}: copyOf {entry.get('copyOf')}"
    missing = ALL
    for mask in owned.values():
        missing &= ~mask
    assert not missing, f"Ready is True, though no node owns slots {Slots(missing)}"


def judge_owners(found: Obj, objects: Iterable[tuple[Kind, Obj]]) -> None:
    """Judge the owners of the objects of a resource that is ready: they decide what is deleted with it.

    Raises:
        AssertionError: an object has other owners than that of a fresh resource with this spec.
    """
    objects, name, spec = [*objects], found["metadata"]["name"], found["spec"]
    by_kind = {kind.name: obj for kind, obj in objects if obj["metadata"]["name"] == name}
    workload, resource = by_kind[STATEFUL_SET.name], None if spec.get("finalizers") == "" else found
    deletes = resource is not None and not (spec.get("storage") or {}).get("retain", True)
    owners = {POD: workload, PERSISTENT_VOLUME_CLAIM: workload if deletes else None}
    for kind, obj in objects:
        if kind == EVENT or (obj["metadata"].get("labels") or {}).get(INSTANCE) != name:
            continue
        owner = owners.get(kind, resource)
        expected = [owner["metadata"]["uid"]] if owner else []
        listed = obj["metadata"].get("ownerReferences") or []
        assert [each["uid"] for each in listed] == expected, (
            f"{kind} {obj['metadata']['name']} has owners {[(each['kind'], each['name']) for each in listed]}, a fresh "
            f"one {[owner['kind']] if owner else []}"
        )
