"""Content of an EtcdCluster's Secrets, and whether members can run with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Access
from operators.etcd.objects import names as resources
from operators.etcd.objects.bootstrap import uid_of
from operators.etcd.objects.pod import Mount, MountedSecrets
from operators.etcd.security.certificates import leaves
from shared.kubernetes import secret_provenance
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import (
    AUTHORITY_KEY,
    CERTIFICATE_KEY,
    CERTIFICATE_KEYS,
    PASSWORD_KEY,
    PREVIOUS_PASSWORD_KEY,
    content_of,
    digest,
    used,
)
from shared.pki import certs
from shared.pki.certs import Certificate, Pair, joined
from shared.pki.copies import CopiedCertificate, TrustedCertificate
from shared.pki.secret_checks import SecretProblem, UnusableSecret, certificate_of, password_of
from shared.pki.secret_names import authority_secret
from shared.pki.stores import authorities_of, authority_key, certificate_secrets, fingerprint, issued_in, validities
from shared.pki.threads import evaluate
from shared.pki.validity import Validity, signers
from shared.status.reasons import SECRET_INVALID
from shared.steps.own_secrets import former_secrets
from shared.steps.passwords import own_secret

USER = "root"
"""User of etcd with all permissions: authentication cannot be enabled without it."""

CLIENT = "client"
"""User of etcd for applications."""

CLIENT_ROLE = "etcd.ydzs.io/client"
"""Role of that user, on all keys. Only the operator gives this name, so a user `client` with it is the operator's."""


