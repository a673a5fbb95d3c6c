"""Content of an EtcdCluster's Secrets, and whether members can run with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Access
from operators.etcd.objects import names as resources
from operators.etcd.security.certificates import leaves
from shared.kubernetes import ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import (
    AUTHORITY_KEY,
    CERTIFICATE_KEY,
    PASSWORD_KEY,
    PREVIOUS_PASSWORD_KEY,
    content_of,
    digest,
    find,
)
from shared.pki import certs
from shared.pki.secret_checks import SecretProblem, UnusableSecret, certificate_of, password_of
from shared.pki.stores import authorities_of, authority_key, certificate_secrets, ends, fingerprint, issued_in
from shared.status.reasons import SECRET_INVALID

USER = "root"
"""User of etcd with all permissions: authentication cannot be enabled without it."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Content of a cluster's Secrets.

    Attributes:
        problem: problem of Secrets that the operator does not create; None if there is none.
        access: credentials of the operator, as far as known.
        previous_password: former password of root; empty if not given.
        stored: passwords of root that the operator stored itself: the valid one, or while it is changed, both.
        password_secret: name of the Secret with the password in `access`; empty without one.
        access_problem: reason why the operator has no credentials; None if it has all.
        digest: digest of what etcd reads only at its start; it reveals nothing of the content.
        authority_key: key in the members' Secrets with the authorities to trust.
        expires: expiry of each certificate, by the name of its Secret.
        found: Secrets by name; None for one that does not exist.
    """

    problem: SecretProblem | None = None
    access: Access = field(default_factory=Access)
    previous_password: str = field(default="", repr=False)
    stored: tuple[str, ...] = field(default=(), repr=False)
    password_secret: str = ""
    access_problem: SecretProblem | None = None
    digest: str = ""
    authority_key: str = AUTHORITY_KEY
    expires: Mapping[str, datetime] = field(default_factory=dict)
    found: Mapping[str, Obj | None] = field(default_factory=dict, repr=False)


async def read(resource: EtcdCluster, kube: Kube, *, with_stored: bool = False) -> Secrets:
    """Read the Secrets from the API server.

    Args:
        with_stored: whether to read the operator's own Secret also without spec.auth, after which it is left only if
            authentication is still enabled.
    """
    stored = {resources.credentials_secret(resource)} if with_stored else set()
    return judge(resource, await find(kube, resource.namespace, names(resource) | stored))


def names(resource: EtcdCluster) -> set[str]:
    """Return the names of the Secrets that the cluster uses."""
    auth = resource.spec.auth
    passwords = () if auth is None else (auth.root_secret_name, resources.credentials_secret(resource))
    return {*_certificates(resource), *passwords}


def _certificates(resource: EtcdCluster) -> tuple[str, ...]:
    return certificate_secrets(resource.spec.tls.mode, leaves(resource), resources.authority_secret(resource))


def judge(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> Secrets:
    """Return the content of the Secrets, and any problem; pure, and independent of the time.

    Args:
        found: Secrets by name; None for one that does not exist.
    """
    lacks_password = _problem(_require_password, resource, found)
    lacks_certificate = _problem(_require_certificates, resource, found)
    stored = _stored(resource, found)
    previous = ""
    if resource.spec.auth is not None:
        previous = content_of(found[resource.spec.auth.root_secret_name]).get(PREVIOUS_PASSWORD_KEY, "")
    access, password_secret = _access(resource, found, stored)
    started_with, key = _trusted(resource, found)
    return Secrets(
        problem=lacks_password or lacks_certificate,
        access=access,
        previous_password=previous,
        stored=stored,
        password_secret=password_secret,
        access_problem=lacks_certificate or (None if stored else lacks_password),
        digest=started_with,
        authority_key=key,
        expires=ends(found, _certificates(resource), resources.authority_secret(resource)),
        found=found,
    )


def _problem(
    require: Callable[[EtcdCluster, Mapping[str, Obj | None]], None],
    resource: EtcdCluster,
    found: Mapping[str, Obj | None],
) -> SecretProblem | None:
    try:
        require(resource, found)
    except UnusableSecret as wrong:
        return wrong.problem
    return None


def _stored(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> tuple[str, ...]:
    """Return the passwords in the operator's own Secret; a Secret of another owner does not count."""
    secret = ownership.owned_by(resource.uid, found.get(resources.credentials_secret(resource)))
    content = content_of(secret)
    return tuple(text for key in (PASSWORD_KEY, PREVIOUS_PASSWORD_KEY) if (text := content.get(key)))


