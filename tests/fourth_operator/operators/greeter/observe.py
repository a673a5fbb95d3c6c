"""Reads what there is of one Greeter into one frozen value: from the cache, and live where no watch brings it."""

from __future__ import annotations

from dataclasses import dataclass

from operators.greeter.api.resource import Greeter
from operators.greeter.objects import config_map
from shared.kubernetes import ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, Obj
from shared.runtime.cache import Cache


@dataclass(frozen=True)
class Observed:
    """What there is of a Greeter.

    Attributes:
        config_map: its ConfigMap; None where there is none of ours.
        deployment: its Deployment; None where there is none of ours.
    """

    config_map: Obj | None = None
    deployment: Obj | None = None

    @property
    def text(self) -> str | None:
        """The text that the ConfigMap holds."""
        return ((self.config_map or {}).get("data") or {}).get("text")

    @property
    def ready_replicas(self) -> int:
        """Servers that are ready, of those that the Deployment's controller has counted since its last change."""
        if self.deployment is None:
            return 0
        status = self.deployment.get("status") or {}
        is_current = status.get("observedGeneration") == self.deployment["metadata"]["generation"]
        return int(status.get("readyReplicas", 0)) if is_current else 0


async def observe(resource: Greeter, cache: Cache, _kube: Kube) -> Observed:
    """Gather everything that the plan asks about."""
    found = cache.get(CONFIG_MAP, resource.namespace, config_map.name(resource))
    workload = cache.get(DEPLOYMENT, resource.namespace, resource.name)
    return Observed(ownership.made_for(resource.uid, found), ownership.made_for(resource.uid, workload))
