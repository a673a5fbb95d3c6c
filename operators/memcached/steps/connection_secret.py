"""Step that keeps the Secret with what clients need to connect to the servers. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import client_secret, service_host
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.steps.connection import Connection, certificates, credentials


def connection(seen: Assessment) -> Connection:
    """Return what a client needs to connect: the user is the first one in the users file."""
    host, port = service_host(seen.resource), seen.resource.spec.container_port
    values = _credentials(seen) | _certificates(seen) | {"servers": ",".join(seen.servers)}
    return Connection("memcached", host, port, f"memcached://{host}:{port}", values)


def _credentials(seen: Assessment) -> dict[str, str | None]:
    """Return user and password; unknown while servers may not accept those in the Secret yet."""
    if seen.resource.spec.auth is None:
        return credentials("", "")
    secrets = seen.secrets
    return credentials(*(secrets.credentials if secrets.credentials and seen.accepts_users else (None, None)))


def _certificates(seen: Assessment) -> dict[str, str | None]:
    """Return the authorities that clients trust, and the certificate for clients, unless users issue their own."""
    spec, secrets = seen.resource.spec, seen.secrets
    if not spec.encrypts:
        return certificates("")
    authority = secrets.issuers if secrets.pair else None
    if spec.tls_mode == "secret" or not spec.needs_client_certificate:
        return certificates(authority)
    content = content_of(secrets.found.get(client_secret(seen.resource)))
    return certificates(authority, content.get(CERTIFICATE_KEY), content.get(PRIVATE_KEY))
