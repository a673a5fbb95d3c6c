"""Observation of one Memcached as a frozen value: from the cache, and live for Secrets and served certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import TypeVar

from operators.memcached.api.resource import WORKLOADS, Memcached, workload_kind
from operators.memcached.objects.names import owner, server_hosts
from operators.memcached.objects.pod import CONTAINER, attestation_port, mounted_certificate, reloads_users
from operators.memcached.replica_sets import ReplicaSets
from operators.memcached.security.certificates import ServedCertificate, inspect_certificate
from operators.memcached.security.connection import Access, Connect
from operators.memcached.security.secrets import Secrets, read_secrets
from operators.memcached.security.users import AcceptedUsers, Attest, inspect_users
from operators.memcached.security.versions import inspect_version
from operators.memcached.traffic import WINDOW_SECONDS, Meter, Traffic, inspect_traffic
from shared.kubernetes import accessors, ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD,
    STATEFUL_SET,
    Key,
    Kind,
    Obj,
)
from shared.kubernetes.pods import Pod, container_status
from shared.runtime.cache import Cache
from shared.steps import connection
from shared.steps.connection import ConnectionSecret
from shared.steps.network_policy import network_policy_name

MAX_COMPARED = 8
"""Maximum number of servers that became ready last, and that became ready first, whose gets are inspected."""


REVISION = "controller-revision-hash"
"""Label of a StatefulSet's pod: the revision of its template."""


@dataclass(frozen=True)
class Workload:
    """A workload and its servers.

    Attributes:
        kind: Deployment or StatefulSet.
        obj: the object; None if it does not exist.
        pods: pods that have not ended, in the order of their names, including those that are being deleted.
        pod_objs: the same pods as objects, without those that are being deleted.
    """

    kind: Kind
    obj: Obj | None = None
    pods: tuple[Pod, ...] = ()
    pod_objs: tuple[Obj, ...] = ()

    @cached_property
    def ready(self) -> tuple[Pod, ...]:
        """Pods that are ready for clients."""
        return tuple(pod for pod in self.pods if pod.ready)

    @cached_property
    def current(self) -> tuple[Pod, ...]:
        """Pods that are not being deleted, ready or not."""
        return tuple(pod for pod in self.pods if not pod.leaving)

    @property
    def outdated(self) -> int:
        """Number of pods of an earlier template.

        In the status of a StatefulSet, one that is being deleted is no updated replica, so that its pods are counted.
        """
        if self.kind == STATEFUL_SET and (revision := self._status.get("updateRevision")):
            return sum((pod["metadata"].get("labels") or {}).get(REVISION) != revision for pod in self.pod_objs)
        return int(self._status.get("replicas", 0)) - self.updated

    @property
    def updated(self) -> int:
        """Number of pods of the current template, as reported in the workload's status."""
        return int(self._status.get("updatedReplicas", 0))

    @property
    def rolled_out(self) -> bool:
        """Whether the workload's controller has observed the current generation."""
        if self.obj is None:
            return False
        return int(self._status.get("observedGeneration", 0)) >= int(self.obj["metadata"]["generation"])

    @property
    def port(self) -> int | None:
        """Port on which the servers listen, which is not that of a spec that was not applied; None if it is unknown."""
        containers = self.obj["spec"]["template"]["spec"]["containers"] if self.obj else ()
        ports = (port for each in containers if each["name"] == CONTAINER for port in each.get("ports", ()))
        return next((port["containerPort"] for port in ports if port["name"] == CONTAINER), None)

    @property
    def pause(self) -> int:
        """Time for which a new server must be ready before the next one is replaced, in seconds."""
        return int((self.obj or {}).get("spec", {}).get("minReadySeconds") or 0)

    @cached_property
    def ready_since(self) -> Mapping[str, datetime]:
        """Time since which each ready pod is ready, as the kubelet reports it; without those that are unknown."""
        names = {pod.name for pod in self.ready}
        found = {pod["metadata"]["name"]: accessors.condition(pod, "Ready") for pod in self.pod_objs}
        return {
            name: datetime.fromisoformat(ready["lastTransitionTime"])
            for name, ready in found.items()
            if name in names and ready.get("status") == "True" and ready.get("lastTransitionTime")
        }

    @cached_property
    def attestation_ports(self) -> Mapping[str, int | None]:
        """Port at which the sidecar of each pod attests what its server runs; None if it attests nothing."""
        return {pod["metadata"]["name"]: attestation_port(pod) for pod in self.pod_objs}

    @cached_property
    def image_ids(self) -> Mapping[str, str]:
        """ID of the image that the server of each pod runs, by pod; without those that are unknown."""
        statuses = {pod["metadata"]["name"]: container_status(pod, CONTAINER) for pod in self.pod_objs}
        return {name: found["imageID"] for name, found in statuses.items() if found.get("imageID")}

    def speaking(self, *, tls: bool) -> tuple[Pod, ...]:
        """Return the ready servers that use TLS, or those that do not: a change of `spec.tls` replaces one by one."""
        encrypting = {pod["metadata"]["name"] for pod in self.pod_objs if mounted_certificate(pod)}
        return tuple(pod for pod in self.ready if (pod.name in encrypting) == tls)

    def mounting(self, secret: str) -> frozenset[str]:
        """Return the names of the pods that mount a Secret."""
        return frozenset(
            pod["metadata"]["name"]
            for pod in self.pod_objs
            for volume in pod["spec"].get("volumes", ())
            if (volume.get("secret") or {}).get("secretName") == secret
        )

    @property
    def replica_failure(self) -> str:
        """Reason why the API server rejects pods of the Deployment (a quota, admission); empty if it does not."""
        failure = accessors.condition(self.obj or {}, "ReplicaFailure")
        if failure.get("status") != "True":
            return ""
        return str(failure.get("message") or failure.get("reason") or "no pod can be created")

    @property
    def uncreated(self) -> int:
        """Number of pods that a StatefulSet has not created, for a reason that only its events have.

        Its status counts new pods a moment after their creation, and a deleted one until it is created again.
        """
        if self.obj is None or self.kind != STATEFUL_SET or not self.rolled_out:
            return 0
        return max(0, int(self.obj["spec"]["replicas"]) - max(len(self.pods), int(self._status.get("replicas", 0))))

    @property
    def _status(self) -> Obj:
        return (self.obj or {}).get("status") or {}


