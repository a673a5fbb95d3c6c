"""The certificates that an EtcdCluster needs, and what the Secrets with them hold. Pure.

Where tls.mode is self, Secret NAME-ca has the authority that signs them, with its key; nobody mounts it. NAME-peer-tls,
NAME-server-tls and NAME-client-tls have a certificate each, and the authorities to trust (issuing.py fills them). Where
it is certManager, these three are cert-manager's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from operators.etcd import resources
from operators.etcd.api import EtcdCluster
from operators.etcd.resources import COMPONENT
from shared import pem
from shared.kube import Kind, Obj
from shared.ownership import Owner
from shared.pem import Certificate, Pair
from shared.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY

CERTIFICATE = Kind("cert-manager.io", "v1", "Certificate", "certificates")

SIGNER, SUCCESSOR, FORMER = ("ca.crt", "ca.key"), ("next.crt", "next.key"), "former.crt"
"""Keys of the authority's Secret."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate that a cluster needs; whoever has it may be a client.

    Attributes:
        secret: name of its Secret.
        name: common name, for people; the client's is empty: with users, etcd's gateway takes none that bears one, lest
            somebody thinks that this is the user (`CommonName of client …` in server/embed/serve.go).
        hosts: names and addresses that it serves; none for one that is a client's alone.
    """

    secret: str
    name: str
    hosts: tuple[str, ...] = ()


def leaves(resource: EtcdCluster) -> tuple[Leaf, ...]:
    """What members show each other, what they show clients (and etcd's gateway shows them), and what clients show."""
    name, namespace, service = resource.name, resource.namespace, resources.client_service_name(resource)
    members = _in_domains(f"*.{name}.{namespace}.svc")
    clients = (
        *members,
        *_in_domains(f"{name}.{namespace}.svc"),
        *_in_domains(f"{service}.{namespace}.svc"),
        *(f"{service}.{namespace}", service),
        *("localhost", "127.0.0.1", "::1"),  # as `kubectl port-forward` has it
    )
    return (
        Leaf(resources.peer_secret(resource), f"{name}-peer", members),
        Leaf(resources.server_secret(resource), f"{name}-server", clients),
        Leaf(resources.client_secret(resource), ""),
    )


def _in_domains(host: str) -> tuple[str, str]:
    """As a pod may say it, whose search list completes it; and with the domain that most clusters have."""
    return host, f"{host}.cluster.local"


@dataclass(frozen=True, slots=True)
class Held:
    """A certificate that can be used, and its key."""

    pair: Pair = field(repr=False)
    certificate: Certificate

    @classmethod
    def under(cls, secret: Obj | None, keys: tuple[str, str] = (CERTIFICATE_KEY, PRIVATE_KEY)) -> Held | None:
        """What a Secret has under these keys; None if it cannot be used."""
        held = content_of(secret)
        return _held(*(held.get(key, "") for key in keys))


@lru_cache(maxsize=1024)  # the same few are looked at again and again
def _held(certificate: str, key: str) -> Held | None:
    pair = Pair(certificate, key)
    try:
        pem.server_context(pair)
        return Held(pair, pem.read(certificate)[0])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Authorities:
    """Who signs a cluster's certificates, and whom its members and clients are to trust.

    Attributes:
        signer: who signs; None where its Secret was lost.
        successor: who is to sign next, and is only trusted yet; None if nobody is to.
        former: who signed before, the last one first.
    """

    signer: Held | None = None
    successor: Held | None = None
    former: tuple[Certificate, ...] = ()

    @classmethod
    def of(cls, secret: Obj | None) -> Authorities:
        """As their Secret has them; what cannot be used counts as not there."""
        return cls(Held.under(secret, SIGNER), Held.under(secret, SUCCESSOR), authorities_in(secret, FORMER))

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
    """How a Secret says whom to trust, by key: for clients, and for pods of members by the newest that they know."""
    known = tuple(authorities)
    bundle = joined(known)
    return {AUTHORITY_KEY: bundle} | {authority_key(authority): bundle for authority in known}


def authority_key(newest: Certificate) -> str:
    """The key under which pods of members mount whom to trust, while this is the newest of them.

    A pod whose node still has the Secret as it was before lacks that key, and does not start: better than to start, and
    not to trust what the others will show it.
    """
    return f"ca-{fingerprint(newest)}.crt"


def fingerprint(authority: Certificate) -> str:
    """Tells authorities apart."""
    return hashlib.sha256(authority.pem.encode()).hexdigest()[:16]


def content_of(secret: Obj | None) -> Mapping[str, str]:
    """What a Secret holds, by key; what is no text is left out."""
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return found


def authorities_in(secret: Obj | None, key: str = AUTHORITY_KEY) -> tuple[Certificate, ...]:
    """The certificates that a Secret has under a key; none if they cannot be read."""
    try:
        return pem.read(content_of(secret).get(key, ""))
    except ValueError:
        return ()


def joined(certificates: Iterable[Certificate]) -> str:
    return "".join(f"{certificate.pem.strip()}\n" for certificate in certificates)


def ordered(resource: EtcdCluster, own: Owner) -> tuple[Obj, ...]:
    """cert-manager's Certificates, each named as the Secret that it fills."""
    issuer = resource.spec.tls.issuer
    assert issuer is not None
    return tuple(
        own.object(
            CERTIFICATE,
            leaf.secret,
            component=COMPONENT,
            spec={
                "secretName": leaf.secret,
                **_names(resource, leaf),
                "usages": ["digital signature", "client auth", *(["server auth"] if leaf.hosts else [])],
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"group": CERTIFICATE.group, "kind": issuer.kind, "name": issuer.name},
            },
        )
        for leaf in leaves(resource)
    )


def _names(resource: EtcdCluster, leaf: Leaf) -> Obj:
    addresses = [host for host in leaf.hosts if host == "::1" or host[0].isdigit()]
    names = [host for host in leaf.hosts if host not in addresses]
    uris = [] if leaf.name else [f"etcd://{resource.name}.{resource.namespace}"]  # cert-manager wants some name
    found = {"commonName": leaf.name, "dnsNames": names, "ipAddresses": addresses, "uris": uris}
    return {key: given for key, given in found.items() if given}
