"""Plans of changes in simulated worlds, and what the operator of such a world then executes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from shared.kubernetes.kinds import (
    DEPLOYMENT,
    EVENT,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from simulator.durations import Durations
from simulator.kubelet.timing import PodTiming
from simulator.plan import RESTARTS, SAFE, Live, Plan, plan
from simulator.recorder import Recorder, Step
from simulator.redis.database import SimulatedRedis
from simulator.subjects import subject
from tests.harness.scenario import ScenarioStep, Subject, edit
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.redis import scenarios as redis

WORLDS: dict[str, tuple[Subject, Any]] = {
    "memcached": (memcached.MEMCACHED, memcached.OPTIONS),
    "etcd": (etcd.ETCD, etcd.OPTIONS),
    "redis": (redis.REDIS, redis.OPTIONS),
}
"""Worlds and options of the operators, by their names."""


TLS: Obj = {"tls": {"mode": "self"}}
SNAPSHOTS: Obj = {"config": {"appendonly": "no"}}
VALKEY: Obj = {"repository": "valkey/valkey"}
CPU: Obj = {"resources": {"requests": {"cpu": "200m"}}}


def volumes(size: str) -> Obj:
    return {"storage": {"size": size, "storageClassName": "fast"}}


class Case(NamedTuple):
    """A change of a spec, and the outcome of its plan."""

    operator: str
    what: str
    given: tuple[ScenarioStep, ...]
    spec: Obj
    outcome: str = RESTARTS
    marks: tuple[Any, ...] = ()


NIGHTLY = (pytest.mark.nightly,)

CASES = (
    Case("memcached", "scale out", (memcached.apply(size=3),), {"size": 4}, SAFE),
    Case("memcached", "scale in", (memcached.apply(size=3),), {"size": 2}, SAFE),
    Case("memcached", "version", (memcached.apply(size=3),), {"version": "1.6.18"}),
    Case("memcached", "memory", (memcached.apply(size=3),), {"memoryMB": 256}),
    Case("memcached", "TLS on", (memcached.apply(size=3),), TLS),
    Case("memcached", "password on", (memcached.apply(size=3),), {"auth": {}}),
    Case("memcached", "resources", (memcached.apply(size=3),), CPU),
    Case(
        "memcached", "version of a Deployment", (memcached.apply(size=3, workload="Deployment"),), {"version": "1.6.18"}
    ),
    Case("memcached", "workload", (memcached.apply(size=3),), {"workload": "Deployment"}),
    Case("etcd", "scale out", (etcd.cluster(3),), {"size": 5}, SAFE),
    Case("etcd", "scale in", (etcd.cluster(3),), {"size": 1}, SAFE),
    Case("etcd", "patch release", (etcd.cluster(3),), {"version": "3.6.16"}),
    Case("etcd", "minor release", (etcd.cluster(3),), {"version": "3.7.0"}, marks=NIGHTLY),
    Case("etcd", "from 3.5 to 3.6", (etcd.cluster(3, "3.5.26"),), {"version": "3.6.11"}, marks=NIGHTLY),
    Case("etcd", "one member", (etcd.cluster(1),), {"version": "3.6.16"}),
    Case("etcd", "password on", (etcd.cluster(3),), {"auth": {}}, SAFE),
    Case("etcd", "scale with a password", (etcd.cluster(3, auth={}),), {"size": 4}, SAFE, NIGHTLY),
    Case("etcd", "scale with TLS", (etcd.cluster(3, **TLS),), {"size": 4}, SAFE, NIGHTLY),
    Case("etcd", "resources", (etcd.cluster(3),), CPU, marks=NIGHTLY),
    Case("etcd", "arguments", (etcd.cluster(3),), {"autoCompaction": {"retention": "1h"}}, marks=NIGHTLY),
    Case("etcd", "storage", (etcd.EXPANDABLE, etcd.cluster(3, **volumes("1Gi"))), volumes("2Gi")),
    Case("redis", "scale out", (redis.cluster(6),), {"replicas": 8}, SAFE),
    Case("redis", "scale in", (redis.cluster(8),), {"replicas": 6}, SAFE, NIGHTLY),
    Case("redis", "version", (redis.cluster(6),), {"version": "7.2.5"}),
    Case("redis", "live setting", (redis.cluster(6),), {"config": {"maxmemory-policy": "allkeys-lru"}}, SAFE),
    Case("redis", "password on", (redis.cluster(6),), {"auth": {}}, SAFE),
    Case("redis", "version with TLS", (redis.cluster(6, **TLS),), {"version": "7.2.5"}, marks=NIGHTLY),
    Case("redis", "version with snapshots", (redis.cluster(6, **SNAPSHOTS),), {"version": "7.2.5"}, marks=NIGHTLY),
    Case("redis", "version in memory", (redis.in_memory(6),), {"version": "7.2.5"}, marks=NIGHTLY),
    Case("redis", "version of Valkey", (redis.cluster(6, "8.1.1", **VALKEY),), {"version": "9.1.0"}, marks=NIGHTLY),
    Case("redis", "log off", (redis.cluster(6),), SNAPSHOTS, marks=NIGHTLY),
    Case("redis", "resources", (redis.cluster(6),), CPU, marks=NIGHTLY),
    Case("redis", "storage", (etcd.EXPANDABLE, redis.cluster(6, **volumes("1Gi"))), volumes("2Gi"), SAFE),
)
"""Changes of each kind whose plan is executed."""


async def nothing_else(kind: Kind, namespace: str, name: str) -> Obj | None:
    """Find no further object: the plan has all of the world."""
    return None


def live(play: ScenarioRun, name: str = "cache") -> Live:
    """Return what runs in a world, as a user reads it. Its API server does not resize running pods."""
    resource = next((each for each in play.stage.find() if each["metadata"]["name"] == name), None)
    objects = [(kind, obj) for kind, obj in play.world.server.objects() if kind != EVENT]
    return Live(resource, objects, play.world.clock.now, resizes=False)


def changed(resource: Obj, spec: Obj) -> Obj:
    """Return a resource with changed fields of its spec."""
    found = copy.deepcopy(resource)
    found["spec"] |= spec
    return found


async def planned(operator: str, play: ScenarioRun, spec: Obj) -> Plan:
    """Return the plan of a change of the spec in a world."""
    found = live(play)
    assert found.resource is not None
    return await plan(subject(operator), WORLDS[operator][1], found, changed(found.resource, spec), nothing_else)


def start_together(play: ScenarioRun) -> None:
    """Let pods that are created together start together, as on a cluster; by default, one starts after the other.

    And a server of Redis has contacted its peers before the operator observes it.
    """
    world = play.world
    if isinstance(world.database, SimulatedRedis):
        world.database.greets = True
    world.workloads.use_timing(PodTiming(world.server, world.clock, Durations(start=0, ready=0)))


async def executed(operator: str, play: ScenarioRun, spec: Obj | None = None) -> tuple[Step, ...]:
    """Return what the operator of a world executes from now on: after a change of the spec, or without one."""
    play.end()
    world, controller = play.world, play.world.subject.controller
    start_together(play)
    view = subject(operator).view
    recorder = Recorder(world.server, world.clock, lambda: view(world.database, world.server, "cache"))  # type: ignore[arg-type]
    world.subject = dataclasses.replace(world.subject, controller=lambda found: recorder.attached(controller(found)))
    play.begin()
    await play.settle()
    if spec is not None:
        await play.step(edit(None, {"spec": spec}))
    return recorder.finished()


def form(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    """Return what must be equal of steps: order, action, object, reason and effects.

    How often a call is repeated until it succeeds depends on the tick of the database in which it began.
    """
    return [
        (
            each.by,
            each.action,
            each.target,
            each.count > 1 if each.action == "call" else each.count,
            each.reason,
            each.fields,
            each.pods,
            each.members,
            each.moves,
        )
        for each in steps
        if not each.minor
    ]


HASH = "6b7d9c5f4d"
"""Name of the template of a Deployment, as Kubernetes might compute it."""


def as_read(found: Live) -> Live:
    """Return objects as a real API server has them: with defaults, and with its own names of revisions."""
    revisions = {
        (obj.get("status") or {}).get("updateRevision"): f"{obj['metadata']['name']}-5f6d8c9b7"
        for kind, obj in found.objects
        if kind == STATEFUL_SET
    }
    return dataclasses.replace(found, objects=[(kind, _defaulted(kind, obj, revisions)) for kind, obj in found.objects])


def _defaulted(kind: Kind, obj: Obj, revisions: Mapping[str | None, str]) -> Obj:
    found = copy.deepcopy(obj)
    if kind == STATEFUL_SET:
        _default_pod(found["spec"]["template"]["spec"])
        _default(found["spec"], revisionHistoryLimit=10)
        found["status"] |= {
            key: revisions[found["status"][key]]
            for key in ("currentRevision", "updateRevision")
            if found["status"].get(key) in revisions
        }
        found["status"] |= {"collisionCount": 0, "currentReplicas": found["spec"]["replicas"]}
    elif kind in (DEPLOYMENT, REPLICA_SET):
        found["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = "1"
        if kind == REPLICA_SET:
            found["metadata"]["name"] = f"cache-{HASH}"
            found["metadata"]["labels"]["pod-template-hash"] = HASH
    elif kind == POD:
        labels = found["metadata"]["labels"]
        if "controller-revision-hash" in labels:
            labels["controller-revision-hash"] = revisions.get(labels["controller-revision-hash"], "cache-84c6f5d9d")
        else:
            labels["pod-template-hash"] = HASH
            found["metadata"]["ownerReferences"][0]["name"] = f"cache-{HASH}"
        labels["topology.kubernetes.io/zone"] = "a"
        found["metadata"]["generateName"] = "cache-"
        spec = found["spec"]
        _default_pod(spec)
        spec |= {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
        spec["tolerations"] = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}]
        for each in found["status"]["containerStatuses"]:
            each |= {"containerID": "containerd://1", "imageID": "docker.io/library/a@sha256:1", "started": True}
        found["status"] |= {"hostIP": "192.0.2.1", "qosClass": "Burstable"}
        found["status"]["conditions"].append(
            {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        )
    elif kind == SERVICE:
        _default(found["spec"], internalTrafficPolicy="Cluster", sessionAffinity="None", ipFamilies=["IPv4"])
    elif kind == PERSISTENT_VOLUME_CLAIM:
        _default(found["spec"], volumeMode="Filesystem")
    return found


def _default_pod(spec: Obj) -> None:
    """Add the defaults of the API server to a pod."""
    _default(spec, dnsPolicy="ClusterFirst", restartPolicy="Always", schedulerName="default-scheduler")
    for container in spec["containers"]:
        path, policy = "/dev/termination-log", "IfNotPresent"
        _default(container, terminationMessagePath=path, terminationMessagePolicy="File", imagePullPolicy=policy)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if probe in container:
                _default(container[probe], successThreshold=1, failureThreshold=3)
    for volume in spec.get("volumes") or ():
        if "secret" in volume:
            _default(volume["secret"], defaultMode=420)


def _default(found: Obj, **values: Any) -> None:
    for name, value in values.items():
        found.setdefault(name, value)
