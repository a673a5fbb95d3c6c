"""Step that keeps the Secret with what clients need to connect to the servers. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import validate
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import service
from operators.memcached.objects.names import client_secret, owner, service_host
from operators.memcached.objects.pod import COMPONENT
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.runtime.plan import PASS, Step
from shared.steps import connection as connections
from shared.steps.connection import Connection, certificates, credentials, keep_connection


def claim_name(seen: Assessment) -> Step:
    """Create the Service with the name of the resource before anything that clients of another one may find."""
    own = owner(seen.resource, seen.settings.operator)
    return connections.claim_name(own, service.service(seen.resource, own, seen.workload.kind), seen.connection)


def ensure_connection(seen: Assessment) -> Step:
    """Keep the connection Secret, if the spec is applied and the operator may write Secrets."""
    resource = seen.resource
    if resource.spec.paused or not seen.settings.write_secrets or validate(resource):
        return PASS
    return keep_connection(
        owner(resource, seen.settings.operator),
        COMPONENT,
        connection(seen),
        seen.connection,
        is_requested=resource.spec.connection_secret,
    )


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
