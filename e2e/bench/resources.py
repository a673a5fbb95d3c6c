"""Resources of one kind that a bench makes on the local cluster: how long they take, and how long their pods do."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client, config

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import KUBECONFIG
from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.load import watched
from e2e.scenarios.support.resource import Resource, conditions

LOOK = 0.02
"""Seconds between two looks at a status."""

PATIENCE = 300.0
"""Seconds after which what does not come is a failure."""


@dataclass
class Starts:
    """When pods were created and when they were ready, by the arrival of what a watch tells.

    Attributes:
        created, ready: seconds of one clock, by the pod's UID.
    """

    created: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    def see(self, uid: str, conditions: Mapping[str, str], now: float) -> None:
        """A pod as it is told now; what was before is not told again.

        Args:
            conditions: the status of each of its conditions.
        """
        self.created.setdefault(uid, now)
        if conditions.get("Ready") == "True":
            self.ready.setdefault(uid, now)

    @property
    def own(self) -> list[float]:
        """Seconds that each pod took that became ready, in the order of their creation."""
        found = sorted(self.ready, key=self.created.__getitem__)
        return [self.ready[uid] - self.created[uid] for uid in found]

    @property
    def together(self) -> float:
        """Seconds from the creation of the first to the readiness of the last."""
        return max(self.ready.values()) - min(self.created.values())


class Resources:
    """Resources of a kind, in a namespace of the local cluster.

    Args:
        environment: with KUBECONFIG.
        kind: whose manifests are made.
        plural: its name in paths of the API.
        component: label of its pods.
        ready: field of the status that counts those that are.
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
        """In a namespace of its own, which goes afterwards.

        Raises:
            ClusterError: there is no cluster.
        """
        kubeconfig = os.environ.get("KUBECONFIG") or str(KUBECONFIG)
        if not Path(kubeconfig).exists():
            raise ClusterError(f"there is no cluster: {kubeconfig} does not exist", "make up")
        environment = {**os.environ, "KUBECONFIG": kubeconfig}
        kubectl = Kubectl(f"bench-{uuid.uuid4().hex[:8]}", environment)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": kubectl.namespace, "labels": labels}
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            yield cls(kubectl, environment, kind, plural, component=component, ready=ready)
        finally:
            kubectl("delete", "namespace", kubectl.namespace, "--wait=false", "--ignore-not-found")

    def create(self, name: str, **spec: Any) -> None:
        """Make one, and wait for nothing."""
        self._resources.create_namespaced_custom_object(**self._where, body=self._kind.manifest(name, **spec))

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of its spec, and wait for nothing."""
        self._resources.patch_namespaced_custom_object(**self._where, name=name, body={"spec": spec})

    def delete(self, name: str) -> None:
        """Have it go."""
        self._resources.delete_namespaced_custom_object(**self._where, name=name)

    def await_ready(self, name: str, size: int) -> float:
        """The moment at which it says that its current spec is reality, with so many that are ready.

        Raises:
            AssertionError: it did not come.
        """
        deadline = time.monotonic() + PATIENCE
        found: dict[str, Any] = {}
        while time.monotonic() < deadline:
            found = self._resources.get_namespaced_custom_object(**self._where, name=name)
            now, status = time.monotonic(), found.get("status", {})
            is_current = status.get("observedGeneration") == found["metadata"]["generation"]
            if is_current and conditions(found).get("Ready") == "True" and status.get(self._ready) == size:
                return now
            time.sleep(LOOK)
        raise AssertionError(f"{name}: not Ready with {size} within {PATIENCE:g} s: {found.get('status')}")

    @contextmanager
    def starts(self, name: str) -> Iterator[Starts]:
        """When the pods of a resource start within the block; those that are there already do not count."""
        starts, begun = Starts(), time.monotonic()
        labels = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={self._component}"
        listed = self._core.list_namespaced_pod(self.kubectl.namespace, label_selector=labels)
        before = {pod.metadata.uid for pod in listed.items}
        version = listed.metadata.resource_version

        def see(_: str, pod: Any) -> None:
            if pod.metadata.uid not in before:
                found = {condition.type: condition.status for condition in pod.status.conditions or ()}
                starts.see(pod.metadata.uid, found, time.monotonic() - begun)

        listing = self._core.list_namespaced_pod
        with watched(listing, see, self.kubectl.namespace, label_selector=labels, resource_version=version):
            yield starts
            time.sleep(0.5)  # what is on its way
