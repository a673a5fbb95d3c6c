"""Step that keeps the Secret with what clients need to connect to the cluster. Pure."""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names
from operators.etcd.objects.names import CLIENT_PORT
from operators.etcd.security.secrets import CLIENT, USER
from operators.etcd.steps.credentials import user_for_clients
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.steps.connection import Connection, certificates, credentials


def connection(seen: Assessment) -> Connection:
    """Return what a client needs to connect: with the password that etcd accepts now."""
    resource = seen.resource
    host = f"{names.client_service_name(resource)}.{resource.namespace}.svc"
    values = _credentials(seen) | _certificates(seen) | {"endpoints": _endpoints(seen)}
    return Connection("etcd", host, CLIENT_PORT, f"{names.scheme(resource)}://{host}:{CLIENT_PORT}", values)


def _credentials(seen: Assessment) -> dict[str, str | None]:
    """Return user and password; unknown until etcd has answered whether it requires them, and has accepted them."""
    if seen.auth_enabled is None or seen.denied:
        return credentials(None, None)
    if not seen.auth_enabled:
        return credentials("", "")
    secrets = seen.secrets
    if user_for_clients(seen) == USER:
        return credentials(secrets.access.user or None, secrets.access.password or None)
    is_accepted = seen.client is not None and seen.client.accepted
    return credentials(CLIENT, secrets.client_password) if is_accepted else credentials(None, None)


def connects_as(seen: Assessment) -> str | None:
    """Return the user to record for applications; the recorded one while they need none, or that is unknown."""
    is_known = seen.resource.offers_user and seen.settings.write_secrets and seen.auth_enabled and not seen.denied
    return user_for_clients(seen) if is_known else seen.resource.reported.get("connectAs")


def _certificates(seen: Assessment) -> dict[str, str | None]:
    """Return the authorities that clients trust, and the certificate for clients, unless users issue their own."""
    tls = seen.resource.spec.tls
    if tls.mode == "none":
        return certificates("")
    content = content_of(seen.secrets.found.get(names.client_mount(seen.resource)))
    if tls.mode == "secret" or tls.client.auth == "none":
        return certificates(content.get(AUTHORITY_KEY))
    return certificates(*(content.get(key) for key in (AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY)))


def _endpoints(seen: Assessment) -> str | None:
    """Return the client URLs of all voters, separated by commas; None without a list of members."""
    if seen.members is None:
        return None
    voters = (each.name for each in seen.instances if each.member and not each.member.learner)
    return ",".join(names.client_url_of(seen.resource, voter) for voter in voters)
