"""Contents of the Secrets that a spec names, and their validation."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.client import users_file
from operators.memcached.objects import names
from operators.memcached.objects.pod import ATTESTATION_KEY, USERS_KEY, mounts_of
from operators.memcached.security.certificate_requests import TRUST_CHANGED, leaves
from shared.api.memo import remembered
from shared.kubernetes import secret_provenance
from shared.kubernetes.accessors import annotation
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secret_provenance import is_proven
from shared.kubernetes.secrets import (
    AUTHORITY_KEY,
    CERTIFICATE_KEY,
    CERTIFICATE_KEYS,
    PASSWORD_KEY,
    content_of,
    digest,
    find,
    key_of,
    used,
)
from shared.pki import certs
from shared.pki.copies import CopiedCertificate, TrustedCertificate
from shared.pki.secret_checks import SecretProblem, UnusableSecret, certificate_of, texts
from shared.pki.secret_names import authority_secret, client_secret, server_secret
from shared.pki.stores import authorities_of, certificate_secrets, certificates_in, issued_in, validities
from shared.pki.threads import evaluate
from shared.pki.validity import Validity
from shared.status.observed_secrets import versions_of
from shared.status.reasons import SECRET_INVALID
from shared.steps.certificates import settled_at
from shared.steps.connection import USERNAME_KEY, ConnectionSecret
from shared.steps.own_secrets import former_secrets
from shared.steps.passwords import own_secret

SOURCE = "cache.example.com/copied-from"
"""Annotation of a copy: name of the Secret with the original. Users may edit it."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Contents of the Secrets of a Memcached.

    Attributes:
        problem: first problem with the Secrets; None if they are valid.
        users: contents of the users file.
        pair: certificate of the servers, and its key; while a change of spec.tls is not applied, the former one.
        authority: CA certificates that verify clients, if a change replaces the servers; empty with tls.mode self,
            whose former CA is trusted until it expires.
        issuers: CA certificates that verify servers with `pair`; empty if the Secret has none.
        users_digest: digest of the users file, with which the status records that all servers have loaded it. Its key
            is the UID of the Secret, so that it reveals nothing of the passwords.
        validity: period of the certificate of the spec, by the name of its Secret, even if it has ended.
        versions: resourceVersion of each Secret, by name; None for one that does not exist.
        found: Secrets by name; None for one that does not exist.
        successor: CA that does not sign yet, with tls.mode self; None if there is none.
        trusted_from: time at which every mounted file has the present CAs; None if it is unknown.
        missing_name: DNS name of the servers that their certificate lacks, although there are passwords to send to
            them; empty if it has one.
        remembered: user and password that servers accept, from the connection Secret, while the users file cannot be
            used; None if they are unknown, or if the servers cannot be verified.
        attestation_key: key of the digests by which sidecars attest the users file that a server has loaded; empty if
            there is none.
        mounts: Secret with the certificate that servers mount, and to which `pair` belongs: the copy, or the original
            if the operator may not write Secrets; empty without TLS in the spec and in the template.
        served: the certificate in that Secret; None if servers cannot use it.
        copied: a certificate of another issuer, with its copy; None without one.
        applied: the certificate of which the copy was made, although a spec that is not applied may name another.
        unproven: Secrets with names of the operator's own and content of unknown origin; `found` has None for them.
    """

    problem: SecretProblem | None = None
    users: str = field(default="", repr=False)
    pair: certs.Pair | None = field(default=None, repr=False)
    authority: str = field(default="", repr=False)
    issuers: str = field(default="", repr=False)
    users_digest: str = ""
    validity: Mapping[str, Validity] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    found: Mapping[str, Obj | None] = field(default_factory=dict, repr=False)
    successor: certs.Certificate | None = None
    trusted_from: datetime | None = None
    missing_name: str = ""
    remembered: tuple[str, str] | None = field(default=None, repr=False)
    attestation_key: str = field(default="", repr=False)
    mounts: str = ""
    served: TrustedCertificate | None = field(default=None, repr=False)
    copied: CopiedCertificate | None = field(default=None, repr=False)
    applied: CopiedCertificate | None = field(default=None, repr=False)
    unproven: tuple[Obj, ...] = field(default=(), repr=False)

    @property
    def all_credentials(self) -> tuple[tuple[str, str], ...]:
        """All users with their passwords, in the order of the file."""
        lines = (line.partition(":") for line in self.users.splitlines())
        return tuple((user, password) for user, found, password in lines if found)

    @property
    def credentials(self) -> tuple[str, str] | None:
        """First user and password; None without authentication, or if they are unknown."""
        return next(iter(self.all_credentials), self.remembered)

    def startup_digest(self, salt: str, *, with_users: bool) -> str:
        """Return a digest of what servers read only at startup; empty if there is nothing.

        It depends on the content alone: a Secret that is recreated with the same content replaces no server.

        Args:
            salt: makes the digest of the same content different for each resource.
            with_users: whether servers read the users file only at startup.
        """
        users = self.users if with_users else ""
        if users:  # a user that can list pods could guess a weak password from a plain digest
            return _slow_digest(f"{users}\0{self.authority}", salt)
        return hashlib.sha256(self.authority.encode()).hexdigest()[:32] if self.authority else ""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the servers' certificate, in hexadecimal; empty without TLS."""
        return fingerprint(ssl.PEM_cert_to_DER_cert(certs.read(self.pair.certificate)[0].pem)) if self.pair else ""


