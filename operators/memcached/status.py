"""Status of a Memcached, from its observed state. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.objects.names import owner, server_address, server_name
from operators.memcached.objects.pod import COMPONENT
from shared.api.image import Image
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.ownership import selector_text
from shared.runtime.settings import Settings


def report(settings: Settings, resource: Memcached, facts: Assessment, phase: str) -> Obj:
    """Return the whole status, without conditions."""
    workload, image = facts.serving_workload, resource.spec.image_reference(settings.image_repository)
    found: Obj = {
        "phase": phase,
        "replicas": len(workload.current),
        "readyReplicas": len(workload.ready),
        "selector": selector_text(owner(resource, settings.operator).selector(COMPONENT)),
        "image": image,
        "version": _version(image),
        "nodes": [pod.name for pod in workload.current],
        "servers": _servers(resource, facts),
    }
    checked = {"certificate": _certificate(resource, facts), "users": _users(resource, facts)}
    return found | {name: value for name, value in checked.items() if value}


def _version(image: str) -> str:
    try:
        return Image.parse(image).version
    except ValueError:  # the image is invalid, and the spec is rejected
        return ""


def _servers(resource: Memcached, facts: Assessment) -> list[str]:
    """Return the addresses of the servers, for clients.

    With a StatefulSet, a server that was ready once stays listed while it is not ready: the hash ring that clients
    build from the list must not change while a server is replaced.
    """
    workload = facts.serving_workload
    if workload.kind != STATEFUL_SET:
        return sorted(f"{_host(pod.address)}:{resource.spec.container_port}" for pod in workload.ready)
    ready, listed = {pod.name for pod in workload.ready}, set(resource.listed_servers)
    addresses = {server_name(resource, n): server_address(resource, n) for n in range(resource.spec.size)}
    return [address for name, address in addresses.items() if name in ready or address in listed]


def _certificate(resource: Memcached, facts: Assessment) -> str:
    """Return the fingerprint that all servers serve, or last served; empty without TLS."""
    if resource.spec.tls is None:
        return ""
    secrets = facts.observed.secrets
    return (
        secrets.fingerprint
        if facts.all_ready and not facts.servers_with_old_certificate and secrets.pair
        else resource.certificate
    )


def _users(resource: Memcached, facts: Assessment) -> str:
    """Return the digest of the users that all servers accept, or last accepted; empty without authentication."""
    if resource.spec.auth is None:
        return ""
    is_current = facts.settled and not facts.servers_with_old_users and facts.observed.secrets.users
    return facts.observed.secrets.users_digest if is_current else resource.users_digest


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
