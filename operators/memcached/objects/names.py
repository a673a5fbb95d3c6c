"""Names and addresses of the owned objects of a Memcached. Pure."""

from __future__ import annotations

from typing import NamedTuple

from operators.memcached.api.resource import API, Memcached
from shared.kubernetes.ownership import Owner
from shared.pki import secret_names
from shared.pki.rotation import in_domains
from shared.steps import passwords


def owner(resource: Memcached, operator: str) -> Owner:
    """Return the resource as an owner of objects."""
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "memcached", operator)


def users_secret(resource: Memcached) -> str:
    """Return the Secret with the users file: that of the user, or the generated one; empty without spec.auth."""
    auth = resource.spec.auth
    return "" if auth is None else auth.secret_name or passwords.secret_name(resource.name)


def server_secret(resource: Memcached) -> str:
    """Return the Secret with the certificate of the servers, which they mount; empty without TLS."""
    tls = resource.spec.tls
    if tls is None or tls.mode == "none":
        return ""
    return (tls.secret_name or "") if tls.mode == "secret" else secret_names.server_secret(resource.name)


class Mounts(NamedTuple):
    """Names of the Secrets that servers mount: with the users file, and with the certificate; empty for none."""

    users: str = ""
    certificate: str = ""


def originals(resource: Memcached) -> Mounts:
    """Return the Secrets of the spec."""
    return Mounts(users_secret(resource), server_secret(resource))


def copies(resource: Memcached) -> Mounts:
    """Return the Secrets that new servers mount: the operator's copies of those that others change."""
    auth, mounts, copied = resource.spec.auth, originals(resource), copy_names(resource)
    users = copied.users if auth is not None and auth.secret_name else mounts.users
    is_copied = resource.spec.tls_mode in ("secret", "certManager")
    return Mounts(users, copied.certificate if is_copied else mounts.certificate)


def copy_names(resource: Memcached) -> Mounts:
    """Return the names of all copies that a spec may need."""
    return Mounts(f"{resource.name}-users-mounted", f"{resource.name}-server-mounted")


def client_secret(resource: Memcached) -> str:
    """Return the Secret with the certificate of clients; with mode secret, clients have their own."""
    return server_secret(resource) if resource.spec.tls_mode == "secret" else secret_names.client_secret(resource.name)


def attestation_secret(resource: Memcached) -> str:
    """Return the Secret with the key by which the operator recognizes what sidecars attest; no client needs it."""
    return f"{resource.name}-attestation"


def service_host(resource: Memcached) -> str:
    """Return the DNS name of all servers, for clients."""
    return f"{resource.name}.{resource.namespace}.svc"


def server_hosts(resource: Memcached) -> tuple[str, ...]:
    """Return the DNS names that only servers of the resource have; the first one is that of the Service."""
    hosts = (service_host(resource), f"{server_name(resource, 0)}.{service_host(resource)}")
    return (*(name for host in hosts for name in in_domains(host)), f"{resource.name}.{resource.namespace}")


def server_name(resource: Memcached, number: int) -> str:
    """Return the name of a StatefulSet's pod by its number."""
    return f"{resource.name}-{number}"


def server_host(resource: Memcached, number: int) -> str:
    """Return the DNS name of a StatefulSet's server, for clients."""
    return f"{server_name(resource, number)}.{resource.name}.{resource.namespace}.svc"