@dataclass(frozen=True, slots=True)
class Issuers:
    """Authorities of tls.mode self, by fingerprint.

    Attributes:
        trusted: authorities that a member trusts that starts now, newest first.
        peer, client: signers of the certificate of members, and of the operator; empty if unknown, or if members
            require no certificate.
    """

    trusted: tuple[str, ...]
    peer: frozenset[str]
    client: frozenset[str]

    def peer_is_rejected(self, started: str) -> bool:
        """Whether a member rejects the certificate of other members.

        Args:
            started: newest authority that it trusted when it started; empty if unknown.
        """
        return self._is_rejected(self.peer, started)

    def are_rejected(self, started: str) -> bool:
        """Whether a member rejects the certificate of other members, or that of the operator."""
        return self.peer_is_rejected(started) or self._is_rejected(self.client, started)

    def _is_rejected(self, issuers: frozenset[str], started: str) -> bool:
        known = self.trusted[self.trusted.index(started) :] if started in self.trusted else ()
        return bool(started and issuers) and issuers.isdisjoint(known)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Content of a cluster's Secrets.

    Attributes:
        password_problem: problem of the Secret with root's password; None if there is none.
        certificate_problem: problem of the certificates of another issuer; None if there is none.
        access: credentials of the operator, as far as known.
        previous_password: former password of root; empty if not given.
        stored: passwords of root that the operator stored itself: the valid one, or while it is changed, both.
        password_secret: name of the Secret with the password in `access`; empty without one.
        client_password: generated password of the user `client`; empty if there is none.
        mounts: Secrets that members mount.
        copies: certificates of another issuer, and their copies.
        issuers: authorities by which members reject certificates; None in other modes than self.
        validity: period of each certificate that is in use, by the name of the Secret to renew.
        found: Secrets by name; None for one that does not exist.
        unproven: Secrets with names of the operator's own and content of unknown origin; `found` has None for them.
    """

    password_problem: SecretProblem | None = None
    certificate_problem: SecretProblem | None = None
    access: Access = field(default_factory=Access)
    previous_password: str = field(default="", repr=False)
    stored: tuple[str, ...] = field(default=(), repr=False)
    password_secret: str = ""
    client_password: str = field(default="", repr=False)
    mounts: MountedSecrets = field(default_factory=MountedSecrets)
    copies: tuple[CopiedCertificate, ...] = ()
    issuers: Issuers | None = None
    validity: Mapping[str, Validity] = field(default_factory=dict)
    found: Mapping[str, Obj | None] = field(default_factory=dict, repr=False)
    unproven: tuple[Obj, ...] = field(default=(), repr=False)

    @property
    def problem(self) -> SecretProblem | None:
        """First problem of Secrets that the operator does not create; None if there is none."""
        return self.password_problem or self.certificate_problem

    @property
    def are_copied(self) -> bool:
        """Whether all certificates of another issuer have a copy, so that nothing depends on their originals."""
        return bool(self.copies) and all(each.copy for each in self.copies)

    def access_to(self, resource: EtcdCluster, pod: Obj | None) -> Access:
        """Return the credentials for a member: none for one of a former resource of this name, which may still run."""
        own = {"", resource.uid, resource.adopts_from, resource.adopted_from}
        return self.access if uid_of(pod) in own else replace(self.access, user="", password="")

    @property
    def access_problem(self) -> SecretProblem | None:
        """Reason why the operator has no credentials; None if it has all."""
        lacks_certificate = None if self.are_copied else self.certificate_problem
        return lacks_certificate or (None if self.stored else self.password_problem)


async def read(resource: EtcdCluster, kube: Kube, *, with_stored: bool = False) -> Secrets:
    """Read the Secrets from the API server.

    Args:
        with_stored: whether to read the operator's own Secret also without spec.auth, after which it is left only if
            authentication is still enabled.
    """
    stored = {resources.credentials_secret(resource)} if with_stored else set()
    made = made_secrets(resource) | stored
    found, unproven = await secret_provenance.find(kube, resource.obj, names(resource), made)
    return replace(await evaluate(resource.namespace, judge, resource, found), unproven=unproven)


def made_secrets(resource: EtcdCluster) -> set[str]:
    """Return the names of the Secrets that the operator makes; while the spec changes, also those of the former one."""
    auth, made = resource.spec.auth, {copy for _, copy, _, _ in _sources(resource)}
    if auth is not None:
        made.add(resources.credentials_secret(resource))
        made |= set() if auth.root_secret_name else {resources.root_secret(resource)}
        made |= {resources.client_password_secret(resource)} - {""}
    certificates = _certificates(resource) if resource.spec.tls.mode == "self" else ()
    return made | {*certificates} | former_secrets(resource)


def names(resource: EtcdCluster) -> dict[str, set[str]]:
    """Return the names of the Secrets of a cluster, with the keys that are used if others provide them."""
    has_auth, passwords = resource.spec.auth is not None, (PASSWORD_KEY, PREVIOUS_PASSWORD_KEY)
    return used(
        (_certificates(resource), CERTIFICATE_KEYS),
        ((copy for _, copy, _, _ in _sources(resource)), ()),
        ((resources.root_secret(resource), resources.credentials_secret(resource)) if has_auth else (), passwords),
        ({resources.client_password_secret(resource)} - {""}, passwords),
    )


def root_secret(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> Obj | None:
    """Return the Secret with root's password; None if it does not exist, or if a generated one has another owner."""
    auth, secret = resource.spec.auth, found.get(resources.root_secret(resource))
    if auth is None or auth.root_secret_name:
        return secret
    return own_secret(resource.uid, resource.name, "etcd", secret)


def _certificates(resource: EtcdCluster) -> tuple[str, ...]:
    return certificate_secrets(resource.spec.tls.mode, leaves(resource), authority_secret(resource.name))


