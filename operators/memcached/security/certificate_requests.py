"""The certificates of a Memcached that the operator issues (tls.mode self) or requests (certManager). Pure.

Secret NAME-server-tls has the certificate that the servers mount, NAME-client-tls one for clients; both have the
trusted authorities. With mode self, NAME-ca has the authority with its key (shared/steps/certificates.py fills all).

`refresh_certs` makes a server load its certificate and, if clients must present one, the authorities. It adds them to
those that the server trusts, so a new one replaces no server; a former one expires by itself. A new authority signs
only after every server has loaded it: each was refreshed, or started, after the mounted files had the authority
(`TRUST_CHANGED`). Until then a server would reject the certificate of the operator and of the exporter.
"""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects import names
from shared.pki.rotation import CertificateRequest, server_hosts

TRUST_CHANGED = "cache.example.com/trust-changed"
"""Annotation of the Secrets of tls.mode self: time of the last change of the authorities."""


def leaves(resource: Memcached) -> tuple[CertificateRequest, ...]:
    """Return the certificates to issue: for servers, and for clients."""
    name = resource.name
    hosts = server_hosts(name, resource.namespace, name)  # the headless Service is also that of clients
    return (
        CertificateRequest(names.server_secret(resource), f"{name}-server", hosts),
        CertificateRequest(names.client_secret(resource), f"{name}-client"),
    )