@remembered(len)  # 40 ms each, and the same few are needed repeatedly
def _slow_digest(text: str, salt: str) -> str:
    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex()


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER form, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


async def read_secrets(
    resource: Memcached, kube: Kube, connected: ConnectionSecret, template: Obj | None, *, hashes_users: bool = False
) -> Secrets:
    """Read the Secrets that the spec names, and those that servers mount or of which copies were made, and parse them.

    Args:
        connected: the Secret for clients.
        template: template of the servers; None if there are none.
        hashes_users: whether the plan needs the digest of the users file, which takes long.
    """
    made, mounted = made_secrets(resource), mounts_of(template) if template is not None else names.Mounts()
    own = {name(resource.name) for name in (authority_secret, server_secret, client_secret)}
    former = {*mounted, *(own if mounted.certificate in own else ())} & secret_provenance.recorded(resource.obj).keys()
    found, unproven = await secret_provenance.find(kube, resource.obj, {}, made | former | {*spare_secrets(resource)})
    others = {secret["metadata"]["name"] for secret in unproven} - made  # such as of cert-manager
    source, known = sources(resource, found), {"", *found.keys() - others}
    users, certificates = {names.users_secret(resource), source.users}, {source.certificate, mounted.certificate}
    certificates |= {*_certificates(resource)}
    provided = used((users - known, {USERS_KEY}), (certificates - known, CERTIFICATE_KEYS))
    found |= await find(kube, resource.namespace, provided)
    secrets = await evaluate(resource.namespace, _as_mounted, resource, found, template, hashes_users=hashes_users)
    key = content_of(found.get(names.attestation_secret(resource))).get(ATTESTATION_KEY, "")
    of_made = tuple(secret for secret in unproven if secret["metadata"]["name"] in made)
    secrets = replace(secrets, attestation_key=key, unproven=of_made)
    if resource.spec.auth is None or secrets.users or (resource.spec.encrypts and secrets.pair is None):
        return secrets
    content = content_of(connected.found) if connected.is_proven else {}
    user, password = content.get(USERNAME_KEY, ""), content.get(PASSWORD_KEY, "")
    return replace(secrets, remembered=(user, password) if user and password else None)