@dataclass(frozen=True)
class Observed:
    """Observed state of a Memcached.

    Attributes:
        workload: workload of the kind that the resource is to have (`workload_kind`), and its servers.
        former: workload of the other kind, while it still exists.
        disruption_budget: PodDisruptionBudget with that name, of any owner.
        network_policy: NetworkPolicy, likewise.
        autoscaler: HorizontalPodAutoscaler, likewise.
        secrets: contents of the Secrets that the spec names.
        served_certificates: certificates of the ready servers, by pod; empty if no inspection was necessary.
        accepted_users: whether the ready servers accept the users in the Secret, by pod; likewise.
        server_images: version that servers of each running image report, by the ID of the image, as far as it is known.
        traffic: gets of ready servers, by pod; empty if no update is in progress that waits for them.
        connection: the Secret for clients; None if it was not read.
    """

    workload: Workload
    former: Workload | None = None
    disruption_budget: Obj | None = None
    network_policy: Obj | None = None
    autoscaler: Obj | None = None
    secrets: Secrets = field(default_factory=Secrets)
    served_certificates: Mapping[str, ServedCertificate] = field(default_factory=dict)
    accepted_users: Mapping[str, AcceptedUsers] = field(default_factory=dict)
    server_images: Mapping[str, str] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    connection: ConnectionSecret | None = None


Observe = Callable[[Memcached, Cache, Kube], Awaitable[Observed]]


def observer(connect: Connect, attest: Attest) -> Observe:
    """Return a function that observes a Memcached.

    Args:
        connect: opens a connection to a running server.
        attest: queries the sidecar of a running server.
    """
    return partial(_observe, connect, attest, Meter(), ReplicaSets())


async def _observe(
    connect: Connect,
    attest: Attest,
    meter: Meter,
    replica_sets: ReplicaSets,
    resource: Memcached,
    cache: Cache,
    kube: Kube,
) -> Observed:
    key = Key(resource.namespace, resource.name)
    pods = cache.owned(POD, key)
    found = {kind: cache.get(kind, *key) for kind in WORKLOADS.values()}
    workloads = {kind: await _workload(kind, obj, pods, replica_sets, kube) for kind, obj in found.items()}
    workload = workloads.pop(_kind(resource, found))
    (other,) = workloads.values()
    # With authentication, the Secret may remember a password from which another one is restored.
    is_new = resource.is_new and resource.spec.auth is None
    connected = await connection.read(kube, cache, resource.obj, is_new=is_new)
    is_former = workload.obj is not None and not reloads_users(workload.obj["spec"]["template"])
    mounted = mounted_certificate(workload.obj["spec"]["template"]) if workload.obj is not None else None
    secrets = await read_secrets(resource, kube, connected, mounted, hashes_users=is_former)
    port = workload.port or resource.spec.container_port
    access = Access(connect, port, secrets, resource.certificate, server_hosts(resource))
    return Observed(
        workload=workload,
        former=other if ownership.owned_by(resource.uid, other.obj) else None,
        disruption_budget=cache.get(DISRUPTION_BUDGET, *key),
        network_policy=cache.get(NETWORK_POLICY, key.namespace, network_policy_name(key.name)),
        autoscaler=cache.get(AUTOSCALER, *key),
        secrets=secrets,
        served_certificates=await _served_certificates(access, resource, workload),
        accepted_users=await _accepted_users(access, attest, resource, workload),
        server_images=await _server_images(access, attest, resource, workload),
        traffic=await _traffic(access, meter, resource, workload),
        connection=connected,
    )


