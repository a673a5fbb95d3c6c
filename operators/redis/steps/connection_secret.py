"""The Secrets with what clients need to connect to the cluster. Pure."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import PORT
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names
from operators.redis.objects.names import COMPONENT
from operators.redis.security.users import USER
from shared.kubernetes.secret_provenance import is_blank
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.pki.certs import joined
from shared.runtime.plan import PASS, Step
from shared.steps.connection import Connection, ConnectionSecret, certificates, credentials, keep_connection


def connection(seen: Assessment) -> Connection:
    """Return what a client needs to connect: with the password that every node accepts now."""
    passwords = seen.secrets.passwords
    password = None if passwords is None else passwords.current
    return _connection(seen, None if password is None else password and USER, password)


def of_users(seen: Assessment) -> list[tuple[Connection, ConnectionSecret]]:
    """Return the same for each user of the spec, and for removed ones, with the Secrets."""
    known, found = seen.secrets.applied_users, []
    for secret, published in seen.user_connections.items():
        name = secret.removeprefix(f"{seen.resource.name}-user-")
        user = known.get(name)
        given = (None, None) if user is None or user.removed else (name, user.current)
        found.append((replace(_connection(seen, *given), user=name), published))
    return found


def spare(seen: Assessment) -> dict[str, tuple[str, ...]]:
    """Return the Secrets of removed users that have no content any longer, so that they need no record."""
    kept = {names.user_secret(seen.resource, user.name) for user in seen.resource.spec.users}
    found = {name: published.found for name, published in seen.user_connections.items() if name not in kept}
    return {name: () for name, secret in found.items() if secret is None or is_blank(secret)}


def ensure_user_secrets(seen: Assessment) -> Step:
    """Keep the connection Secret of each user of the spec, and remove the content of those of removed users."""
    own, kept = names.owner(seen.resource, seen.settings.operator), {user.name for user in seen.resource.spec.users}
    copies = of_users(seen) if seen.settings.write_secrets else ()
    steps = [
        keep_connection(own, COMPONENT, connection, published, is_requested=connection.user in kept)
        for connection, published in copies
    ]
    actions = [action for step in steps for action in step.actions]
    return Step.do(*actions) if actions else next((step for step in steps if step != PASS), PASS)


def _connection(seen: Assessment, user: str | None, password: str | None) -> Connection:
    resource = seen.resource
    host = f"{names.client_service_name(resource)}.{resource.namespace}.svc"
    nodes = (instance.name for instance in seen.instances if seen.node_to_record(instance))
    values = credentials(user, password) | _certificates(seen)
    values["nodes"] = ",".join(f"{names.host(resource, node)}:{PORT}" for node in nodes)
    return Connection("redis", host, PORT, _uri(resource, host, user, password), values)


def _uri(resource: RedisCluster, host: str, user: str | None, password: str | None) -> str | None:
    """Return the URI of the client Service; None if the password is unknown.

    Source: https://www.iana.org/assignments/uri-schemes/prov/redis
    """
    if password is None:
        return None
    scheme = "redis" if resource.spec.tls.mode == "none" else "rediss"
    given = f"{user}:{quote(password, safe='')}@" if password else ""
    return f"{scheme}://{given}{host}:{PORT}"


def _certificates(seen: Assessment) -> dict[str, str | None]:
    """Return the authorities that clients trust, and the certificate for clients, unless users issue their own."""
    tls, mounted = seen.resource.spec.tls, seen.secrets.mounted
    if tls.mode == "none":
        return certificates("")
    authority = joined(mounted.trusted) if mounted else None
    if tls.mode == "secret" or tls.client_auth == "none":
        return certificates(authority)
    content = content_of(seen.secrets.found.get(names.client_secret(seen.resource)))
    return certificates(authority, content.get(CERTIFICATE_KEY), content.get(PRIVATE_KEY))
