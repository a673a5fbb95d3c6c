"""The certificates of a RedisCluster, and their rotation without a restart. Pure.

With tls.mode self, Secret NAME-ca has the CA with its key; NAME-server-tls and NAME-client-tls have a certificate
each, and the trusted authorities (shared/steps/certificates.py fills them). With certManager, cert-manager fills these
two; with secret, the user provides the first one.

Nodes mount a copy, NAME-nodes-tls. Only valid content is copied, and each stage separately, so that no peer is ever
presented with a certificate that it does not trust yet, regardless of the change of the original:

| stage | nodes present | nodes trust | precondition |
|---|---|---|---|
| introduce | the old certificate | both authorities | the original has a new authority |
| replace | the new certificate | both authorities | every node trusts both |
| remove | the new certificate | the new authority | every node presents the new certificate |

A node reloads its files when tls-ca-cert-file changes its name. So the copy has the authorities under a name that
depends on the content (`MountedCertificates.file`): until the kubelet has written the file, the server rejects it.
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
    """Return the certificates to issue: for nodes, and for clients."""
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
    """Certificates that nodes mount.

    Attributes:
        pair: certificate of the nodes, and its key.
        trusted: authorities trusted for other nodes and for clients.
    """

    pair: Pair = field(repr=False)
    trusted: tuple[Certificate, ...]

    @classmethod
    def of(cls, secret: Obj | None) -> MountedCertificates | None:
        """Parse a Secret; None if a server could not use it."""
        issued, trusted = issued_in(secret), certificates_in(secret)
        return cls(issued.pair, trusted) if issued and trusted else None

    @property
    def mark(self) -> str:
        """Digest that identifies the content."""
        return hashlib.sha256(f"{self.pair.certificate}\n{joined(self.trusted)}".encode()).hexdigest()[:16]

    @property
    def file(self) -> str:
        """Name of the file with the authorities."""
        return f"ca-{self.mark}.crt"

    @property
    def certificate(self) -> Certificate:
        return certs.read(self.pair.certificate)[0]

    def content(self) -> Mapping[str, str]:
        """Return the content of the Secret, by key."""
        bundle = joined(self.trusted)
        return {
            CERTIFICATE_KEY: self.pair.certificate,
            PRIVATE_KEY: self.pair.key,
            AUTHORITY_KEY: bundle,
            self.file: bundle,
        }


def following(
    mounted: MountedCertificates | None, original: MountedCertificates | None, *, reachable: bool, now: datetime
) -> tuple[str, MountedCertificates | None]:
    """Return why the mounted certificates change, and the next ones.

    Args:
        mounted: certificates that nodes mount; None if there are none that can be used.
        original: desired certificates; None if there are none that can be used: then nothing changes.
        reachable: whether every running node applied the mounted certificates, and new ones will.
        now: present time.

    Returns:
        None as the second value if nothing changes now.
    """
    if original is None or mounted == original:
        return "", None
    if mounted is None:
        return "first certificate", original
    both = (*original.trusted, *(each for each in mounted.trusted if each not in original.trusted))
    is_over = mounted.certificate.ends <= now  # peers reject it anyway: there is nothing to wait for
    if any(each not in mounted.trusted for each in original.trusted) and not is_over:
        return "trusting the new authority before it is used", replace(mounted, trusted=both)
    if not reachable and not is_over:
        return "", None
    if mounted.pair != original.pair:
        return "new certificate", MountedCertificates(original.pair, both)
    return "updating the trusted authorities", original
