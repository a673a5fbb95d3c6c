"""Observation of one Greeter as a frozen value: from the cache, and live where no watch exists."""

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
    """Observed state of a Greeter.

    Attributes:
        config_map: ConfigMap of the Greeter; None if it does not exist or has another owner.
        deployment: Deployment of the Greeter; None if it does not exist or has another owner.
    """

    config_map: Obj | None = None
    deployment: Obj | None = None

    @property
    def text(self) -> str | None:
        """Text in the ConfigMap."""
        return ((self.config_map or {}).get("data") or {}).get("text")

    @property
    def ready_replicas(self) -> int:
        """Number of ready servers in an up-to-date Deployment status."""
        if self.deployment is None:
            return 0
        status = self.deployment.get("status") or {}
        is_current = status.get("observedGeneration") == self.deployment["metadata"]["generation"]
        return int(status.get("readyReplicas", 0)) if is_current else 0


async def observe(resource: Greeter, cache: Cache, _kube: Kube) -> Observed:
    """Gather everything that the plan needs."""
    found = cache.get(CONFIG_MAP, resource.namespace, config_map.name(resource))
    workload = cache.get(DEPLOYMENT, resource.namespace, resource.name)
    return Observed(ownership.owned_by(resource.uid, found), ownership.owned_by(resource.uid, workload))