def _kind(resource: Memcached, found: Mapping[Kind, Obj | None]) -> Kind:
    """Return the kind of the workload.

    Raises:
        FormerObject: a workload of a former resource of the name exists. The garbage collector deletes it, or removes
            its owner: then it is adopted, and decides.
    """
    own = owner(resource, "")
    labels = {ownership.NAME: own.application, ownership.INSTANCE: own.name}  # what is watched has that of the operator
    present = {kind: obj for kind, obj in found.items() if obj and "deletionTimestamp" not in obj["metadata"]}
    existing = [kind for kind, obj in present.items() if ownership.belongs_to(obj, own.uid, labels)]
    if resource.chosen_workload is None and not existing:
        for obj in present.values():
            if (controller := ownership.controller_of(obj)) and own.was(controller):
                ownership.require_owned({"metadata": {"ownerReferences": [own.reference()]}}, obj)
    return workload_kind(resource, existing)


async def _workload(
    kind: Kind, obj: Obj | None, pods: Iterable[Obj], replica_sets: ReplicaSets, kube: Kube
) -> Workload:
    """Return a workload with its pods that have not ended.

    Its pods are those whose controller is the workload, or a ReplicaSet of it, by UID: any pod may have its labels.
    """
    if obj is None:
        return Workload(kind)
    uids = {obj["metadata"]["uid"]} if kind != DEPLOYMENT else await replica_sets.of(obj, pods, kube)
    own = [pod for pod in pods if (ownership.controller_of(pod) or {}).get("uid") in uids]
    found = [(pod, server) for pod in own if not (server := Pod.of(pod, container=CONTAINER)).ended]
    present = tuple(pod for pod, server in found if not server.leaving)
    return Workload(kind, obj, tuple(server for _, server in found), present)


async def _served_certificates(access: Access, resource: Memcached, workload: Workload) -> dict[str, ServedCertificate]:
    """Inspect the certificates of the ready servers, unless the status records that all serve the Secret's.

    While a CA does not sign yet, the inspection shows when servers that verify clients last loaded their files.
    """
    secrets = access.secrets
    awaits_trust = secrets.successor is not None and resource.spec.needs_client_certificate
    if secrets.pair is None or (secrets.fingerprint == resource.certificate and not awaits_trust):
        return {}
    return await _inspect(workload.speaking(tls=True), lambda pod: inspect_certificate(access, pod.address))


async def _accepted_users(
    access: Access, attest: Attest, resource: Memcached, workload: Workload
) -> dict[str, AcceptedUsers]:
    """Inspect the users of the ready servers, unless the status records that all have loaded those of the Secret.

    Servers that do not reload the file have read it when they started: a change replaces them.
    """
    secrets = access.secrets
    is_recorded = resource.users_digest == secrets.users_digest
    if not secrets.users or is_recorded or workload.obj is None or not reloads_users(workload.obj["spec"]["template"]):
        return {}
    ports = workload.attestation_ports
    return await _inspect(workload.ready, lambda pod: inspect_users(access, attest, pod.address, ports.get(pod.name)))


async def _server_images(access: Access, attest: Attest, resource: Memcached, workload: Workload) -> dict[str, str]:
    """Query one ready server of each running image whose version the status does not record."""
    ids, ports = workload.image_ids, workload.attestation_ports
    known = {image: version for image, version in resource.server_images.items() if image in ids.values()}
    queried = {ids[pod.name]: pod for pod in workload.ready if pod.name in ids and ids[pod.name] not in known}
    found = await asyncio.gather(
        *(inspect_version(access, attest, pod.address, ports.get(pod.name)) for pod in queried.values())
    )
    return known | {image: version for image, version in zip(queried, found, strict=True) if version}


async def _traffic(access: Access, meter: Meter, resource: Memcached, workload: Workload) -> dict[str, Traffic]:
    """Query the servers while a change replaces them: those that became ready last, and some of the others."""
    if workload.outdated <= 0 or resource.spec.update_strategy.pause_seconds <= WINDOW_SECONDS:
        meter.forget(resource.uid)
        return {}
    since = workload.ready_since
    spoken = workload.speaking(tls=access.secrets.pair is not None)
    pods = sorted((pod for pod in spoken if pod.name in since), key=lambda pod: since[pod.name])
    pods = pods if len(pods) <= 2 * MAX_COMPARED else pods[:MAX_COMPARED] + pods[-MAX_COMPARED:]
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in workload.pod_objs}
    meter.forget(resource.uid, but=uids.values())
    found = await asyncio.gather(*(inspect_traffic(access, pod.address) for pod in pods))
    return {
        pod.name: Traffic(error=each) if isinstance(each, str) else meter.add(resource.uid, uids[pod.name], each)
        for pod, each in zip(pods, found, strict=True)
    }


_Report = TypeVar("_Report")


async def _inspect(pods: Sequence[Pod], inspect: Callable[[Pod], Awaitable[_Report]]) -> dict[str, _Report]:
    """Return the reports on servers, by pod."""
    reports = await asyncio.gather(*map(inspect, pods))
    return dict(zip((pod.name for pod in pods), reports, strict=True))
