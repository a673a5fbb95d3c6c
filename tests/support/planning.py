"""Plans of changes in simulated worlds, and what the operator of such a world then executes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

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
from simulator.plan import Live, Plan, plan
from simulator.recorder import Recorder, Step
from simulator.subjects import subject
from tests.harness.scenario import Subject, edit
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


async def executed(operator: str, play: ScenarioRun, spec: Obj | None = None) -> tuple[Step, ...]:
    """Return what the operator of a world executes from now on: after a change of the spec, or without one."""
    play.end()
    world, controller = play.world, play.world.subject.controller
    view = subject(operator).view
    recorder = Recorder(world.server, world.clock, lambda: view(world.database, world.server, "cache"))  # type: ignore[arg-type]
    world.subject = dataclasses.replace(world.subject, controller=lambda found: recorder.attached(controller(found)))
    play.begin()
    await play.settle()
    if spec is not None:
        await play.step(edit(None, {"spec": spec}))
    return recorder.finished()


def form(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    """Return what must be equal of steps: order, action, object, reason and effects."""
    return [
        (each.by, each.action, each.target, each.count, each.reason, each.fields, each.pods, each.members, each.moves)
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
