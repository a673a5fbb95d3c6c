"""Kubernetes' disruption controller: how many pods of a PodDisruptionBudget may be evicted now.

Source: pkg/controller/disruption/disruption.go in kubernetes/kubernetes.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.kubernetes.kinds import DISRUPTION_BUDGET, POD, REPLICA_SET, STATEFUL_SET, Obj
from simulator.api_server.evictions import selects
from simulator.kubelet.replicas import is_owned_by, is_ready, is_terminating

if TYPE_CHECKING:
    from simulator.api_server.server import ApiServer


STALE_AFTER = timedelta(minutes=2)
"""Time after which a pod that was evicted and not deleted counts again (stalePodDisruptionTimeout)."""


class Disruptions:
    """Simulates the disruption controller. An evicted pod counts as disrupted until it is terminating."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._controller = server.actor("kube-controller-manager")

    def step(self) -> bool:
        """Update the status of one budget; return whether there was anything to do."""
        return any(self._control(budget) for _, budget in self._server.objects(DISRUPTION_BUDGET))

    def _control(self, budget: Obj) -> bool:
        metadata, before = budget["metadata"], budget.get("status") or {}
        pods = [pod for _, pod in self._server.objects(POD) if selects(budget, pod)]
        staying = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
        evicted = {
            name for name, at in before.get("disruptedPods", {}).items() if name in staying and self._is_recent(at)
        }
        healthy = sum(
            is_ready(pod) and not is_terminating(pod) and pod["metadata"]["name"] not in evicted for pod in pods
        )
        expected, desired = self._counts(budget["spec"], pods)
        status: Obj = {
            "observedGeneration": metadata["generation"],
            "expectedPods": expected,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
        }
        removed = before.get("disruptedPods", {}).keys() - evicted
        if status == {key: before.get(key, 0) for key in status} and not removed:
            return False
        kept = {pod: before["disruptedPods"][pod] for pod in evicted}
        status["disruptedPods"] = dict.fromkeys(removed) | kept if kept else None
        address = (metadata["namespace"], metadata["name"])
        self._controller.merge(DISRUPTION_BUDGET, *address, {"status": status}, subresource="status")
        return True

    def _is_recent(self, at: str) -> bool:
        return datetime.fromisoformat(self._server.now()) - datetime.fromisoformat(at) <= STALE_AFTER

    def _counts(self, spec: Obj, pods: list[Obj]) -> tuple[int, int]:
        """Return the expected number of pods, and how many of them must stay healthy."""
        scale = sum(
            owner["spec"]["replicas"]
            for kind in (STATEFUL_SET, REPLICA_SET)
            for _, owner in self._server.objects(kind)
            if any(is_owned_by(pod, owner) for pod in pods)
        )
        if "maxUnavailable" in spec:
            return scale, max(0, scale - _count(spec["maxUnavailable"], scale))
        least = spec.get("minAvailable")
        if least is None:
            return 0, 0  # a budget with neither field allows no eviction
        return (len(pods), least) if isinstance(least, int) else (scale, _count(least, scale))


def _count(value: Any, whole: int) -> int:
    return value if isinstance(value, int) else math.ceil(int(value.rstrip("%")) * whole / 100)
