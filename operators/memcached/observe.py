"""Reads the world of one Memcached into one frozen value; all of it comes from the cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from operators.memcached.api import Memcached
from shared import status
from shared.cache import Cache
from shared.kube import DEPLOYMENT, POD, Kube, Obj
from shared.pods import Pod
from shared.queue import Key


@dataclass(frozen=True)
class Observed:
    """What there is of a Memcached.

    Attributes:
        deployment: its Deployment.
        pods: its servers' pods that have not ended, by name; those on their way out too.
    """

    deployment: Obj | None = None
    pods: tuple[Pod, ...] = ()

    @cached_property
    def servers(self) -> tuple[Pod, ...]:
        """Pods that clients may use."""
        return tuple(pod for pod in self.pods if pod.ready)

    @cached_property
    def current(self) -> tuple[Pod, ...]:
        """Pods that are to stay, ready or not."""
        return tuple(pod for pod in self.pods if not pod.leaving)

    @property
    def outdated(self) -> int:
        """Servers that still run as an earlier spec said, as far as the Deployment's controller has counted."""
        counted = (self.deployment or {}).get("status") or {}
        return int(counted.get("replicas", 0)) - int(counted.get("updatedReplicas", 0))

    @property
    def rolled_out(self) -> bool:
        """Whether the Deployment's controller has taken up what we last applied."""
        if self.deployment is None:
            return False
        counted = self.deployment.get("status") or {}
        return int(counted.get("observedGeneration", 0)) >= int(self.deployment["metadata"]["generation"])

    @property
    def refusal(self) -> str:
        """Why the API server refuses the Deployment pods (a quota, admission); empty if it does not."""
        failure = status.condition(self.deployment or {}, "ReplicaFailure")
        if failure.get("status") != "True":
            return ""
        return str(failure.get("message") or failure.get("reason") or "no pod can be created")


async def observe(resource: Memcached, cache: Cache, _kube: Kube) -> Observed:
    """Gather what there is of a Memcached."""
    key = Key(resource.namespace, resource.name)
    pods = (Pod.of(obj) for obj in cache.owned(POD, key))
    return Observed(
        deployment=cache.get(DEPLOYMENT, key.namespace, resource.name),
        pods=tuple(pod for pod in pods if not pod.ended),
    )
