"""The operator's observation of the abstract world (`abstract.World`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import EndpointStatus, Members
from operators.etcd.objects import names
from operators.etcd.observe import with_members
from operators.etcd.state.empty_directory import MIN_APART, EmptyStarts
from operators.etcd.state.observed import Instance, Observed
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from tests.etcd.unit.world import CLUSTER_ID, NOW, UID

if TYPE_CHECKING:
    from tests.etcd.unit.membership.abstract import Disk, Server, World


EMPTY_AT_TWO_STARTS = EmptyStarts(NOW - MIN_APART, NOW)


def observe(world: World) -> Observed:
    """Observe the world as the observer does; hidden members are unreachable."""
    world.elect()
    resource = world.resource
    replicas = world.stateful_set["spec"]["replicas"] if world.stateful_set else 0
    numbers = sorted({*range(max(world.size, replicas)), *world.pods, *world.disks})
    instances = tuple(_instance(world, resource, number) for number in numbers)
    answering = [instance for instance in instances if instance.status]
    found = Observed(world.stateful_set, instances, cluster_id=CLUSTER_ID if answering else 0)
    with_leader = [
        instance for instance in answering if instance.status and instance.status.leader and not instance.status.learner
    ]
    if not with_leader:
        return found
    return with_members(resource, found, Members(CLUSTER_ID, tuple(world.members.values())))


def _instance(world: World, resource: EtcdCluster, number: int) -> Instance:
    pod, disk, name = world.pods.get(number), world.disks.get(number), f"demo-{number}"
    obj = _pod(world, number, pod) if pod else None
    status = None
    if world.serves(number) and number not in world.hidden and disk:
        member = world.members[disk.member]
        status = EndpointStatus(CLUSTER_ID, disk.member, world.leader, "3.6.8", 1, 1, 9, 9, 4096, 4096, member.learner)
    in_memory = world.medium == "Memory"
    return Instance(
        number,
        name,
        pod=Pod.of(obj) if obj else None,
        pod_obj=obj,
        volume=None if disk is None or in_memory else _volume(number, disk),
        status=status,
        disk=disk.uid if disk and (pod or not in_memory) else "",
        recorded=next((known.volume for known in resource.recorded_members if known.name == name), ""),
        empty=EMPTY_AT_TWO_STARTS if pod and pod.empty_data_dir else None,
    )


def _pod(world: World, number: int, pod: Server) -> Obj:
    ready = world.serves(number) and world.has_quorum and world.votes(number)
    state = {"running": {}} if world.serves(number) else {"terminated": {"message": ""}}
    metadata = {**pod.template["metadata"], "name": f"demo-{number}", "namespace": "default", "uid": pod.uid}
    metadata["creationTimestamp"] = pod.made.isoformat()
    if pod.leaving:
        metadata["deletionTimestamp"] = pod.made.isoformat()
    reported = {"conditions": [{"type": "Ready", "status": str(ready)}], "podIP": "10.0.0.1"}
    reported["containerStatuses"] = [{"name": "etcd", "state": state, "ready": ready}]
    return {"kind": "Pod", "metadata": metadata, "spec": pod.template["spec"], "status": reported}


def _volume(number: int, disk: Disk) -> Obj:
    metadata: Obj = {"name": f"data-demo-{number}", "namespace": "default", "uid": disk.uid}
    metadata["labels"] = {names.CLUSTER_UID: UID}
    if disk.leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"kind": "PersistentVolumeClaim", "metadata": metadata}
