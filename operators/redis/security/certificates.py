"""The certificates that a RedisCluster needs, and how nodes take up others while they run. Pure.

Where tls.mode is self, Secret NAME-ca has the authority that signs, with its key; NAME-server-tls and NAME-client-tls
have a certificate each, and the authorities to trust (shared/steps/certificates.py fills them). Where it is
certManager, these two are cert-manager's, and where it is secret, the first is the user's.

What nodes mount is a copy, NAME-nodes-tls: only what can be served with comes there, and each step by itself, so that
at no time anybody is shown a certificate that they do not trust yet, whoever replaces the original by whatever:

| step | nodes show | nodes trust | and only when |
|---|---|---|---|
| introduce | the former | both authorities | there is another |
| replace | the new | both | every node trusts both |
| forget | the new | the new | every node shows the new |

A node reads its files again when tls-ca-cert-file is set to another name. So the authorities stand there under a name
that is the copy's own (`Mounted.file`): while the kubelet has not brought it, the server refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.objects import names
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY
from shared.pki import certs
from shared.pki.certs import Certificate, Pair, joined
from shared.pki.rotation import CertificateRequest, server_hosts
from shared.pki.stores import certificates_in, issued_in


def leaves(resource: RedisCluster) -> tuple[CertificateRequest, ...]:
    """What nodes show clients and each other, and what clients show."""
    name, hosts = (
        resource.name,
        server_hosts(resource.name, resource.namespace, names.client_service_name(resource)),
    )
    return (
        CertificateRequest(names.server_secret(resource), f"{name}-server", hosts),
        CertificateRequest(names.client_secret(resource), f"{name}-client"),
    )


@dataclass(frozen=True, slots=True)
class MountedCertificates:
    """What nodes mount.

    Attributes:
        pair: the certificate that they show, and its key.
        trusted: authorities that vouch for other nodes and for clients.
    """

    pair: Pair = field(repr=False)
    trusted: tuple[Certificate, ...]

    @classmethod
    def of(cls, secret: Obj | None) -> MountedCertificates | None:
        """As a Secret has it; None if nobody can serve with that."""
        held, trusted = issued_in(secret), certificates_in(secret)
        return cls(held.pair, trusted) if held and trusted else None

    @property
    def mark(self) -> str:
        """Tells it from others."""
        return hashlib.sha256(f"{self.pair.certificate}\n{joined(self.trusted)}".encode()).hexdigest()[:16]

    @property
    def file(self) -> str:
        """Its own name for the authorities."""
        return f"ca-{self.mark}.crt"

    @property
    def certificate(self) -> Certificate:
        return certs.read(self.pair.certificate)[0]

    def content(self) -> Mapping[str, str]:
        """What the Secret is to hold, by key."""
        bundle = joined(self.trusted)
        return {
            CERTIFICATE_KEY: self.pair.certificate,
            PRIVATE_KEY: self.pair.key,
            AUTHORITY_KEY: bundle,
            self.file: bundle,
        }


def following(
    held: MountedCertificates | None, original: MountedCertificates | None, *, reachable: bool, now: datetime
) -> tuple[str, MountedCertificates | None]:
    """Why, and what, nodes are to mount next.

    Args:
        held: what they mount; None if nothing that can be used.
        original: what they are to come to; None if nothing that can be used: then all stays.
        reachable: whether every node that runs has taken up what it mounts, and those to come will.

    Returns:
        None if it is to stay for now.
    """
    if original is None or held == original:
        return "", None
    if held is None:
        return "there is none yet", original
    both = (*original.trusted, *(each for each in held.trusted if each not in original.trusted))
    is_over = held.certificate.ends <= now  # nobody takes it any more: there is nothing to wait for
    if any(each not in held.trusted for each in original.trusted) and not is_over:
        return "another authority is trusted first", replace(held, trusted=both)
    if not reachable and not is_over:
        return "", None
    if held.pair != original.pair:
        return "there is another", MountedCertificates(original.pair, both)
    return "whom to trust is told", original
