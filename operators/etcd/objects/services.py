"""The Services of an EtcdCluster. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import (
    CLIENT,
    CLIENT_PORT,
    CLIENTS,
    COMPONENT,
    METRICS,
    METRICS_PORT,
    PEER,
    PEER_PORT,
    SERVES,
    client_service_name,
)
from shared.kubernetes.kinds import SERVICE, Obj
from shared.kubernetes.objects import headless, service_port
from shared.kubernetes.ownership import Owner


def headless_service(resource: EtcdCluster, own: Owner) -> Obj:
    """Return the Service that gives each pod a name from its start: members find each other before they are ready."""
    ports = [service_port(CLIENT, CLIENT_PORT), service_port(PEER, PEER_PORT)]
    if resource.spec.metrics.enabled:
        ports.append(service_port(METRICS, METRICS_PORT))
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=headless(own.selector(COMPONENT), ports))


def client_service(resource: EtcdCluster, own: Owner) -> Obj:
    """Return the Service for clients, with all members that accept them."""
    selector = own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec: Obj = {"selector": selector, "ports": [service_port(CLIENT, CLIENT_PORT)]}
    return own.object(SERVICE, client_service_name(resource), component=COMPONENT, spec=spec)
