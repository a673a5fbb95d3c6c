"""Certificates of an EtcdCluster. Pure.

With tls.mode self, the Secret NAME-ca has the signing authority with its key; no pod mounts it. NAME-peer-tls,
NAME-server-tls and NAME-client-tls have a certificate each, and the authorities to trust (filled by
shared/steps/certificates.py). With tls.mode certManager, cert-manager creates these three.
"""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import names
from shared.pki.rotation import CertificateRequest, in_domains, server_hosts


def leaves(resource: EtcdCluster) -> tuple[CertificateRequest, ...]:
    """Return the requests for the certificates of peers, of servers and of clients.

    The certificate of servers is also presented by etcd's gateway. That of clients has no common name: with
    authentication, etcd's gateway rejects client certificates that have one, because it would be taken for the user
    (`CommonName of client …` in server/embed/serve.go).
    """
    name, namespace, service = resource.name, resource.namespace, names.client_service_name(resource)
    members, clients = in_domains(f"*.{name}.{namespace}.svc"), server_hosts(name, namespace, service)
    return (
        CertificateRequest(names.peer_secret(resource), f"{name}-peer", members),
        CertificateRequest(names.server_secret(resource), f"{name}-server", clients),
        CertificateRequest(names.client_secret(resource), "", uri=f"etcd://{name}.{namespace}"),
    )