def _require_password(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> None:
    """Require a password of root if authentication is enabled."""
    auth = resource.spec.auth
    if auth is None or not auth.enabled:
        return
    password_of("spec.auth", auth.root_secret_name, found[auth.root_secret_name])


def _require_certificates(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> None:
    """Require valid certificates in the Secrets that the operator does not create."""
    tls = resource.spec.tls
    if tls.mode in ("none", "self"):
        return
    member = resources.host(resource, resources.member_name(resource, 0))
    service = f"{resources.client_service_name(resource)}.{resource.namespace}.svc"
    desired: list[tuple[str, str, tuple[str, ...], bool]] = [
        ("spec.tls.peer", resources.peer_secret(resource), (member,), True),
        ("spec.tls.client", resources.server_secret(resource), (member, service), tls.client.auth == "required"),
    ]
    if tls.mode == "certManager":
        desired.append(("spec.tls.client", resources.client_secret(resource), (), True))
    for at, name, hosts, is_client in desired:
        is_ordered = tls.mode == "certManager"
        pair, _ = certificate_of(at, name, found[name], hosts=hosts, is_client=is_client, is_ordered=is_ordered)
        is_shown = name == resources.client_secret(resource) and is_client  # the operator presents it
        if is_shown and resource.spec.auth is not None and certs.read(pair.certificate)[0].is_named:
            raise UnusableSecret(
                SECRET_INVALID,
                f"{at}: Secret {name}: {CERTIFICATE_KEY} has a common name, and with spec.auth, etcd's gateway "
                "rejects client certificates that have one. Issue it without a common name, or set "
                "spec.tls.client.auth to none.",
            )


def _access(resource: EtcdCluster, found: Mapping[str, Obj | None], stored: Sequence[str]) -> tuple[Access, str]:
    """Return the credentials of the operator, as far as they exist, and the name of the Secret with the password.

    The password is that of the user's Secret, or without one the stored one.
    """
    auth, tls = resource.spec.auth, resource.spec.tls
    authority, issued = "", None
    if tls.mode != "none":
        secret = found[resources.client_secret(resource)]
        authority = content_of(secret).get(AUTHORITY_KEY, "")
        issued = issued_in(secret) if tls.client.auth == "required" else None
    pair = issued.pair if issued else None
    if tls.mode != "none" and not authority:  # never send a password without TLS if the spec requires TLS
        return Access(authority, pair), ""
    if auth is not None and (password := content_of(found[auth.root_secret_name]).get(PASSWORD_KEY, "")):
        return Access(authority, pair, USER, password), auth.root_secret_name
    if stored:
        return Access(authority, pair, USER, stored[0]), resources.credentials_secret(resource)
    return Access(authority, pair), ""


def _trusted(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> tuple[str, str]:
    """Return a digest of the trusted authorities, which members read only at their start, and the key that has them."""
    tls = resource.spec.tls
    if tls.mode == "none":
        return "", AUTHORITY_KEY
    if tls.mode == "self":
        trusted = authorities_of(found[resources.authority_secret(resource)]).trusted
        # Only a new authority requires a restart: a removed one has expired.
        return (fingerprint(trusted[0]), authority_key(trusted[0])) if trusted else ("", AUTHORITY_KEY)
    read = [resources.peer_secret(resource)]
    if tls.client.auth == "required":
        read.append(resources.server_secret(resource))
    # Authorities are public: the digest needs no secret key, and is the same for a recreated Secret.
    known = [(b"", content_of(found[name]).get(AUTHORITY_KEY, "").encode()) for name in read]
    return digest(known), AUTHORITY_KEY
