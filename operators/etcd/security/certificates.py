"""The certificates that an EtcdCluster needs. Pure.

Where tls.mode is self, Secret NAME-ca has the authority that signs them, with its key; nobody mounts it. NAME-peer-tls,
NAME-server-tls and NAME-client-tls have a certificate each, and the authorities to trust (issuing.py fills them).
Where it is certManager, these three are cert-manager's.
"""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import names
from operators.etcd.objects.names import COMPONENT
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.pki import keyring
from shared.pki.keyring import CertificateRequest, in_domains


def leaves(resource: EtcdCluster) -> tuple[CertificateRequest, ...]:
    """What members show each other, what they show clients (and etcd's gateway shows them), and what clients show.

    The last bears no name: with users, etcd's gateway takes none that does, lest somebody thinks that this is the user
    (`CommonName of client …` in server/embed/serve.go).
    """
    name, namespace, service = resource.name, resource.namespace, names.client_service_name(resource)
    members = in_domains(f"*.{name}.{namespace}.svc")
    clients = (
        *members,
        *in_domains(f"{name}.{namespace}.svc"),
        *in_domains(f"{service}.{namespace}.svc"),
        *(f"{service}.{namespace}", service),
        *("localhost", "127.0.0.1", "::1"),  # as `kubectl port-forward` has it
    )
    return (
        CertificateRequest(names.peer_secret(resource), f"{name}-peer", members),
        CertificateRequest(names.server_secret(resource), f"{name}-server", clients),
        CertificateRequest(names.client_secret(resource), ""),
    )


def ordered(resource: EtcdCluster, own: Owner) -> tuple[Obj, ...]:
    """cert-manager's Certificates, each named as the Secret that it fills."""
    issuer = resource.spec.tls.issuer
    assert issuer is not None
    uri = f"etcd://{resource.name}.{resource.namespace}"
    return keyring.ordered(own, COMPONENT, leaves(resource), issuer=issuer, uri=uri)
