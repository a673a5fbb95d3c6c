"""Names, ports and labels of the objects that an EtcdCluster owns. Pure."""

from __future__ import annotations

import re

from operators.etcd.api.resource import API, EtcdCluster
from shared.kubernetes.ownership import Owner

COMPONENT = "member"
CONTAINER = "etcd"

CLIENT, PEER, METRICS = "client", "peer", "metrics"
CLIENT_PORT, PEER_PORT, METRICS_PORT = 2379, 2380, 2381

DATA = "data"
"""Name of the volume, and of the directory in it, that holds what a member has stored."""

SECRETS = "etcd.ydzs.io/secrets"
"""Annotation of pods: a digest of what etcd reads from Secrets at its start alone; another one restarts members."""

SERVES = "etcd.ydzs.io/serves"
CLIENTS = "clients"
"""Label and its value of pods that clients may be sent to: etcd refuses clients of a member that has no vote yet."""

CLUSTER_UID = "etcd.ydzs.io/cluster-uid"
"""Label of volume claims: the UID of the resource whose data they hold. One of the same name is another's."""


def owner(resource: EtcdCluster, operator: str) -> Owner:
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "etcd", operator)


def member_name(resource: EtcdCluster, number: int) -> str:
    """Name of the pod and of the member at a place."""
    return f"{resource.name}-{number}"


def volume_name(resource: EtcdCluster, number: int) -> str:
    """Name of the volume claim at a place, as a StatefulSet makes it of its template."""
    return f"{DATA}-{member_name(resource, number)}"


def host(resource: EtcdCluster, member: str) -> str:
    """DNS name of a member's pod, in any cluster domain: it is completed by the pod's search list."""
    return f"{member}.{resource.name}.{resource.namespace}.svc"


def peer_url(resource: EtcdCluster, number: int) -> str:
    """Where the other members reach the one at a place; by it a member is told from others."""
    return peer_url_of(resource, member_name(resource, number))


def peer_url_of(resource: EtcdCluster, member: str) -> str:
    return f"{scheme(resource)}://{host(resource, member)}:{PEER_PORT}"


def client_url_of(resource: EtcdCluster, member: str) -> str:
    return f"{scheme(resource)}://{host(resource, member)}:{CLIENT_PORT}"


def scheme(resource: EtcdCluster) -> str:
    """Members and clients are encrypted together, or not at all."""
    return "http" if resource.spec.tls.mode == "none" else "https"


def client_service_name(resource: EtcdCluster) -> str:
    return f"{resource.name}-client"


def authority_secret(resource: EtcdCluster) -> str:
    """Where tls.mode is self: the Secret with what signs the cluster's certificates; nobody mounts it."""
    return f"{resource.name}-ca"


def peer_secret(resource: EtcdCluster) -> str:
    """The Secret with the certificate that members show each other."""
    tls = resource.spec.tls
    return (tls.peer.secret_name or "") if tls.mode == "secret" else f"{resource.name}-peer-tls"


def server_secret(resource: EtcdCluster) -> str:
    """The Secret with the certificate that members show clients."""
    tls = resource.spec.tls
    return (tls.client.secret_name or "") if tls.mode == "secret" else f"{resource.name}-server-tls"


def client_secret(resource: EtcdCluster) -> str:
    """The Secret with the certificate that the operator, and whoever may read it, shows members."""
    return server_secret(resource) if resource.spec.tls.mode == "secret" else f"{resource.name}-client-tls"


def number_of(resource: EtcdCluster, name_or_url: str) -> int | None:
    """The place of a member, by its name or one of its peer URLs; None if it is of no place of this cluster."""
    name, separator, rest = name_or_url.removeprefix("http://").removeprefix("https://").partition(".")
    if separator and rest != f"{resource.name}.{resource.namespace}.svc:{PEER_PORT}":
        return None
    found = re.fullmatch(rf"{re.escape(resource.name)}-(0|[1-9][0-9]{{0,8}})", name)
    return int(found[1]) if found else None
