"""Observed state of a Memcached as one frozen value; observe.py collects it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from operators.memcached.client.errors import Unreachable
from operators.memcached.objects.pod import (
    CONTAINER,
    SECRETS,
    attestation_port,
    attests_users,
    mounted_certificate,
    mounted_secrets,
    server_port,
    speaks_ascii,
)
from operators.memcached.security.certificates import ServedCertificate
from operators.memcached.security.secrets import Secrets
from operators.memcached.security.users import AcceptedUsers
from operators.memcached.traffic import Traffic
from shared.kubernetes import accessors
from shared.kubernetes.kinds import STATEFUL_SET, Kind, Obj
from shared.kubernetes.pods import Pod, container_status
from shared.steps.connection import ConnectionSecret

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

    def joined(self, other: Workload | None) -> Workload:
        """Return this workload with the servers of both."""
        if other is None:
            return self
        return replace(self, pods=self.pods + other.pods, pod_objs=self.pod_objs + other.pod_objs)

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

    @cached_property
    def ports(self) -> Mapping[str, int]:
        """Port on which the server of each ready pod listens, by IP address. It is not that of a spec that is not
        applied, and a change of `spec.containerPort` replaces one server after the other.
        """
        found = {pod["metadata"]["name"]: server_port(pod) for pod in self.pod_objs}
        return {pod.address: port for pod in self.ready if (port := found.get(pod.name))}

    @cached_property
    def starts_alike(self) -> bool:
        """Whether all pods have started with the data that the template requires (`SECRETS`)."""
        required = accessors.annotation(self.obj["spec"]["template"], SECRETS) if self.obj else ""
        return all(accessors.annotation(pod, SECRETS) == required for pod in self.pod_objs)

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
    def queryable(self) -> frozenset[str]:
        """Names of the pods whose server responds to ASCII commands; others serve without responding to them."""
        return frozenset(pod["metadata"]["name"] for pod in self.pod_objs if speaks_ascii(pod))

    @cached_property
    def attesting_users(self) -> Mapping[str, int | None]:
        """The same ports, without those of sidecars that cannot attest the users file: they have no key."""
        return {pod["metadata"]["name"]: attestation_port(pod) for pod in self.pod_objs if attests_users(pod)}

    @cached_property
    def image_ids(self) -> Mapping[str, str]:
        """ID of the image that the server of each pod runs, by pod; without those that are unknown."""
        statuses = {pod["metadata"]["name"]: container_status(pod, CONTAINER) for pod in self.pod_objs}
        return {name: found["imageID"] for name, found in statuses.items() if found.get("imageID")}

    def speaking(self, *, tls: bool) -> tuple[Pod, ...]:
        """Return the ready servers that use TLS, or those that do not: a change of `spec.tls` replaces one by one."""
        encrypting = {pod["metadata"]["name"] for pod in self.pod_objs if mounted_certificate(pod)}
        return tuple(pod for pod in self.ready if (pod.name in encrypting) == tls)

    def differing(self, mounted: Callable[[Obj], str], *, required: bool) -> bool:
        """Return whether a pod, or the template of later ones, has a Secret that is not required, or lacks it.

        Args:
            mounted: returns the Secret that a pod mounts, such as `mounted_users`.
        """
        template = [self.obj["spec"]["template"]] if self.obj else []
        return any(bool(mounted(each)) != required for each in (*template, *self.pod_objs))

    def mounting(self, secret: str) -> frozenset[str]:
        """Return the names of the pods that mount a Secret."""
        return frozenset(pod["metadata"]["name"] for pod in self.pod_objs if secret in mounted_secrets(pod))

    @property
    def mounted(self) -> frozenset[str]:
        """Secrets that pods mount, or that the next ones will."""
        template = [self.obj["spec"]["template"]] if self.obj else []
        return frozenset().union(*map(mounted_secrets, (*template, *self.pod_objs)))

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
        unresponsive: ready servers without a sidecar that do not respond, by pod: why.
        outages: seconds for which these are known not to respond, by pod.
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
    unresponsive: Mapping[str, Unreachable] = field(default_factory=dict)
    outages: Mapping[str, float] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    connection: ConnectionSecret | None = None
