"""Custom resources of a benchmark on the local cluster, with the times of their pods."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client, config

from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.load import watched
from e2e.scenarios.support.resource import Resource, conditions
from tools.local.errors import ClusterError
from tools.local.paths import KUBECONFIG

POLL_INTERVAL_SECONDS = 0.02
"""Interval between two reads of a status."""

READY_TIMEOUT_SECONDS = 300.0
"""Time allowed for a resource to become Ready."""


@dataclass
class Starts:
    """Times at which pods were created and became ready, by the arrival of watch events.

    Attributes:
        created: time of the first event in seconds of a monotonic clock, by UID of the pod.
        ready: time of the first event with the condition Ready, by UID of the pod.
    """

    created: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    def record(self, uid: str, conditions: Mapping[str, str], now: float) -> None:
        """Record an event of a pod.

        Args:
            uid: UID of the pod.
            conditions: status of each condition of the pod.
            now: time of the event.
        """
        self.created.setdefault(uid, now)
        if conditions.get("Ready") == "True":
            self.ready.setdefault(uid, now)

    @property
    def own(self) -> list[float]:
        """Seconds from creation to readiness of each pod that became ready, in order of creation."""
        found = sorted(self.ready, key=self.created.__getitem__)
        return [self.ready[uid] - self.created[uid] for uid in found]

    @property
    def together(self) -> float:
        """Seconds from the creation of the first pod to the readiness of the last."""
        return max(self.ready.values()) - min(self.created.values())


class Resources:
    """Resources of one kind in a namespace of the local cluster.

    Args:
        kubectl: kubectl in the namespace.
        environment: environment variables, with KUBECONFIG.
        kind: kind of the resources.
        plural: plural name of the kind in API paths.
        component: component label of the pods.
        ready: status field with the number of ready pods.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        environment: Mapping[str, str],
        kind: type[Resource],
        plural: str,
        *,
        component: str,
        ready: str,
    ) -> None:
        self.kubectl = kubectl
        self._kind, self._component, self._ready = kind, component, ready
        group, version = kind.API_VERSION.split("/")
        self._where = {"group": group, "version": version, "namespace": kubectl.namespace, "plural": plural}
        connection: Any = config.new_client_from_config(environment["KUBECONFIG"])  # type: ignore[no-untyped-call]
        self._resources: Any = client.CustomObjectsApi(connection)
        self._core: Any = client.CoreV1Api(connection)

    @classmethod
    @contextmanager
    def on_cluster(cls, kind: type[Resource], plural: str, *, component: str, ready: str) -> Iterator[Resources]:
        """Use a new namespace, which is deleted at the end of the context.

        Raises:
            ClusterError: no cluster is running.
        """
        if not KUBECONFIG.exists():
            raise ClusterError(f"no cluster is running: {KUBECONFIG} does not exist", "make up")
        environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG)}
        kubectl = Kubectl(f"bench-{uuid.uuid4().hex[:8]}", environment)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": kubectl.namespace, "labels": labels}
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            yield cls(kubectl, environment, kind, plural, component=component, ready=ready)
        finally:
            kubectl("delete", "namespace", kubectl.namespace, "--wait=false", "--ignore-not-found")

    def create(self, name: str, **spec: Any) -> None:
        """Create a resource without waiting."""
        self._resources.create_namespaced_custom_object(**self._where, body=self._kind.manifest(name, **spec))

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of the spec without waiting."""
        self._resources.patch_namespaced_custom_object(**self._where, name=name, body={"spec": spec})

    def delete(self, name: str) -> None:
        """Delete a resource without waiting."""
        self._resources.delete_namespaced_custom_object(**self._where, name=name)

    def await_ready(self, name: str, size: int) -> float:
        """Wait until a resource reports Ready for its current generation with `size` ready pods; return the time.

        Raises:
            AssertionError: the resource was not Ready in time.
        """
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        found: dict[str, Any] = {}
        while time.monotonic() < deadline:
            found = self._resources.get_namespaced_custom_object(**self._where, name=name)
            now, status = time.monotonic(), found.get("status", {})
            is_current = status.get("observedGeneration") == found["metadata"]["generation"]
            if is_current and conditions(found).get("Ready") == "True" and status.get(self._ready) == size:
                return now
            time.sleep(POLL_INTERVAL_SECONDS)
        raise AssertionError(
            f"{name} was not Ready with {size} pods within {READY_TIMEOUT_SECONDS:g} s; status: {found.get('status')}"
        )

    @contextmanager
    def starts(self, name: str) -> Iterator[Starts]:
        """Record the starts of a resource's pods until the end of the context, except of pods that exist already."""
        starts, begun = Starts(), time.monotonic()
        labels = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={self._component}"
        listed = self._core.list_namespaced_pod(self.kubectl.namespace, label_selector=labels)
        before = {pod.metadata.uid for pod in listed.items}
        version = listed.metadata.resource_version

        def record(_: str, pod: Any) -> None:
            if pod.metadata.uid not in before:
                found = {condition.type: condition.status for condition in pod.status.conditions or ()}
                starts.record(pod.metadata.uid, found, time.monotonic() - begun)

        listing = self._core.list_namespaced_pod
        with watched(listing, record, self.kubectl.namespace, label_selector=labels, resource_version=version):
            yield starts
            time.sleep(0.5)  # for events that have not arrived yet