def judge(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> Secrets:
    """Return the content of the Secrets, and any problem; pure, and independent of the time.

    Args:
        found: Secrets by name; None for one that does not exist.
    """
    stored = _stored(resource, found)
    copies, certificate_problem = _copies(resource, found)
    previous = content_of(root_secret(resource, found)).get(PREVIOUS_PASSWORD_KEY, "")
    access, password_secret = _access(resource, found, copies, stored)
    for_clients = own_secret(resource.uid, resource.name, "etcd", found.get(resources.client_password_secret(resource)))
    return Secrets(
        password_problem=_password_problem(resource, found),
        certificate_problem=certificate_problem,
        access=access,
        previous_password=previous,
        stored=stored,
        password_secret=password_secret,
        client_password=content_of(for_clients).get(PASSWORD_KEY, ""),
        mounts=_mounts(resource, found, copies),
        copies=copies,
        issuers=_issuers(resource, found),
        validity=_validity(resource, found, copies),
        found=found,
    )


def _stored(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> tuple[str, ...]:
    """Return the passwords in the operator's own Secret; a Secret of another owner does not count."""
    secret = own_secret(resource.uid, resource.name, "etcd", found.get(resources.credentials_secret(resource)))
    content = content_of(secret)
    return tuple(text for key in (PASSWORD_KEY, PREVIOUS_PASSWORD_KEY) if (text := content.get(key)))


def _password_problem(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> SecretProblem | None:
    """Return why there is no password of root although authentication is enabled."""
    auth = resource.spec.auth
    if auth is None or not auth.enabled:
        return None
    try:
        password_of("spec.auth", resources.root_secret(resource), root_secret(resource, found))
    except UnusableSecret as wrong:
        return wrong.problem
    return None


def _sources(resource: EtcdCluster) -> tuple[tuple[str, str, str, tuple[str, ...]], ...]:
    """Return, for each certificate of another issuer: its Secret, its copy, the field, and the names of its server."""
    tls = resource.spec.tls
    if tls.mode in ("none", "self"):
        return ()
    member = resources.host(resource, resources.member_name(resource, 0))
    service = f"{resources.client_service_name(resource)}.{resource.namespace}.svc"
    found: list[tuple[str, str, str, tuple[str, ...]]] = [
        (resources.peer_secret(resource), resources.peer_copy(resource), "spec.tls.peer", (member,)),
        (resources.server_secret(resource), resources.server_copy(resource), "spec.tls.client", (member, service)),
    ]
    if tls.mode == "certManager":
        found.append((resources.client_secret(resource), resources.client_copy(resource), "spec.tls.client", ()))
    return tuple(found)


def _copies(
    resource: EtcdCluster, found: Mapping[str, Obj | None]
) -> tuple[tuple[CopiedCertificate, ...], SecretProblem | None]:
    """Return the certificates of another issuer with their copies, and the first problem of the originals."""
    problem, copies = None, list[CopiedCertificate]()
    for secret, copy, at, hosts in _sources(resource):
        original = None
        try:
            _require_certificate(resource, found, at, secret, hosts)
            original = TrustedCertificate.of(found[secret])
        except UnusableSecret as wrong:
            problem = problem or wrong.problem
        copies.append(CopiedCertificate(secret, copy, original, TrustedCertificate.of(found[copy])))
    if resource.spec.tls.mode == "certManager":  # one issuer: it may have renewed only some certificates yet
        known = dict.fromkeys(each for copied in copies if copied.original for each in copied.original.trusted)
        copies = [copied.trusting(tuple(known)) for copied in copies]
    return tuple(copies), problem


def _require_certificate(
    resource: EtcdCluster, found: Mapping[str, Obj | None], at: str, name: str, hosts: tuple[str, ...]
) -> None:
    """Require a certificate that members and clients accept, regardless of its dates."""
    tls, is_ordered = resource.spec.tls, resource.spec.tls.mode == "certManager"
    is_server = at == "spec.tls.client" and name == resources.server_secret(resource)
    is_client = not is_server or tls.client.auth == "required"
    pair, _ = certificate_of(at, name, found[name], hosts=hosts, is_client=is_client, is_ordered=is_ordered)
    is_presented = at == "spec.tls.client" and name == resources.client_secret(resource) and is_client
    if is_presented and resource.spec.auth is not None and certs.read(pair.certificate)[0].is_named:
        raise UnusableSecret(
            SECRET_INVALID,
            f"{at}: Secret {name}: {CERTIFICATE_KEY} has a common name, and with spec.auth, etcd's gateway "
            "rejects client certificates that have one. Issue it without a common name, or set "
            "spec.tls.client.auth to none.",
        )


def _access(
    resource: EtcdCluster, found: Mapping[str, Obj | None], copies: tuple[CopiedCertificate, ...], stored: Sequence[str]
) -> tuple[Access, str]:
    """Return the credentials of the operator, as far as they exist, and the name of the Secret with the password.

    The operator presents what every member trusts now, and trusts what any member may present. The password is that of
    the user's Secret, or without one the stored one.
    """
    tls = resource.spec.tls
    authority, pair = _client_certificate(resource, found, copies)
    access = Access(authority, pair if tls.client.auth == "required" else None)
    if password := content_of(root_secret(resource, found)).get(PASSWORD_KEY, ""):
        return replace(access, user=USER, password=password), resources.root_secret(resource)
    if stored:
        return replace(access, user=USER, password=stored[0]), resources.credentials_secret(resource)
    return access, ""


def _client_certificate(
    resource: EtcdCluster, found: Mapping[str, Obj | None], copies: tuple[CopiedCertificate, ...]
) -> tuple[str | None, Pair | None]:
    """Return the authorities that the operator trusts, and the certificate that it presents."""
    if resource.spec.tls.mode == "none":
        return None, None
    if not copies:
        secret = found[resources.client_secret(resource)]
        issued = issued_in(secret)
        return content_of(secret).get(AUTHORITY_KEY, ""), issued.pair if issued else None
    presented = _copied(copies, resources.client_copy(resource)).in_use
    serving = (copied for copied in copies if copied.name != resources.peer_copy(resource))
    authority = joined(dict.fromkeys(each for copied in serving for each in copied.trusted))
    return authority, presented.pair if presented else None


def _copied(copies: tuple[CopiedCertificate, ...], name: str) -> CopiedCertificate:
    return next(copied for copied in copies if copied.name == name)


def _mounts(
    resource: EtcdCluster, found: Mapping[str, Obj | None], copies: tuple[CopiedCertificate, ...]
) -> MountedSecrets:
    """Return the Secrets to mount, and a digest of the trusted authorities, which members read only at their start."""
    tls = resource.spec.tls
    if tls.mode == "none":
        return MountedSecrets()
    if tls.mode == "self":
        trusted = authorities_of(found[authority_secret(resource.name)]).trusted
        key = authority_key(trusted[0]) if trusted else AUTHORITY_KEY
        mounts = (Mount(resources.peer_secret(resource), key), Mount(resources.server_secret(resource), key))
        # Only a new authority requires a restart: a removed one has expired.
        return MountedSecrets(fingerprint(trusted[0]) if trusted else "", *mounts)
    peer, server = (_copied(copies, name(resource)) for name in (resources.peer_copy, resources.server_copy))
    read = [_bundle(peer), *([_bundle(server)] if tls.client.auth == "required" else ())]
    known = [(b"", joined(bundle).encode()) for bundle in read]
    return MountedSecrets(digest(known) if all(read) else "", _mount(peer), _mount(server))


def _issuers(resource: EtcdCluster, found: Mapping[str, Obj | None]) -> Issuers | None:
    tls = resource.spec.tls
    if tls.mode != "self":
        return None
    trusted = authorities_of(found[authority_secret(resource.name)]).trusted

    def signed(name: str) -> frozenset[str]:
        issued = issued_in(found[name])
        return frozenset(map(fingerprint, signers(issued.pair, trusted) if issued else ()))

    client = signed(resources.client_secret(resource)) if tls.client.auth == "required" else frozenset()
    return Issuers(tuple(map(fingerprint, trusted)), signed(resources.peer_secret(resource)), client)


def _bundle(copied: CopiedCertificate) -> tuple[Certificate, ...]:
    return copied.copy.trusted if copied.copy else ()


def _mount(copied: CopiedCertificate) -> Mount:
    bundle = _bundle(copied)
    return Mount(copied.name, authority_key(bundle[0]) if bundle else AUTHORITY_KEY)


def _validity(
    resource: EtcdCluster, found: Mapping[str, Obj | None], copies: tuple[CopiedCertificate, ...]
) -> Mapping[str, Validity]:
    if resource.spec.tls.mode == "self":
        return validities(found, _certificates(resource), authority_secret(resource.name))
    return {copied.source: copied.in_use.validity for copied in copies if copied.in_use}
