"""Step that keeps the Secret with what clients need to connect to the servers. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached, validate
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import service
from operators.memcached.objects.names import client_secret, owner, service_host
from operators.memcached.objects.pod import COMPONENT
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.runtime.plan import PASS, Step
from shared.runtime.settings import Settings
from shared.steps import connection as connections
from shared.steps.connection import Connection, certificates, credentials, keep_connection


def claim_name(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Create the Service with the name of the resource before anything that clients of another one may find."""
    own = owner(resource, settings.operator)
    return connections.claim_name(
        own, service.service(resource, own, facts.observed.workload.kind), facts.observed.connection
    )


def ensure_connection(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Keep the connection Secret, if the spec is applied and the operator may write Secrets."""
    if resource.spec.paused or not settings.write_secrets or validate(resource):
        return PASS
    return keep_connection(
        owner(resource, settings.operator),
        COMPONENT,
        connection(resource, facts),
        facts.observed.connection,
        is_requested=resource.spec.connection_secret,
    )


def connection(resource: Memcached, facts: Assessment) -> Connection:
    """Return what a client needs to connect: the user is the first one in the users file."""
    host, port = service_host(resource), resource.spec.container_port
    values = _credentials(resource, facts) | _certificates(resource, facts) | {"servers": ",".join(facts.servers)}
    return Connection("memcached", host, port, f"memcached://{host}:{port}", values)


def _credentials(resource: Memcached, facts: Assessment) -> dict[str, str | None]:
    """Return user and password; unknown while servers may not accept those in the Secret yet."""
    if resource.spec.auth is None:
        return credentials("", "")
    secrets = facts.observed.secrets
    return credentials(*(secrets.credentials if secrets.credentials and facts.accepts_users else (None, None)))


def _certificates(resource: Memcached, facts: Assessment) -> dict[str, str | None]:
    """Return the authorities that clients trust, and the certificate for clients, unless users issue their own."""
    spec, secrets = resource.spec, facts.observed.secrets
    if not spec.encrypts:
        return certificates("")
    authority = secrets.issuers if secrets.pair else None
    if spec.tls_mode == "secret" or not spec.needs_client_certificate:
        return certificates(authority)
    content = content_of(secrets.found.get(client_secret(resource)))
    return certificates(authority, content.get(CERTIFICATE_KEY), content.get(PRIVATE_KEY))