def _as_mounted(
    resource: Memcached, found: Mapping[str, Obj | None], template: Obj | None, *, hashes_users: bool
) -> Secrets:
    """Return the contents of the Secrets that servers mount: of the copies, if they mount those.

    Problems are those of the originals, too, which a user has to correct.
    """
    given, copied = names.originals(resource), names.copies(resource)
    secrets, present = parse_secrets(resource, found), copied if template is None else mounts_of(template)
    certificate, is_client = None, resource.spec.needs_client_certificate
    if copied.certificate != given.certificate:
        certificate = _copied(given.certificate, copied.certificate, found, is_client=is_client)
    has_users = bool(content_of(found.get(copied.users)).get(USERS_KEY))
    has_certificate = certificate is not None and certificate.copy is not None
    pairs = zip(given, copied, present, (has_users, has_certificate), strict=True)
    mounts = names.Mounts(*(name if has_copy and name == now else original for original, name, now, has_copy in pairs))
    if mounts != given:
        mounted = parse_secrets(resource, found, mounts)
        secrets = replace(mounted, problem=secrets.problem or mounted.problem, versions=secrets.versions)
    former = _trusted(found.get(present.certificate))
    if former and present.certificate not in (given.certificate, copied.certificate):  # spec.tls is not applied
        issuers = content_of(found.get(present.certificate)).get(AUTHORITY_KEY, "")
        secrets, mounts = replace(secrets, pair=former.pair, issuers=issuers), present
    source, copy = sources(resource, found).certificate, names.copy_names(resource).certificate
    if source != given.certificate:  # servers of the former spec may mount the authorities that are there
        is_client = bool(content_of(found.get(copy)).get(AUTHORITY_KEY))
    applied = _copied(source, copy, found, is_client=is_client)
    served = _trusted(found.get(mounts.certificate))
    secrets = replace(secrets, copied=certificate, mounts=mounts.certificate, served=served, applied=applied)
    if hashes_users:
        secrets.startup_digest(resource.uid, with_users=True)
    return secrets


def sources(resource: Memcached, found: Mapping[str, Obj | None]) -> names.Mounts:
    """Return the Secrets of which the copies were made, as far as they are proven; empty for others."""
    seen = (found.get(name) for name in names.copy_names(resource))
    return names.Mounts(*(annotation(each, SOURCE) if each and is_proven(resource.obj, each) else "" for each in seen))


def _copied(source: str, copy: str, found: Mapping[str, Obj | None], *, is_client: bool) -> CopiedCertificate:
    """Return a certificate with its copy; without an original that servers, which may verify clients, cannot use."""
    original = None
    with suppress(UnusableSecret):
        certificate_of("spec.tls", source, found.get(source), hosts=None, is_client=is_client)
        original = _trusted(found.get(source))
    return CopiedCertificate(source, copy, original, _trusted(found.get(copy)))


def _trusted(secret: Obj | None) -> TrustedCertificate | None:
    issued = issued_in(secret)
    return TrustedCertificate(issued.pair, certificates_in(secret)) if issued is not None else None


def made_secrets(resource: Memcached) -> set[str]:
    """Return the names of the Secrets that the operator makes; while the spec changes, also those of the former one."""
    auth = resource.spec.auth
    made = {names.attestation_secret(resource)} if auth is not None else set()
    made |= {names.users_secret(resource)} if auth is not None and not auth.secret_name else set()
    certificates = _certificates(resource) if resource.spec.tls_mode == "self" else ()
    return made | {*certificates} | {*names.copies(resource)} - {*names.originals(resource)} | former_secrets(resource)


