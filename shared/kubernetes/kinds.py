"""Kinds of Kubernetes objects and their paths on the API server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.kubernetes.errors import NotFound

Obj = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON."""

_SEGMENT = re.compile(r"[-.:\w]{0,252}\w", re.ASCII)
"""Text that is one part of a path, and may name an object. Users can edit what is read as a name."""


class Key(NamedTuple):
    """Namespace and name of a resource: the unit of work of the queue and the cache."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object and its path on the API server.

    Attributes:
        group: API group, empty for the core group.
        version: served version, such as `v1`.
        name: name of the kind, such as `Deployment`.
        plural: resource name in URLs, such as `deployments`.
        namespaced: whether objects are namespaced.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of an object, or of a subresource.

        Raises:
            NotFound: no object can have the name, which would be another path.
        """
        if wrong := [part for part in (namespace, name) if part and not _SEGMENT.fullmatch(part)]:
            raise NotFound(f"{self} {wrong[0]!r:.100}: no object has this name")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)

    def __str__(self) -> str:
        return self.name


DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
SERVICE = Kind("", "v1", "Service", "services")
POD = Kind("", "v1", "Pod", "pods")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
EVENT = Kind("", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
