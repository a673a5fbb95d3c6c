"""Step that keeps the Secret with what clients need to connect to the servers. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import client_secret, service_host
from operators.memcached.objects.pod import mounted_certificate, mounted_users
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.pki import certs
from shared.steps.connection import Connection, certificates, credentials


def connection(seen: Assessment) -> Connection:
    """Return what a client needs to connect: the user is the first one in the users file."""
    host, port = service_host(seen.resource), seen.client_port
    values = _credentials(seen) | _certificates(seen) | {"servers": ",".join(seen.servers)}
    return Connection("memcached", host, port, f"memcached://{host}:{port}", values)


def _credentials(seen: Assessment) -> dict[str, str | None]:
    """Return user and password; unknown while servers may not accept those in the Secret yet."""
    if seen.resource.spec.auth is None:
        known = None if seen.workload.differing(mounted_users, required=False) else ""
        return credentials(known, known)
    secrets = seen.secrets
    return credentials(*(secrets.credentials if secrets.credentials and seen.accepts_users else (None, None)))


def _certificates(seen: Assessment) -> dict[str, str | None]:
    """Return the authorities that clients trust, and the certificate for clients, unless users issue their own.

    They are unknown while a server does not speak TLS yet, or still does.
    """
    spec, secrets = seen.resource.spec, seen.secrets
    if seen.workload.differing(mounted_certificate, required=spec.encrypts):
        return certificates(None, None, None)
    if not spec.encrypts:
        return certificates("")
    authority = _trusted(seen) if secrets.pair else None
    if spec.tls_mode == "secret" or not spec.needs_client_certificate:
        return certificates(authority)
    content = content_of(secrets.found.get(client_secret(seen.resource)))
    return certificates(authority, content.get(CERTIFICATE_KEY), content.get(PRIVATE_KEY))


def _trusted(seen: Assessment) -> str:
    """Return the authorities of the Secret, and those that clients trust already until every server presents its own.

    A server presents the former certificate until the kubelet has updated the files and the server has loaded them.
    """
    present, issuers = seen.connection, seen.secrets.issuers
    if present is None or not present.is_proven or seen.served_fingerprint == seen.secrets.fingerprint:
        return issuers
    former = present.content.get(AUTHORITY_KEY, "")
    both = former if issuers.strip() in former else f"{issuers.strip()}\n{former}"
    return both if len(both) <= 2 * certs.MAX_CERTIFICATES_BYTES else issuers
