"""The certificates of a RedisCluster, and their rotation without a restart. Pure.

With tls.mode self, Secret NAME-ca has the CA with its key; NAME-server-tls and NAME-client-tls have a certificate
each, and the trusted authorities (shared/steps/certificates.py fills them). With certManager, cert-manager fills these
two; with secret, the user provides the first one.

Nodes mount a copy, NAME-nodes-tls (shared/pki/copies.py). Only valid content is copied, in stages, so that no peer is
ever presented with a certificate that it does not trust yet, regardless of the change of the original.

A node reloads its files when tls-ca-cert-file changes its name. So the copy has the authorities under a name that
depends on the content (`MountedCertificates.file`): until the kubelet has written the file, the server rejects it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from operators.redis.api.resource import RedisCluster
from operators.redis.objects import names
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY
from shared.pki.certs import joined
from shared.pki.copies import TrustedCertificate
from shared.pki.rotation import CertificateRequest, server_hosts


def leaves(resource: RedisCluster) -> tuple[CertificateRequest, ...]:
    """Return the certificates to issue: for nodes, and for clients."""
    name, hosts = (resource.name, server_hosts(resource.name, resource.namespace, names.client_service_name(resource)))
    return (
        CertificateRequest(names.server_secret(resource), f"{name}-server", hosts),
        CertificateRequest(names.client_secret(resource), f"{name}-client"),
    )


class MountedCertificates(TrustedCertificate):
    """Certificate of the nodes, and the authorities trusted for other nodes and for clients."""

    __slots__ = ()

    @property
    def mark(self) -> str:
        """Digest that identifies the content."""
        return hashlib.sha256(f"{self.pair.certificate}\n{joined(self.trusted)}".encode()).hexdigest()[:16]

    @property
    def file(self) -> str:
        """Name of the file with the authorities."""
        return f"ca-{self.mark}.crt"

    def content(self) -> Mapping[str, str]:
        """Return the content of the Secret, by key."""
        bundle = joined(self.trusted)
        return {
            CERTIFICATE_KEY: self.pair.certificate,
            PRIVATE_KEY: self.pair.key,
            AUTHORITY_KEY: bundle,
            self.file: bundle,
        }
