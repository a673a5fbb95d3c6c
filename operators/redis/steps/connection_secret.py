"""Step that keeps the Secret with what clients need to connect to the cluster. Pure."""

from __future__ import annotations

from urllib.parse import quote

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import PORT
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names
from operators.redis.security.users import USER
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.pki.certs import joined
from shared.steps.connection import Connection, certificates, credentials


def connection(seen: Assessment) -> Connection:
    """Return what a client needs to connect: with the password that every node accepts now."""
    resource = seen.resource
    host = f"{names.client_service_name(resource)}.{resource.namespace}.svc"
    passwords = seen.secrets.passwords
    password = None if passwords is None else passwords.current
    user = None if password is None else password and USER
    nodes = (instance.name for instance in seen.instances if seen.node_to_record(instance))
    values = credentials(user, password) | _certificates(seen)
    values["nodes"] = ",".join(f"{names.host(resource, node)}:{PORT}" for node in nodes)
    return Connection("redis", host, PORT, _uri(resource, host, password), values)


def _uri(resource: RedisCluster, host: str, password: str | None) -> str | None:
    """Return the URI of the client Service; None if the password is unknown.

    Source: https://www.iana.org/assignments/uri-schemes/prov/redis
    """
    if password is None:
        return None
    scheme = "redis" if resource.spec.tls.mode == "none" else "rediss"
    user = f"{USER}:{quote(password, safe='')}@" if password else ""
    return f"{scheme}://{user}{host}:{PORT}"


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
