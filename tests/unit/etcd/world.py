"""EtcdClusters and worlds around them, for tests of the pure rooms: states as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import EndpointStatus, Member
from operators.etcd.membership.layout import layout
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects import pod as template
from operators.etcd.objects import stateful_set as builder
from operators.etcd.objects.bootstrap import REFUSED, Closed, Start
from operators.etcd.observe import Instance, Observed, has_empty_data_dir
from operators.etcd.plan import Planner
from operators.etcd.security.secrets import Secrets
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Action, Plan
from shared.runtime.settings import Settings

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LONG_AGO = "2026-01-01T11:00:00Z"
SETTINGS = Settings("etcd-operator", "example.com/etcd", "example.com/etcd-operator:1")
PLANNER = Planner(SETTINGS)
CLUSTER_ID = 0xC1
UID = "u-1"


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
        recorded: numbers of the members that its status tells of, each on its own disk; None for a new one.
    """
    metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": generation}
    said: Obj = {}
    if recorded is not None:
        members = [{"name": f"demo-{n}", "id": f"{member_id(n):016x}", "volume": f"disk-{n}"} for n in recorded]
        said = {"phase": phase, "observedGeneration": observed, "clusterID": f"{CLUSTER_ID:016x}", "members": members}
        said["version"] = "3.6.8"
    given = {"size": size, "version": "3.6.8", **spec}
    obj = {"metadata": metadata, "spec": given, "status": said | (status or {})}
    return EtcdCluster.parse(obj)


def member_id(number: int) -> int:
    return 0xA0 + number


@dataclass(frozen=True)
class At:
    """What is at one place; by default a healthy voter, on the disk that is recorded.

    Attributes:
        member: whether etcd's list has it.
        up: whether its server takes part; ready: whether the kubelet finds it ready (None: if it is up).
        pod: whether there is one; runs: whether etcd's process runs in it (None: if it is up).
        disk: UID of its volume (None: the recorded one; empty: there is none).
        empty_data_dir: whether etcd ended there for its disk was empty.
        old: whether its pod was made of an earlier template; start: what the template said of empty disks then.
        applied: index of Raft's log; the leader's is 1000.
    """

    member: bool = True
    learner: bool = False
    started: bool = True
    up: bool = True
    ready: bool | None = None
    pod: bool = True
    runs: bool | None = None
    leaving: bool = False
    trouble: str = ""
    disk: str | None = None
    recorded: str | None = None
    empty_data_dir: bool = False
    old: bool = False
    start: Start | None = None
    applied: int = 1000
    version: str = "3.6.8"
    error: str = "no route to host"
    id: int = 0
    made: str = LONG_AGO


VOTER = At()
LEARNER = At(learner=True, ready=False)
DOWN = At(up=False)
ABSENT = At(member=False, up=False, pod=False, disk="")
AWAITED = At(learner=True, started=False, up=False, pod=False, disk="")
"""A learner that was just added: in the list, and nowhere else."""


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
    """A world with these places, from number 0 on.

    Args:
        leader: number of who leads; None for nobody.
        known: whether a quorum tells the list of members.
        replicas: of the StatefulSet; None for what follows from the members.
        image: of the StatefulSet's template; empty for the resource's.
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
        voice = member_id(leader) if leader is not None else 0
        index = spot.applied
        status = EndpointStatus(CLUSTER_ID, member_id(number), voice, spot.version, 10, 2, index, index, 4096, 2048)
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
        empty_data_dir=has_empty_data_dir(pod_obj),
    )


def _pod(resource: EtcdCluster, number: int, spot: At, *, ready: bool, runs: bool, uid: str) -> Obj:
    state: Obj = {"running": {"startedAt": LONG_AGO}} if runs else {"terminated": {"reason": "Error"}}
    if spot.trouble:
        reason, _, message = spot.trouble.partition(": ")
        state = {"waiting": {"reason": reason, "message": message}}
    container: Obj = {"name": "etcd", "ready": ready, "state": state}
    if spot.empty_data_dir:
        container["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting etcd"}}
        container["lastState"] = {"terminated": {"message": f'"error":"{REFUSED} \\"demo-{number}\\" in the …"'}}
    metadata: Obj = {"name": f"demo-{number}", "namespace": "default", "uid": uid, "creationTimestamp": spot.made}
    if spot.leaving:
        metadata["deletionTimestamp"] = LONG_AGO
    reported: Obj = {"podIP": f"10.0.0.{number + 1}", "containerStatuses": [container]}
    reported["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": reported}


def _volume(resource: EtcdCluster, number: int, uid: str) -> Obj:
    labels = {names.CLUSTER_UID: resource.uid}
    metadata = {"name": f"data-demo-{number}", "namespace": "default", "uid": uid, "labels": labels}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata | {"creationTimestamp": LONG_AGO}}


def _stateful_set(resource: EtcdCluster, found: Observed, replicas: int | None, image: str) -> Obj:
    own = names.owner(resource, SETTINGS.operator)
    follows = layout(resource, found)
    image = image or resource.image_reference(SETTINGS.image_repository)
    pod = template.pod(resource, own, image, follows.start, Secrets())
    made = builder.stateful_set(resource, own, pod, follows.replicas if replicas is None else replicas)
    made["metadata"]["uid"] = "s-1"
    return made


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
    """What is done to the world, as people would say it: applies that may change nothing are left out."""
    found = []
    for action in made:
        kind = type(action).__name__
        if kind == "Delete":
            obj = action.obj  # type: ignore[union-attr]
            found.append(f"delete {obj['kind']} {obj['metadata']['name']} ({obj['metadata']['uid']})")
        elif kind not in ("Apply", "Patch"):
            found.append(str(action).split(" (")[0])
    return found


def replicas_and_start(made: Plan) -> tuple[int, str]:
    """What the plan asks of the StatefulSet."""
    for action in made.actions:
        obj = getattr(action, "obj", {})
        if type(action).__name__ == "Apply" and obj.get("kind") == "StatefulSet":
            state, listed = bootstrap.of(obj["spec"]["template"])
            ours = [name for entry in listed.split(",") if (name := entry.split("=")[0]).startswith("demo-")]
            return obj["spec"]["replicas"], f"{state} {' '.join(ours)}".strip()
    raise AssertionError("the plan has no StatefulSet")


CLOSED = Closed()
