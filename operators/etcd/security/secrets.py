"""What the Secrets of an EtcdCluster hold, and whether its members can run with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Access
from operators.etcd.objects import names as resources
from operators.etcd.security.certificates import leaves
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
"""etcd's user that may do everything: without it, passwords cannot be asked for."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a cluster's Secrets hold.

    Attributes:
        problem: what is wrong with those that somebody else makes, if anything.
        access: what lets the operator in; as far as it is known.
        previous_password: root's former one; empty if none is given.
        digest: of what etcd reads at its start alone; it changes only if that does, and tells nothing of it.
        authority_key: the key under which members' Secrets hold whom they trust.
        expires: when each certificate ends, by its Secret's name.
        found: the Secrets as they are, by name; None for one that does not exist.
    """

    problem: SecretProblem | None = None
    access: Access = field(default_factory=Access)
    previous_password: str = field(default="", repr=False)
    digest: str = ""
    authority_key: str = AUTHORITY_KEY
    expires: Mapping[str, datetime] = field(default_factory=dict)
    found: Mapping[str, Obj | None] = field(default_factory=dict, repr=False)


async def read(resource: EtcdCluster, kube: Kube) -> Secrets:
    """The Secrets as they are now: by name, and only where the spec asks for any."""
    return judge(resource, await find(kube, resource.namespace, names(resource)))


def names(resource: EtcdCluster) -> set[str]:
    """Names of the Secrets that count."""
    auth = resource.spec.auth
    return {*_certificates(resource), *(() if auth is None else (auth.root_secret_name,))}


def _certificates(resource: EtcdCluster) -> tuple[str, ...]:
    return certificate_secrets(resource.spec.tls.mode, leaves(resource), resources.authority_secret(resource))


def judge(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> Secrets:
    """What the Secrets hold, or what is wrong with them; pure, and without regard to the time.

    Args:
        found: the Secrets that count, by name; None for one that does not exist.
    """
    problem = None
    try:
        _require_password(resource, found)
        _require_certificates(resource, found)
    except UnusableSecret as wrong:
        problem = wrong.problem
    previous = ""
    if resource.spec.auth is not None:
        previous = content_of(found[resource.spec.auth.root_secret_name]).get(PREVIOUS_PASSWORD_KEY, "")
    started_with, key = _trusted(resource, found)
    expires = ends(found, _certificates(resource), resources.authority_secret(resource))
    return Secrets(problem, _access(resource, found), previous, started_with, key, expires, found)


def _require_password(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> None:
    """Root has a password, if anybody is asked for one."""
    auth = resource.spec.auth
    if auth is None or not auth.enabled:
        return
    password_of("spec.auth", auth.root_secret_name, found[auth.root_secret_name])


def _require_certificates(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> None:
    """Those that the operator does not make itself can be served with, and everybody whom it concerns takes them."""
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
        is_shown = name == resources.client_secret(resource) and is_client  # by the operator
        if is_shown and resource.spec.auth is not None and certs.read(pair.certificate)[0].is_named:
            raise UnusableSecret(
                SECRET_INVALID,
                f"{at}: Secret {name}: {CERTIFICATE_KEY} bears a common name, and with users (spec.auth), etcd's "
                "gateway takes no client certificate that does. Issue it without one, or set spec.tls.client.auth to "
                "none.",
            )


def _access(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> Access:
    """What lets the operator in, as far as it is there."""
    auth, tls = resource.spec.auth, resource.spec.tls
    authority, held, user, password = "", None, "", ""
    if tls.mode != "none":
        secret = found[resources.client_secret(resource)]
        authority = content_of(secret).get(AUTHORITY_KEY, "")
        held = issued_in(secret) if tls.client.auth == "required" else None
    if auth is not None and (authority or tls.mode == "none"):  # a password never crosses the network for want of TLS
        user, password = USER, content_of(found[auth.root_secret_name]).get(PASSWORD_KEY, "")
    return Access(authority, held.pair if held else None, user if password else "", password)


def _trusted(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> tuple[str, str]:
    """Whom members trust, which they read at their start alone: a digest, and the key that holds it."""
    tls = resource.spec.tls
    if tls.mode == "none":
        return "", AUTHORITY_KEY
    if tls.mode == "self":
        trusted = authorities_of(found[resources.authority_secret(resource)]).trusted
        # Only a new one is a reason to restart: one that is trusted no more has ended, and vouches for nobody.
        return (fingerprint(trusted[0]), authority_key(trusted[0])) if trusted else ("", AUTHORITY_KEY)
    read = [resources.peer_secret(resource)]
    if tls.client.auth == "required":
        read.append(resources.server_secret(resource))
    # Authorities are no secret: no key of the Secret's is needed, and one that is made again is the same.
    known = [(b"", content_of(found[name]).get(AUTHORITY_KEY, "").encode()) for name in read]
    return digest(known), AUTHORITY_KEY
