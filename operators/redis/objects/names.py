"""Names of a RedisCluster's nodes and owned objects, and the labels and annotations that they carry. Pure."""

from __future__ import annotations

import re

from operators.redis.api.resource import API, RedisCluster
from shared.kubernetes.ownership import Owner

COMPONENT = "node"
CONTAINER, EXPORTER = "redis", "exporter"

CLIENT, BUS, METRICS = "client", "bus", "metrics"
METRICS_PORT = 9121

EXPORTER_USER, EXPORTER_PASSWORD_KEY = "exporter", "exporterPassword"
"""The ACL user that reads metrics, and the key of its password in our Secret with the users."""

DATA = "data"
"""Name of the volume that holds what a node has stored, and who it is."""

SERVES = "redis.middleware.hc.cn/serves"
CLIENTS = "clients"
"""Label and its value of pods that clients may be sent to: a kubelet finds a server ready that is in no cluster yet."""

USERS_MARK = "redis.middleware.hc.cn/users"
CERTIFICATE_MARK = "redis.middleware.hc.cn/certificate"
CONFIG_MARK = "redis.middleware.hc.cn/configured"
"""Annotations of pods: what of users, certificates and settings its server has heard (telling.py)."""

READ_ONCE = "redis.middleware.hc.cn/read-once"
"""Annotation of pods: the digest of what a server reads of redis.conf at its start alone; another one rolls them."""

CLUSTER_UID = "redis.middleware.hc.cn/cluster-uid"
"""Label of the StatefulSet and of volume claims: the UID of the resource whose data they hold."""


def owner(resource: RedisCluster, operator: str) -> Owner:
    """Whose the objects are; with spec.finalizers empty they outlive the resource."""
    return Owner(
        API.kind,
        resource.namespace,
        resource.name,
        resource.uid,
        "redis",
        operator,
        lasting=not resource.spec.finalizers,
    )


def node_name(resource: RedisCluster, number: int) -> str:
    """Name of the pod at a place."""
    return f"{resource.name}-{number}"


def number_of(resource: RedisCluster, name: str) -> int | None:
    """The place of a pod, by its name; None if it is of no place of this cluster."""
    return _number(resource.name, name)


def volume_name(resource: RedisCluster, number: int) -> str:
    """Name of the volume claim at a place, as a StatefulSet makes it of its template."""
    return f"{DATA}-{node_name(resource, number)}"


def volume_number(resource: RedisCluster, name: str) -> int | None:
    """The place of a volume claim, by its name; None if it is of no place of this cluster."""
    return _number(f"{DATA}-{resource.name}", name)


def _number(before: str, name: str) -> int | None:
    found = re.fullmatch(rf"{re.escape(before)}-(0|[1-9][0-9]{{0,8}})", name)
    return int(found[1]) if found else None


def host(resource: RedisCluster, node: str) -> str:
    """DNS name of a node's pod, in any cluster domain: it is completed by the pod's search list."""
    return f"{node}.{resource.name}.{resource.namespace}.svc"


def domain_name(resource: RedisCluster, node: str) -> str:
    """The same with the domain that most clusters have, as the status tells it."""
    return f"{host(resource, node)}.cluster.local"


def client_service_name(resource: RedisCluster) -> str:
    return f"{resource.name}-client"


def config_name(resource: RedisCluster) -> str:
    """The ConfigMap with redis.conf."""
    return f"{resource.name}-config"


def users_secret(resource: RedisCluster) -> str:
    """Our Secret with the users that nodes start with; there is one also where nobody is asked for a password."""
    return f"{resource.name}-users"


def tls_secret(resource: RedisCluster) -> str:
    """Our Secret with the certificate and the authorities that nodes mount (certificates.py)."""
    return f"{resource.name}-nodes-tls"


def authority_secret(resource: RedisCluster) -> str:
    """Where tls.mode is self: the Secret with what signs the cluster's certificates; nobody mounts it."""
    return f"{resource.name}-ca"


def server_secret(resource: RedisCluster) -> str:
    """The Secret with the certificate that nodes show clients and each other; empty where there is no TLS."""
    tls = resource.spec.tls
    if tls.mode == "none":
        return ""
    return (tls.secret_name or "") if tls.mode == "secret" else f"{resource.name}-server-tls"


def client_secret(resource: RedisCluster) -> str:
    """The Secret with the certificate that the operator, and whoever may read it, shows nodes."""
    return server_secret(resource) if resource.spec.tls.mode == "secret" else f"{resource.name}-client-tls"
