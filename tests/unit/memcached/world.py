"""Memcacheds and worlds around them, for tests of the pure rooms."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from operators.memcached.api import Memcached
from operators.memcached.observe import Observed
from operators.memcached.plan import Planner
from shared.kube import Obj
from shared.plan import Plan
from shared.pods import Pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLANNER = Planner(operator="memcached-operator", image_repository="memcached")


def resource(*, phase: str = "", generation: int = 1, observed: int | None = None, **spec: Any) -> Memcached:
    """A Memcached `default/cache` whose status says what it did last."""
    metadata = {"name": "cache", "namespace": "default", "uid": "u-1", "generation": generation}
    status = {"phase": phase, "observedGeneration": observed} if phase else {}
    return Memcached.parse({"metadata": metadata, "spec": {"size": 3, **spec}, "status": status})


def pod(number: int, *, ready: bool = True, leaving: bool = False, trouble: str = "") -> Pod:
    return Pod(
        name=f"cache-{number}",
        address=f"10.0.0.{number}",
        ready=ready and not leaving,
        leaving=leaving,
        ended=False,
        trouble=trouble,
    )


def deployment(replicas: int = 3, *, updated: int | None = None, seen: bool = True, refusal: str = "") -> Obj:
    failure = {"type": "ReplicaFailure", "status": "True", "message": refusal}
    return {
        "metadata": {"name": "cache", "generation": 2},
        "status": {
            "observedGeneration": 2 if seen else 1,
            "replicas": replicas,
            "updatedReplicas": replicas if updated is None else updated,
            "conditions": [failure] if refusal else [],
        },
    }


def world(*pods: Pod, **counts: Any) -> Observed:
    """A world with these pods, whose Deployment's controller has counted them."""
    counts.setdefault("replicas", sum(not pod.leaving for pod in pods))
    return Observed(deployment=deployment(**counts), pods=pods)


def plan(resource: Memcached, seen: Observed) -> Plan:
    return PLANNER.plan(resource, seen, NOW)
