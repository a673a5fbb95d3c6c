"""Memcacheds and their observed states, for tests of pure modules."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

from operators.memcached.api.resource import WORKLOADS, Memcached
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.pod import CONTAINER, SECRETS
from operators.memcached.plan import Planner
from operators.memcached.state.observed import Observed, Workload
from shared.kubernetes.kinds import DEPLOYMENT, STATEFUL_SET, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Plan
from shared.runtime.settings import Settings
from simulator.api_server.server import ApiServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = Settings(
    "memcached-operator",
    "memcached",
    "example.com/memcached-operator:1",
    operator_peers=({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "operator"}}},),
)

UNPAUSED: Obj = {"updateStrategy": {"pauseSeconds": 0}}
"""A spec whose servers are replaced without a pause; simulation/test_pause.py is about the pause."""


def assess(resource: Memcached, observed: Observed, now: datetime = NOW, settings: Settings = SETTINGS) -> Assessment:
    """Return what the steps of a reconcile read."""
    return Assessment.of(resource, observed, settings, now)


def resource(
    *, phase: str = "", generation: int = 1, observed: int | None = None, status: Obj | None = None, **spec: Any
) -> Memcached:
    """Return a Memcached `default/cache` with a status of this phase."""
    metadata = {"name": "cache", "namespace": "default", "uid": "u-1", "generation": generation}
    reported = ({"phase": phase, "observedGeneration": observed} if phase else {}) | (status or {})
    return Memcached.parse({"metadata": metadata, "spec": {"size": 3, **spec}, "status": reported})


def pod(
    number: int, *, ready: bool = True, leaving: bool = False, problem: str = "", controller: str = "ReplicaSet"
) -> Pod:
    return Pod(
        name=f"cache-{number}",
        address=f"10.0.0.{number}",
        controller=controller,
        ready=ready and not leaving,
        leaving=leaving,
        ended=False,
        problem=problem,
    )


def template(port: int = 11211, *, users: str = "", tls: str = "", secrets: str = "") -> Obj:
    """Return a pod template of servers that listen on a port and mount these Secrets, as far as steps read it."""
    mounted = {"auth": users, "tls": tls}
    container = {
        "name": CONTAINER,
        "ports": [{"name": CONTAINER, "containerPort": port}],
        "resources": resource().spec.container_resources(),
    }
    volumes = [{"name": name, "secret": {"secretName": each}} for name, each in mounted.items() if each]
    annotations = {"annotations": {SECRETS: secrets}} if secrets else {}
    return {"metadata": annotations, "spec": {"containers": [container], "volumes": volumes}}


def pod_object(found: Pod, made: Obj) -> Obj:
    """Return a pod of a template as an object."""
    metadata = {"name": found.name, "uid": f"p-{found.name}", **made["metadata"]}
    return {"metadata": metadata, "spec": made["spec"]}


def workload_object(
    replicas: int = 3, *, updated: int | None = None, up_to_date: bool = True, replica_failure: str = ""
) -> Obj:
    failure = {"type": "ReplicaFailure", "status": "True", "message": replica_failure}
    return {
        "metadata": {"name": "cache", "generation": 2, "uid": "w-1"},
        "spec": {"replicas": 3, "template": template()},
        "status": {
            "observedGeneration": 2 if up_to_date else 1,
            "replicas": replicas,
            "updatedReplicas": replicas if updated is None else updated,
            "conditions": [failure] if replica_failure else [],
        },
    }


def workload_of(kind: str, *pods: Pod, made: Obj | None = None, **counts: Any) -> Workload:
    """Return a workload with these pods, counted in its status, and of its template unless `made` is another one."""
    counts.setdefault("replicas", sum(not pod.leaving for pod in pods))
    objs = tuple(pod_object(each, made or template()) for each in pods if not each.leaving)
    return Workload(WORKLOADS[kind], workload_object(**counts), pods, objs)


def observed_pods(*pods: Pod, **counts: Any) -> Observed:
    """Return an observed state with these pods of a Deployment."""
    return Observed(workload_of("Deployment", *pods, **counts))


EMPTY = Observed(Workload(STATEFUL_SET))


def plan(resource: Memcached, up_to_date: Observed, **options: Any) -> Plan:
    return Planner(dataclasses.replace(SETTINGS, **options)).plan(resource, up_to_date, NOW)


def workload_in(server: ApiServer) -> Obj:
    """Return the only workload, of either kind."""
    [found] = (obj for kind, obj in server.objects() if kind in (DEPLOYMENT, STATEFUL_SET))
    return found
