"""The Services: a DNS name for each node, and one address for clients. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import PORT
from operators.redis.objects.names import (
    BUS,
    CLIENT,
    CLIENTS,
    COMPONENT,
    METRICS,
    METRICS_PORT,
    SERVES,
    client_service_name,
)
from shared.kubernetes.kinds import SERVICE, Obj
from shared.kubernetes.objects import headless, service_port
from shared.kubernetes.ownership import Owner


def headless_service(resource: RedisCluster, own: Owner, bus_port: int) -> Obj:
    """Return the headless Service: a DNS name for each pod, also before it is ready."""
    ports = [service_port(CLIENT, PORT), service_port(BUS, bus_port)]
    if resource.spec.exporter_image:
        ports.append(service_port(METRICS, METRICS_PORT))
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=headless(own.selector(COMPONENT), ports))


def client_service(resource: RedisCluster, own: Owner) -> Obj:
    """Return the client Service: one address, behind which are the pods that serve clients."""
    selector = own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec: Obj = {"selector": selector, "ports": [service_port(CLIENT, PORT)]}
    return own.object(SERVICE, client_service_name(resource), component=COMPONENT, spec=spec)
