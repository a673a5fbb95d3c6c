"""EtcdClusters and observed worlds as data, for tests of the pure packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import EndpointStatus, Member
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.layout import layout
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects import pod as template
from operators.etcd.objects import stateful_set as builder
from operators.etcd.objects.bootstrap import REFUSED, Closed, Start
from operators.etcd.plan import Planner
from operators.etcd.state import empty_directory
from operators.etcd.state.observed import Instance, Observed
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Action, Plan
from shared.runtime.settings import Settings

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LONG_AGO = "2026-01-01T11:00:00Z"
EARLIER_EMPTY_STARTS: Obj = {"first": LONG_AGO, "last": "2026-01-01T11:05:00Z"}
SETTINGS = Settings("etcd-operator", "example.com/etcd", "example.com/etcd-operator:1")
PLANNER = Planner(SETTINGS)
CLUSTER_ID = 0xC1
UID = "u-1"


def assess(resource: EtcdCluster, observed: Observed, now: datetime = NOW, settings: Settings = SETTINGS) -> Assessment:
    """Return what the steps of a reconcile read."""
    return Assessment.of(resource, observed, settings, now)


def cluster(
    size: int = 3,
    *,
    phase: str = "Running",
    recorded: Iterable[int] | None = (0, 1, 2),
    generation: int = 1,
    observed: int = 1,
    status: Obj | None = None,
    **spec: Any,
) -> EtcdCluster:
    """An EtcdCluster `default/demo`.

    Args:
        recorded: numbers of the members in the status, each on its own volume; None for a new cluster.
    """
    metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": generation}
    reported_status: Obj = {}
    if recorded is not None:
        members = [{"name": f"demo-{n}", "id": f"{member_id(n):016x}", "volume": f"disk-{n}"} for n in recorded]
        reported_status = {
            "phase": phase,
            "observedGeneration": observed,
            "clusterID": f"{CLUSTER_ID:016x}",
            "members": members,
        }
        reported_status["version"] = "3.6.8"
    given = {"size": size, "version": "3.6.8", **spec}
    obj = {"kind": "EtcdCluster", "metadata": metadata, "spec": given, "status": reported_status | (status or {})}
    return EtcdCluster.parse(obj)


def member_id(number: int) -> int:
    return 0xA0 + number


@dataclass(frozen=True)
class At:
    """State of one member, its pod and its volume; by default a healthy voter on its recorded volume.

    Attributes:
        member: whether etcd's member list has an entry.
        up: whether the server answers and takes part.
        ready: whether the kubelet reports the pod as ready (None: same as `up`).
        pod: whether the pod exists.
        runs: whether the etcd process runs in the pod (None: same as `up`).
        problem: reason and message of a container that waits, as "REASON: MESSAGE".
        disk: UID of the volume (None: the recorded one; empty: no volume).
        empty_data_dir: whether etcd exited because its data directory was empty, at two starts.
        empty_once: whether that was one start only, so that the disk may just not be mounted.
        old: whether the pod was created from an earlier template.
        start: bootstrap mode that the template gave to a pod with an empty data directory (None: the current template).
        applied: applied index of the Raft log; the leader's is 1000.
        error: why the server is unreachable.
        made: creation time of the pod.
        storage: version whose format the data has, as the member reports it.
        downgrade: version to which the cluster is being downgraded, as the member reports it.
    """

    member: bool = True
    learner: bool = False
    started: bool = True
    up: bool = True
    ready: bool | None = None
    pod: bool = True
    runs: bool | None = None
    leaving: bool = False
    problem: str = ""
    disk: str | None = None
    recorded: str | None = None
    empty_data_dir: bool = False
    empty_once: bool = False
    old: bool = False
    start: Start | None = None
    applied: int = 1000
    version: str = "3.6.8"
    error: str = "no route to host"
    id: int = 0
    made: str = LONG_AGO
    storage: str = ""
    downgrade: str = ""


VOTER = At()
LEARNER = At(learner=True, ready=False)
DOWN = At(up=False)
ABSENT = At(member=False, up=False, pod=False, disk="")
AWAITED = At(learner=True, started=False, up=False, pod=False, disk="")
"""A learner that was just added: in the member list, without a pod or volume."""


def seen(
    resource: EtcdCluster,
    *at: At,
    leader: int | None = 0,
    known: bool = True,
    stateful_set: bool = True,
    replicas: int | None = None,
    image: str = "",
    **more: Any,
) -> Observed:
    """Return an observed world whose members, from number 0 on, are in the given states.

    Args:
        leader: number of the leader; None for no leader.
        known: whether a quorum returns the member list.
        replicas: replicas of the StatefulSet; None for the number that follows from the members.
        image: image of the StatefulSet's template; empty for the resource's.
    """
    recorded = {known.name: known for known in resource.recorded_members}
    members = tuple(_member(resource, n, spot) for n, spot in enumerate(at) if spot.member)
    found = Observed(
        instances=tuple(_instance(resource, n, spot, leader, known, recorded) for n, spot in enumerate(at)),
        members=members if known else None,
        cluster_id=CLUSTER_ID if any(spot.up and spot.member for spot in at) else 0,
        cluster_version="3.6.0" if known else "",
    )
    if stateful_set:
        made = _stateful_set(resource, found, replicas, image)
        digest = made["spec"]["template"]["metadata"]["annotations"][template.TEMPLATE]
        instances = tuple(
            _with_template(instance, made, digest, spot) for instance, spot in zip(found.instances, at, strict=True)
        )
        found = replace(found, stateful_set=made, instances=instances)
    return replace(found, **more)


def losing_volumes(found: Observed, *numbers: int) -> Observed:
    """Return a world in which a user has deleted the claims of these members."""

    def losing(instance: Instance) -> Instance:
        assert instance.volume is not None
        metadata = instance.volume["metadata"] | {"deletionTimestamp": LONG_AGO}
        return replace(instance, volume=instance.volume | {"metadata": metadata})

    return replace(found, instances=tuple(losing(each) if each.number in numbers else each for each in found.instances))


def _member(resource: EtcdCluster, number: int, spot: At) -> Member:
    name = f"demo-{number}" if spot.started else ""
    return Member(spot.id or member_id(number), name, (names.peer_url(resource, number),), spot.learner)


def _instance(
    resource: EtcdCluster, number: int, spot: At, leader: int | None, known: bool, recorded: dict[str, Any]
) -> Instance:
    name, memory = f"demo-{number}", resource.spec.storage.medium == "Memory"
    before = recorded.get(name)
    own = before is not None and (not spot.member or before.id == (spot.id or member_id(number)))
    written = spot.recorded if spot.recorded is not None else (before.volume if before and own else "")
    disk = spot.disk if spot.disk is not None else f"disk-{number}"
    ready = spot.ready if spot.ready is not None else spot.up
    runs = spot.runs if spot.runs is not None else spot.up
    pod_obj = _pod(resource, number, spot, ready=ready, runs=runs, uid=disk if memory else f"pod-{number}")
    volume = None if memory or not disk else _volume(resource, number, disk)
    status = None
    if spot.up:
        leader_id = member_id(leader) if leader is not None else 0
        index = spot.applied
        status = EndpointStatus(CLUSTER_ID, member_id(number), leader_id, spot.version, 10, 2, index, index, 4096, 2048)
        status = replace(status, storage_version=spot.storage, downgrade_target=spot.downgrade)
    return Instance(
        number,
        name,
        pod=Pod.of(pod_obj, container="etcd") if spot.pod else None,
        pod_obj=pod_obj if spot.pod else None,
        volume=volume,
        member=_member(resource, number, spot) if spot.member and known else None,
        status=status,
        error="" if spot.up or not spot.pod else spot.error,
        disk=disk if not memory or spot.pod else "",
        recorded=written,
        empty=empty_directory.observed(pod_obj, None if spot.empty_once else EARLIER_EMPTY_STARTS),
    )


def _pod(resource: EtcdCluster, number: int, spot: At, *, ready: bool, runs: bool, uid: str) -> Obj:
    state: Obj = {"running": {"startedAt": LONG_AGO}} if runs else {"terminated": {"reason": "Error"}}
    if spot.problem:
        reason, _, message = spot.problem.partition(": ")
        state = {"waiting": {"reason": reason, "message": message}}
    container: Obj = {"name": "etcd", "ready": ready, "state": state}
    if spot.empty_data_dir or spot.empty_once:
        container["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting etcd"}}
        message = f'"error":"{REFUSED} \\"demo-{number}\\" in the …"'
        container["lastState"] = {"terminated": {"message": message, "startedAt": "2026-01-01T11:10:00Z"}}
    metadata: Obj = {"name": f"demo-{number}", "namespace": "default", "uid": uid, "creationTimestamp": spot.made}
    if spot.leaving:
        metadata["deletionTimestamp"] = LONG_AGO
    reported: Obj = {"podIP": f"10.0.0.{number + 1}", "containerStatuses": [container]}
    reported["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": reported}


def _volume(resource: EtcdCluster, number: int, uid: str) -> Obj:
    labels = names.owner(resource, SETTINGS.operator).labels(names.COMPONENT) | {names.CLUSTER_UID: resource.uid}
    metadata = {"name": f"data-demo-{number}", "namespace": "default", "uid": uid, "labels": labels}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata | {"creationTimestamp": LONG_AGO}}


def _stateful_set(resource: EtcdCluster, found: Observed, replicas: int | None, image: str) -> Obj:
    own = names.owner(resource, SETTINGS.operator)
    follows = layout(resource, found)
    image = image or resource.image_reference(SETTINGS.image_repository)
    pod = template.pod(resource, own, image, follows.start, template.MountedSecrets(), serves=follows.serves)
    made = builder.stateful_set(resource, own, pod, follows.replicas if replicas is None else replicas)
    if (tag := image.rpartition(":v")[2]) != image:
        made["metadata"]["annotations"][names.VERSION] = tag
    record = {"manager": SETTINGS.operator, "operation": "Apply", "fieldsV1": _fields(made)}
    made["metadata"] |= {"uid": "s-1", "managedFields": [record]}
    return made


def _fields(value: Any) -> Obj:
    """Return the fieldsV1 of an applied object, with lists as a whole."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": _fields(item) for key, item in value.items() if key not in ("apiVersion", "kind", "name")}


