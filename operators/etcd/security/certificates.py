"""The certificates that an EtcdCluster needs. Pure.

Where tls.mode is self, Secret NAME-ca has the authority that signs them, with its key; nobody mounts it. NAME-peer-tls,
NAME-server-tls and NAME-client-tls have a certificate each, and the authorities to trust (shared/steps/certificates.py
fills them). Where it is certManager, these three are cert-manager's.
"""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import names
from shared.pki.rotation import CertificateRequest, in_domains, server_hosts


def leaves(resource: EtcdCluster) -> tuple[CertificateRequest, ...]:
    """What members show each other, what they show clients (and etcd's gateway shows them), and what clients show.

    The last bears no name: with users, etcd's gateway takes none that does, lest somebody thinks that this is the user
    (`CommonName of client …` in server/embed/serve.go).
    """
    name, namespace, service = resource.name, resource.namespace, names.client_service_name(resource)
    members, clients = in_domains(f"*.{name}.{namespace}.svc"), server_hosts(name, namespace, service)
    return (
        CertificateRequest(names.peer_secret(resource), f"{name}-peer", members),
        CertificateRequest(names.server_secret(resource), f"{name}-server", clients),
        CertificateRequest(names.client_secret(resource), "", uri=f"etcd://{name}.{namespace}"),
    )
