"""Reads the world of one Memcached into one frozen value: from the cache, and live where no watch brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from operators.memcached.api.resource import WORKLOADS, Memcached
from operators.memcached.objects.pod import CONTAINER
from operators.memcached.security.certificates import Connect, ServedCertificate, inspect_certificate
from operators.memcached.security.secrets import Secrets, read_secrets
from shared.kubernetes import accessors, ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import AUTOSCALER, DISRUPTION_BUDGET, POD, STATEFUL_SET, Key, Kind, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.cache import Cache


@dataclass(frozen=True)
class Workload:
    """A workload and the servers that it runs.

    Attributes:
        kind: Deployment or StatefulSet.
        obj: the object; None if there is none.
        pods: its servers' pods that have not ended, by name; those on their way out too.
    """

    kind: Kind
    obj: Obj | None = None
    pods: tuple[Pod, ...] = ()

    @cached_property
    def ready(self) -> tuple[Pod, ...]:
        """Pods that clients may use."""
        return tuple(pod for pod in self.pods if pod.ready)

    @cached_property
    def current(self) -> tuple[Pod, ...]:
        """Pods that are to stay, ready or not."""
        return tuple(pod for pod in self.pods if not pod.leaving)

    @property
    def outdated(self) -> int:
        """Servers that still run as an earlier spec said, as far as the workload's controller has counted."""
        return int(self._counted.get("replicas", 0)) - int(self._counted.get("updatedReplicas", 0))

    @property
    def rolled_out(self) -> bool:
        """Whether the workload's controller has taken up what we last applied."""
        if self.obj is None:
            return False
        return int(self._counted.get("observedGeneration", 0)) >= int(self.obj["metadata"]["generation"])

    @property
    def replica_failure(self) -> str:
        """Why the API server refuses the Deployment pods (a quota, admission); empty if it does not.

        A StatefulSet says so in events alone.
        """
        failure = accessors.condition(self.obj or {}, "ReplicaFailure")
        if failure.get("status") != "True":
            return ""
        return str(failure.get("message") or failure.get("reason") or "no pod can be created")

    @property
    def _counted(self) -> Obj:
        return (self.obj or {}).get("status") or {}


@dataclass(frozen=True)
class Observed:
    """What there is of a Memcached.

    Attributes:
        workload: the workload that the spec asks for, and its servers.
        former: the one of the other kind, while it is still there.
        disruption_budget: its PodDisruptionBudget.
        autoscaler: its HorizontalPodAutoscaler.
        secrets: what the Secrets that the spec names hold.
        served: what ready servers said of their certificates, by pod; empty where there was no cause to ask.
    """

    workload: Workload
    former: Workload | None = None
    disruption_budget: Obj | None = None
    autoscaler: Obj | None = None
    secrets: Secrets = field(default_factory=Secrets)
    served_certificates: Mapping[str, ServedCertificate] = field(default_factory=dict)


Observe = Callable[[Memcached, Cache, Kube], Awaitable[Observed]]


def observer(connect: Connect) -> Observe:
    """Gathers what there is of a Memcached.

    Args:
        connect: to a running server.
    """
    return partial(_observe, connect)


async def _observe(connect: Connect, resource: Memcached, cache: Cache, kube: Kube) -> Observed:
    key = Key(resource.namespace, resource.name)
    pods = [pod for obj in cache.owned(POD, key) if not (pod := Pod.of(obj, container=CONTAINER)).ended]
    workloads = {
        name: Workload(kind, cache.get(kind, *key), tuple(pod for pod in pods if _belongs(pod, kind)))
        for name, kind in WORKLOADS.items()
    }
    workload = workloads.pop(resource.spec.workload)
    (other,) = workloads.values()
    secrets = await read_secrets(resource, kube)
    return Observed(
        workload=workload,
        former=other if ownership.made_for(resource.uid, other.obj) else None,
        disruption_budget=ownership.made_for(resource.uid, cache.get(DISRUPTION_BUDGET, *key)),
        autoscaler=ownership.made_for(resource.uid, cache.get(AUTOSCALER, *key)),
        secrets=secrets,
        served_certificates=await _served_certificates(connect, resource, workload, secrets),
    )


def _belongs(pod: Pod, kind: Kind) -> bool:
    """Whether a pod is of a workload of this kind; those of a Deployment belong to its ReplicaSets."""
    return (pod.controller == STATEFUL_SET.name) == (kind == STATEFUL_SET)


async def _served_certificates(
    connect: Connect, resource: Memcached, workload: Workload, secrets: Secrets
) -> dict[str, ServedCertificate]:
    """What servers say of their certificates, where not all are known to serve the Secret's."""
    if secrets.pair is None or secrets.fingerprint == resource.certificate:
        return {}
    requests = [
        inspect_certificate(connect, pod.address, resource.spec.container_port, secrets) for pod in workload.ready
    ]
    answers = await asyncio.gather(*requests)
    return dict(zip((pod.name for pod in workload.ready), answers, strict=True))