def _with_template(instance: Instance, stateful_set: Obj, digest: str, spot: At) -> Instance:
    if instance.pod_obj is None:
        return instance
    made = stateful_set["spec"]["template"]
    annotations = made["metadata"]["annotations"] | {template.TEMPLATE: "an earlier one" if spot.old else digest}
    if spot.start is not None:
        annotations |= bootstrap.annotated(cluster(), spot.start)
    about = {"labels": made["metadata"]["labels"], "annotations": annotations}
    return replace(
        instance, pod_obj={**instance.pod_obj, "spec": made["spec"], "metadata": instance.pod_obj["metadata"] | about}
    )


def plan(resource: EtcdCluster, world: Observed) -> Plan:
    return PLANNER.plan(resource, world, NOW)


def acts(made: Iterable[Action]) -> list[str]:
    """Describe the actions that change the world; applies and patches, which may change nothing, are omitted."""
    found = []
    for action in made:
        kind = type(action).__name__
        if kind in ("Delete", "Evict"):
            obj = action.obj  # type: ignore[union-attr]
            found.append(f"{kind.lower()} {obj['kind']} {obj['metadata']['name']} ({obj['metadata']['uid']})")
        elif kind not in ("Apply", "Patch"):
            found.append(str(action).split(" (")[0])
    return found


def replicas_and_start(made: Plan) -> tuple[int, str]:
    """Return the replicas and the bootstrap mode of the StatefulSet that the plan applies."""
    for action in made.actions:
        obj = getattr(action, "obj", {})
        if type(action).__name__ == "Apply" and obj.get("kind") == "StatefulSet":
            state, listed = bootstrap.of(obj["spec"]["template"])
            own_names = [name for entry in listed.split(",") if (name := entry.split("=")[0]).startswith("demo-")]
            return obj["spec"]["replicas"], f"{state} {' '.join(own_names)}".strip()
    raise AssertionError("the plan has no StatefulSet")


CLOSED = Closed()
