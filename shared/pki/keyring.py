"""Certificates that servers need, who signs them, and how Secrets hold both. Pure.

One Secret has the authority that signs, with its key; nobody mounts it. Others have a certificate each, and the
authorities to trust: issuing.py fills them, or cert-manager does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from shared.api.spec import Issuer
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.pki import certs
from shared.pki.certs import Certificate, Pair

CERTIFICATE = Kind("cert-manager.io", "v1", "Certificate", "certificates")

SIGNER, SUCCESSOR, FORMER = ("ca.crt", "ca.key"), ("next.crt", "next.key"), "former.crt"
"""Keys of the authority's Secret."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A certificate that is needed; whoever has it may be a client.

    Attributes:
        secret: name of its Secret.
        name: common name, for people; empty for none.
        hosts: names and addresses that it serves; none for one that is a client's alone.
    """

    secret: str
    name: str
    hosts: tuple[str, ...] = ()


def in_domains(host: str) -> tuple[str, str]:
    """A name as a pod may say it, whose search list completes it; and with the domain that most clusters have."""
    return host, f"{host}.cluster.local"


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate that can be used, and its key."""

    pair: Pair = field(repr=False)
    certificate: Certificate

    @classmethod
    def under(
        cls, secret: Obj | None, keys: tuple[str, str] = (CERTIFICATE_KEY, PRIVATE_KEY)
    ) -> IssuedCertificate | None:
        """What a Secret has under these keys; None if it cannot be used."""
        held = content_of(secret)
        return _held(*(held.get(key, "") for key in keys))


@lru_cache(maxsize=1024)  # the same few are looked at again and again
def _held(certificate: str, key: str) -> IssuedCertificate | None:
    pair = Pair(certificate, key)
    try:
        certs.server_context(pair)
        return IssuedCertificate(pair, certs.read(certificate)[0])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Authorities:
    """Who signs the certificates, and whom servers and clients are to trust.

    Attributes:
        signer: who signs; None where its Secret was lost.
        successor: who is to sign next, and is only trusted yet; None if nobody is to.
        former: who signed before, the last one first.
    """

    signer: IssuedCertificate | None = None
    successor: IssuedCertificate | None = None
    former: tuple[Certificate, ...] = ()

    @classmethod
    def of(cls, secret: Obj | None) -> Authorities:
        """As their Secret has them; what cannot be used counts as not there."""
        return cls(
            IssuedCertificate.under(secret, SIGNER),
            IssuedCertificate.under(secret, SUCCESSOR),
            authorities_in(secret, FORMER),
        )

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        """The newest first; empty if there is none."""
        return (*(held.certificate for held in (self.successor, self.signer) if held), *self.former)

    def content(self) -> dict[str, str]:
        """What their Secret is to hold, by key."""
        found: dict[str, str] = {FORMER: joined(self.former)} if self.former else {}
        for keys, held in ((SIGNER, self.signer), (SUCCESSOR, self.successor)):
            if held is not None:
                found |= zip(keys, held.pair, strict=True)
        return found


def trust(authorities: Iterable[Certificate]) -> dict[str, str]:
    """How a Secret says whom to trust, by key: for clients, and for pods by the newest that they know."""
    known = tuple(authorities)
    bundle = joined(known)
    return {AUTHORITY_KEY: bundle} | {authority_key(authority): bundle for authority in known}


def authority_key(newest: Certificate) -> str:
    """The key under which pods mount whom to trust, while this is the newest of them.

    A pod whose node still has the Secret as it was before lacks that key, and does not start: better than to start, and
    not to trust what the others will show it.
    """
    return f"ca-{fingerprint(newest)}.crt"


def fingerprint(authority: Certificate) -> str:
    """Tells authorities apart."""
    return hashlib.sha256(authority.pem.encode()).hexdigest()[:16]


def authorities_in(secret: Obj | None, key: str = AUTHORITY_KEY) -> tuple[Certificate, ...]:
    """The certificates that a Secret has under a key; none if they cannot be read."""
    try:
        return certs.read(content_of(secret).get(key, ""))
    except ValueError:
        return ()


def ends(found: Mapping[str, Obj | None], names: Iterable[str], authority: str = "") -> dict[str, datetime]:
    """When certificates end, by their Secrets' names; of those that can be used.

    Args:
        found: Secrets by name; None for one that does not exist.
        names: of those with a certificate.
        authority: of that with the authority that signs; empty if the operator signs nothing.
    """
    held = {name: IssuedCertificate.under(found[name]) for name in names}
    if authority:
        held[authority] = IssuedCertificate.under(found[authority], SIGNER)
    return {name: each.certificate.ends for name, each in held.items() if each}


def joined(certificates: Iterable[Certificate]) -> str:
    return "".join(f"{certificate.pem.strip()}\n" for certificate in certificates)


def ordered(
    own: Owner, component: str, leaves: Iterable[CertificateRequest], *, issuer: Issuer, uri: str
) -> tuple[Obj, ...]:
    """cert-manager's Certificates, each named as the Secret that it fills.

    Args:
        issuer: who signs.
        uri: a name for those that bear no other, for cert-manager wants some.
    """
    return tuple(
        own.object(
            CERTIFICATE,
            leaf.secret,
            component=component,
            spec={
                "secretName": leaf.secret,
                **_names(leaf, uri),
                "usages": ["digital signature", "client auth", *(["server auth"] if leaf.hosts else [])],
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"group": CERTIFICATE.group, "kind": issuer.kind, "name": issuer.name},
            },
        )
        for leaf in leaves
    )


def _names(leaf: CertificateRequest, uri: str) -> Obj:
    addresses = [host for host in leaf.hosts if host == "::1" or host[0].isdigit()]
    names = [host for host in leaf.hosts if host not in addresses]
    found = {
        "commonName": leaf.name,
        "dnsNames": names,
        "ipAddresses": addresses,
        "uris": [] if leaf.name else [uri],
    }
    return {key: given for key, given in found.items() if given}
