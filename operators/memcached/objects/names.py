"""Names and addresses of what a Memcached owns. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import API, Memcached
from shared.kubernetes.ownership import Owner


def owner(resource: Memcached, operator: str) -> Owner:
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "memcached", operator)


def server_name(resource: Memcached, number: int) -> str:
    """The pod of a StatefulSet by its number."""
    return f"{resource.name}-{number}"


def server_address(resource: Memcached, number: int) -> str:
    """The name and port by which clients know a server of a StatefulSet."""
    name = f"{server_name(resource, number)}.{resource.name}.{resource.namespace}.svc"
    return f"{name}:{resource.spec.container_port}"
