"""Stores of certificates: a few texts that the replicas of an operator share, and the Secrets of a database.

| | keys | content |
|---|---|---|
| serving | ca.crt, ca.key | the trusted authorities, newest first, and the key of the newest |
| | tls.crt, tls.key | the serving certificate |
| databases: authorities | ca.crt, ca.key | the signer |
| | next.crt, next.key | the successor |
| | former.crt | retired authorities |
| databases: each certificate | tls.crt, tls.key | the certificate |
| | ca.crt, ca-FINGERPRINT.crt | the trust bundle |

No pod mounts the Secret with the authorities. In mode certManager, cert-manager fills the other Secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of, encoded
from shared.pki import certs
from shared.pki.certs import Certificate, IssuedCertificate, Pair, joined
from shared.pki.rotation import (
    TAKEOVER_FACTOR,
    Authorities,
    Authority,
    AuthorityState,
    CertificateRequest,
    Made,
    SharedCertificates,
)
from shared.pki.validity import Validity, validity_of

LEAF_KEYS = (CERTIFICATE_KEY, PRIVATE_KEY)
SIGNER_KEY = "ca.key"
KEYS = {AuthorityState.SIGNING: (AUTHORITY_KEY, SIGNER_KEY), AuthorityState.INTRODUCED: ("next.crt", "next.key")}
FORMER_KEY = "former.crt"
AUTHORITIES_KEYS = (*KEYS[AuthorityState.SIGNING], *KEYS[AuthorityState.INTRODUCED], FORMER_KEY)
"""Keys of Secrets with a certificate or with authorities."""

MAX_BUNDLES_BYTES = 768 * 1024
"""Maximum size of all trust bundles in a Secret, whose values may have 1 MiB together."""


# Serving certificate: shared by replicas.


class ReplicaStore(Protocol):
    """A store shared by the replicas: text by file name, initially empty."""

    async def read(self) -> Mapping[str, str]: ...

    async def write(self, content: Mapping[str, str]) -> None:
        """Replace the content that was read; raises Conflict if another replica has changed it since."""


class Memory:
    """A store in memory, for one replica."""

    def __init__(self) -> None:
        self._content: Mapping[str, str] = {}

    def __str__(self) -> str:
        return "memory"

    async def read(self) -> Mapping[str, str]:
        return self._content

    async def write(self, content: Mapping[str, str]) -> None:
        self._content = content


class SharedSecret:
    """A Secret as a store; created if it is missing.

    A Secret that was deleted gets the labels and annotations that it had. Helm refuses an installation if an object of
    this name is without its marks, and an operator that just ends may have created the Secret again.
    """

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._version = ""
        self._marks: Obj = {}

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    async def read(self) -> Mapping[str, str]:
        secret = await self._kube.find(SECRET, self._namespace, self._name)
        if secret is None:
            self._version = ""
            return {}
        metadata = secret["metadata"]
        self._version = metadata["resourceVersion"]
        self._marks = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
        return content_of(secret)

    async def write(self, content: Mapping[str, str]) -> None:
        data = encoded(content)
        if self._version:
            patch = {"metadata": {"resourceVersion": self._version}, "data": data}
            await self._kube.merge(SECRET, self._namespace, self._name, patch)
            return
        metadata = {"name": self._name, "namespace": self._namespace, **self._marks}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
        await self._kube.create_by_apply(SECRET, body)  # unlike a POST, RBAC can limit it to this name


def shared_certificates(content: Mapping[str, str]) -> SharedCertificates | None:
    """Parse the shared certificates; None if there is no authority that can sign."""
    known, key = parsed(content.get(AUTHORITY_KEY, "")), content.get(SIGNER_KEY, "")
    # Only the newest authority: a bundle may have more certificates than a server may present.
    if not known or certs.usable(Pair(known[0].pem, key)) is None:
        return None
    newest, *former = known
    serving = shared_serving(content)
    # The first certificate that a successor signs promotes it.
    waits = serving is not None and serving.certificate.issuer in {each.subject for each in former}
    state = AuthorityState.INTRODUCED if waits else AuthorityState.SIGNING
    retired = (Authority(AuthorityState.RETIRED, each) for each in former)
    return SharedCertificates(Authorities((Authority(state, newest, Pair(newest.pem, key)), *retired)), serving)


def shared_serving(content: Mapping[str, str]) -> IssuedCertificate | None:
    """Return the shared serving certificate; None if it is missing or unusable."""
    return certs.usable(Pair(content.get(CERTIFICATE_KEY, ""), content.get(PRIVATE_KEY, "")))


def taken_over(trusted: Iterable[Certificate], serving: IssuedCertificate | None, now: datetime) -> SharedCertificates:
    """Return what a replica starts from that knows no authority that can sign.

    Args:
        trusted: the authorities that clients trust: other replicas may still serve certificates of them.
        serving: the shared serving certificate, if it is still usable; its authority is kept in any case.
    """
    known = Authorities(tuple(Authority(AuthorityState.RETIRED, each) for each in trusted))
    return SharedCertificates(known.bounded(now, [serving.certificate] if serving else [], TAKEOVER_FACTOR))


def shared_content(made: Made, stored: SharedCertificates, now: datetime) -> Mapping[str, str]:
    """Return the content to share after an order was fulfilled, without expired and excess authorities."""
    serving = made.serving or (stored.serving.pair if stored.serving else None)
    in_use, factor = ([stored.serving.certificate], 1.0) if stored.serving else ([], TAKEOVER_FACTOR)
    bundle, signer = stored.authorities.bounded(now, in_use, factor).trusted, made.authority
    if signer is None:
        signer = stored.authorities.stored[0].pair
    else:
        bundle = (*certs.read(signer.certificate), *bundle)
    assert serving is not None
    assert signer is not None
    return {
        AUTHORITY_KEY: joined(bundle),
        SIGNER_KEY: signer.key,
        CERTIFICATE_KEY: serving.certificate,
        PRIVATE_KEY: serving.key,
    }


# Certificates of databases: the Secrets of a resource.


def issued_in(secret: Obj | None, keys: tuple[str, str] = LEAF_KEYS) -> IssuedCertificate | None:
    """Return the certificate in a Secret under these keys; None if it is unusable."""
    stored = content_of(secret)
    certificate, key = (stored.get(name, "") for name in keys)
    return certs.usable(Pair(certificate, key))


def authorities_of(secret: Obj | None) -> Authorities:
    """Return the authorities in their Secret; unusable ones count as missing."""
    stored = [
        Authority(state, found.certificate, found.pair)
        for state in (AuthorityState.INTRODUCED, AuthorityState.SIGNING)
        if (found := issued_in(secret, KEYS[state])) is not None
    ]
    retired = (Authority(AuthorityState.RETIRED, each) for each in certificates_in(secret, FORMER_KEY))
    return Authorities((*stored, *retired))


def authorities_content(authorities: Authorities) -> dict[str, str]:
    """Return the desired content of the Secret with the authorities, by key."""
    found: dict[str, str] = {FORMER_KEY: joined(authorities.former)} if authorities.former else {}
    for each in authorities.stored:
        if each.pair is not None:
            found |= zip(KEYS[each.state], each.pair, strict=True)
    return found


def trust_content(authorities: Iterable[Certificate], issuer: Certificate | None = None) -> dict[str, str]:
    """Return the trust bundle as content of a Secret: under one key for clients, and one key per authority for pods.

    Of a large bundle, such as that of a system, only the newest authorities have a key, which new pods need.

    Args:
        authorities: trusted authorities, newest first.
        issuer: the one of them that signed the certificate in the Secret. Older ones have no key: servers that started
            with them do not trust the certificate. Without the key, the kubelet leaves their files as they are.
    """
    known = tuple(authorities)
    bundle = joined(known)
    fitting = max(MAX_BUNDLES_BYTES // max(len(bundle), 1) - 1, 1)
    trusting = known[: known.index(issuer) + 1] if issuer in known else known
    return {AUTHORITY_KEY: bundle} | {authority_key(authority): bundle for authority in trusting[:fitting]}


def authority_key(newest: Certificate) -> str:
    """Return the key under which pods mount the trust bundle while `newest` is its newest authority.

    On a node with an outdated copy of the Secret the key is missing, so the pod waits. This is better than starting
    without trusting the certificates of its peers.
    """
    return f"ca-{fingerprint(newest)}.crt"


def fingerprint(authority: Certificate) -> str:
    """Return a short fingerprint of an authority."""
    return hashlib.sha256(authority.pem.encode()).hexdigest()[:16]


def certificates_in(secret: Obj | None, key: str = AUTHORITY_KEY) -> tuple[Certificate, ...]:
    """Return the certificates in a Secret under a key; none if they cannot be parsed."""
    return parsed(content_of(secret).get(key, ""))


def parsed(text: str) -> tuple[Certificate, ...]:
    """Return the certificates in a text; none if they cannot be parsed."""
    try:
        return certs.read(text)
    except ValueError:
        return ()


def certificate_secrets(mode: str, leaves: Iterable[CertificateRequest], authority: str) -> tuple[str, ...]:
    """Return the names of the Secrets with the certificates of a database.

    Args:
        mode: value of spec.tls.mode: none, self, secret or certManager.
        authority: name of the Secret with the authorities.
    """
    if mode == "none":
        return ()
    return (*(leaf.secret for leaf in leaves), *((authority,) if mode == "self" else ()))


def validities(found: Mapping[str, Obj | None], names: Iterable[str], authority: str = "") -> dict[str, Validity]:
    """Return the periods of the usable certificates, by name of their Secret.

    Args:
        found: Secrets by name; None for one that does not exist.
        names: names of the Secrets with certificates.
        authority: the one of them with the authorities.
    """
    signing = {authority: KEYS[AuthorityState.SIGNING]}
    stored = {name: issued_in(found[name], signing.get(name, LEAF_KEYS)) for name in names}
    return {name: validity_of(each.pair, certificates_in(found[name])) for name, each in stored.items() if each}
