"""Names of the Secrets with the certificates of a database, the same for all kinds. Pure."""

from __future__ import annotations


def authority_secret(resource: str) -> str:
    """Return the name of the Secret with the authorities of a resource with tls.mode self; no pod mounts it."""
    return f"{resource}-ca"


def server_secret(resource: str) -> str:
    """Return the name of the Secret with the certificate of the servers, if others do not provide it."""
    return f"{resource}-server-tls"


def client_secret(resource: str) -> str:
    """Return the name of the Secret with the certificate of clients, if others do not provide it."""
    return f"{resource}-client-tls"