def spare_secrets(resource: Memcached, mounted: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the names of recorded Secrets that only servers of a former spec mounted, and their keys.

    Generated users and an own CA stay: clients know them, and a spec that requests them again finds them.
    """
    unused = set() if resource.spec.auth is not None else {names.attestation_secret(resource)}
    unused |= {*names.copy_names(resource)} - {*names.copies(resource)}
    unused &= secret_provenance.recorded(resource.obj).keys() - mounted
    return dict.fromkeys(unused, (ATTESTATION_KEY, USERS_KEY, *CERTIFICATE_KEYS))


def _certificates(resource: Memcached) -> tuple[str, ...]:
    return certificate_secrets(resource.spec.tls_mode, leaves(resource), authority_secret(resource.name))


def parse_secrets(resource: Memcached, found: Mapping[str, Obj | None], mounts: names.Mounts | None = None) -> Secrets:
    """Return the contents of the Secrets, as far as they are valid, and the first problem with them. Pure.

    A missing users file does not hide the certificate, which running servers must load before the last one expires.

    Args:
        resource: the Memcached.
        found: Secrets that the spec names, by name; None if a Secret does not exist.
        mounts: Secrets to read instead, which have copies.
    """
    read = mounts or names.originals(resource)
    auth, mode = resource.spec.auth, resource.spec.tls_mode
    users = authority = issuers = users_digest = missing_name = ""
    pair: certs.Pair | None = None
    problem: SecretProblem | None = None
    certificates = {**found, names.server_secret(resource): found.get(read.certificate)}
    validity = validities(certificates, _certificates(resource), authority_secret(resource.name))
    provided = {names.users_secret(resource), *((names.server_secret(resource),) if mode != "self" else ())} - {""}
    versions = versions_of({name: found[name] for name in sorted(provided)})
    try:
        if auth is not None:
            secret = found[read.users]
            if not auth.secret_name:
                secret = own_secret(resource.uid, resource.name, "memcached", secret)
            users = _users(names.users_secret(resource), secret)
            users_digest = digest([(key_of(secret), users.encode())])
    except UnusableSecret as error:
        problem, users = error.problem, ""
    try:
        if mode != "none":
            name, needed = names.server_secret(resource), resource.spec.needs_client_certificate
            secret, is_ordered = certificates[name], mode == "certManager"
            pair, authority = certificate_of(
                "spec.tls", name, secret, hosts=None, is_client=needed, is_ordered=is_ordered
            )
            issuers, authority = content_of(secret).get(AUTHORITY_KEY, ""), "" if mode == "self" else authority
            missing_name = "" if auth is None else _missing_name(resource, pair)
            if missing_name and not resource.certificate:  # nothing runs with it yet
                raise UnusableSecret(
                    SECRET_INVALID,
                    f"spec.tls: Secret {name}: {CERTIFICATE_KEY} has no DNS name {missing_name}, and with spec.auth, "
                    "passwords are sent only to servers whose certificate has it. Issue it with that name.",
                )
    except UnusableSecret as error:  # without users: no password is sent to servers that cannot be verified
        return Secrets(problem or error.problem, validity=validity, versions=versions, found=found)
    successor, trusted_from = _rotation(resource, found)
    return Secrets(
        problem=problem,
        users=users,
        pair=pair,
        authority=authority,
        issuers=issuers,
        users_digest=users_digest,
        validity=validity,
        versions=versions,
        found=found,
        successor=successor,
        trusted_from=trusted_from,
        missing_name=missing_name,
    )


def usable_users(name: str, found: Mapping[str, Obj | None]) -> str:
    """Return the users file of a Secret; empty if there is none that servers may load."""
    with suppress(UnusableSecret):
        return _users(name, found.get(name))
    return ""


def _users(name: str, secret: Obj | None) -> str:
    """Return the users file of a Secret.

    Raises:
        UnusableSecret: there is none, or memcached reads it otherwise than it is written.
    """
    (users,) = texts("spec.auth", name, secret, USERS_KEY)
    if wrong := users_file.problem(users):
        raise UnusableSecret(SECRET_INVALID, f"spec.auth: Secret {name}: {USERS_KEY}: {wrong}")
    return users


def _missing_name(resource: Memcached, pair: certs.Pair) -> str:
    """Return the DNS name of the Service if a certificate has no name of the servers; else an empty string."""
    hosts, certificate = names.server_hosts(resource), certs.read(pair.certificate)[0]
    return "" if any(map(certificate.serves, hosts)) else hosts[0]


def _rotation(resource: Memcached, found: Mapping[str, Obj | None]) -> tuple[certs.Certificate | None, datetime | None]:
    """Return the CA that does not sign yet, and when every mounted file has it; None for an unknown or missing one."""
    if resource.spec.tls_mode != "self":
        return None, None
    successor = authorities_of(found[authority_secret(resource.name)]).successor
    certificate = successor.certificate if successor else None
    return certificate, settled_at(found[names.server_secret(resource)], TRUST_CHANGED)
